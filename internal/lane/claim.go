package lane

import (
	"context"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
)

// Claim asks the holder of a lane to hand the lane over to the process that wrote the claim. A
// holder without an invocation does so, because the platform can end such a process at any time. A
// claim is stored in a marker, which the holder reads with the control rows.
type Claim struct {
	By    string    // random name of the process
	Until time.Time // end of the claim
}

// longestClaim is the longest time for which a claim can count. A claim with a later end is
// ignored: the clock of its process is wrong, and the claim would block the lane for too long.
const longestClaim = time.Minute

// PutClaim stores a claim to a lane. It replaces the present claim, even that of another process.
func (s *Store) PutClaim(ctx context.Context, lane int, c Claim) error {
	_, err := s.Table.Transact(ctx, s.Partition(lane),
		[]storage.Op{{Kind: storage.Upsert, Key: rows.ClaimKey,
			Values: rows.Values(rows.Claimant.Is(c.By),
				rows.Until.Is(c.Until.UTC().Truncate(time.Microsecond)))}})
	return err
}

// Claim returns the last claim to the lane, and reports whether the claim counts. A claim counts if
// its end is in the future, but less than longestClaim away.
func (c Control) Claim(now time.Time) (Claim, bool) {
	r, found := c.Marker(rows.ClaimKey)
	if !found {
		return Claim{}, false
	}

	v := r.Values
	claim := Claim{By: rows.Claimant.Of(v), Until: rows.Until.Of(v)}
	return claim, claim.Until.After(now) && claim.Until.Before(now.Add(longestClaim))
}
