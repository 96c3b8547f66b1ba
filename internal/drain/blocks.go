package drain

import (
	"time"

	"weir/internal/lane"
)

// blocks are the keys that wait, by block id.
type blocks map[string]*lane.Block

// ahead gives, by key, the first rank of what was released or shelved and waits for its first
// try, as the log behind it does; nil when there is nothing of the kind.
func (b blocks) ahead() map[string]int64 {
	var ahead map[string]int64
	for _, blk := range b {
		if blk.Ahead == 0 {
			continue
		}
		if ahead == nil {
			ahead = map[string]int64{}
		}
		if from := ahead[blk.KeyHash]; from == 0 || blk.Rank() < from {
			ahead[blk.KeyHash] = blk.Rank()
		}
	}
	return ahead
}

// due gives the block that has waited longest past its time among those usable.
func (b blocks) due(now time.Time, usable func(*lane.Block) bool) *lane.Block {
	var first *lane.Block
	for _, blk := range b {
		if blk.Next.After(now) || !usable(blk) {
			continue
		}
		if first == nil || blk.Next.Before(first.Next) || (blk.Next.Equal(first.Next) && blk.ID < first.ID) {
			first = blk
		}
	}
	return first
}
