package lane

import (
	"context"
	"time"

	"weir/internal/storage"
)

// Claim is the wish of a process to take over a lane from its holder. A holder that the platform
// may end at any moment, because none of its invocations is in flight, hands the lane over to it.
type Claim struct {
	By    string // a random name of the process
	Until time.Time
}

// claimKey is a note, which the holder reads with the control rows. It names the last process
// that claimed the lane.
const claimKey = "!heir"

// longestClaim bounds what is believed of a claim, whatever the clock of the process that wrote it.
const longestClaim = time.Minute

// PutClaim writes a claim in the place of any other. Neither head nor tail changes.
func (s *Store) PutClaim(ctx context.Context, lane int, c Claim) error {
	_, err := s.Table.Transact(ctx, s.partition(lane), []storage.Op{{Kind: storage.Upsert, Key: claimKey,
		Values: map[string]any{"By": c.By, "Until": c.Until.UTC().Truncate(time.Microsecond)}}})
	return err
}

// Claim returns the claim in force, if there is one.
func (c Control) Claim(now time.Time) (Claim, bool) {
	r, found := c.note(claimKey)
	if !found {
		return Claim{}, false
	}
	v := values{r.Values}
	claim := Claim{By: v.string("By"), Until: v.time("Until")}
	return claim, claim.Until.After(now) && claim.Until.Before(now.Add(longestClaim))
}
