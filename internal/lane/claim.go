package lane

import (
	"context"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
)

// Claim asks the holder of a lane to hand the lane over to the process that wrote the claim. The holder does so
// if it has no invocation, because then the platform may end the holder at any time. The row is a marker, which
// the holder reads with the control rows.
type Claim struct {
	By    string    // random name of the process
	Until time.Time // end of the claim
}

// longestClaim is how far ahead a claim may end. A claim with a later end is ignored, because the clock of the
// process that wrote it is wrong, and the claim would block the lane.
const longestClaim = time.Minute

// PutClaim replaces the claim to the lane, even if another process wrote it. PutClaim changes neither head nor tail.
func (s *Store) PutClaim(ctx context.Context, lane int, c Claim) error {
	_, err := s.Table.Transact(ctx, s.Partition(lane), []storage.Op{{Kind: storage.Upsert, Key: rows.ClaimKey,
		Values: rows.Values(rows.Claimant.Is(c.By), rows.Until.Is(c.Until.UTC().Truncate(time.Microsecond)))}})
	return err
}

// Claim returns the last claim to the lane, and reports whether it counts: it has not ended, and its end is not
// too far ahead.
func (c Control) Claim(now time.Time) (Claim, bool) {
	r, found := c.Marker(rows.ClaimKey)
	if !found {
		return Claim{}, false
	}
	v := r.Values
	claim := Claim{By: rows.Claimant.Of(v), Until: rows.Until.Of(v)}
	return claim, claim.Until.After(now) && claim.Until.Before(now.Add(longestClaim))
}
