package drain

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"weir/internal/lane"
)

// blocks are the keys that wait, by block id.
type blocks map[string]*lane.KeyBlock

// ahead returns, by key, the first block of what was released or shelved and waits for its first
// try, as the log behind it does; nil when there is nothing of the kind.
func (b blocks) ahead() map[string]*lane.KeyBlock {
	var ahead map[string]*lane.KeyBlock
	for _, blk := range b {
		if blk.LogWaitsFrom == 0 {
			continue
		}
		if ahead == nil {
			ahead = map[string]*lane.KeyBlock{}
		}
		if first := ahead[blk.KeyHash]; first == nil || blk.GoesBefore(first) {
			ahead[blk.KeyHash] = blk
		}
	}
	return ahead
}

// eachFirst goes through the blocks that wait for no other of their key.
func (b blocks) eachFirst(f func(*lane.KeyBlock)) {
	ahead := b.ahead()
	for _, blk := range b {
		if blk.LogWaitsFrom == 0 || ahead[blk.KeyHash] == blk {
			f(blk)
		}
	}
}

// overdue returns the blocks whose time has come, the one that has waited longest first.
func (b blocks) overdue(now time.Time) (due []*lane.KeyBlock) {
	for _, blk := range b {
		if !blk.NextAt.After(now) {
			due = append(due, blk)
		}
	}
	slices.SortFunc(due, compareBlocks)
	return due
}

// due gives the block that has waited longest past its time among those usable.
func (b blocks) due(now time.Time, usable func(*lane.KeyBlock) bool) *lane.KeyBlock {
	var first *lane.KeyBlock
	for _, blk := range b {
		if !blk.NextAt.After(now) && (first == nil || compareBlocks(blk, first) < 0) && usable(blk) {
			first = blk
		}
	}
	return first
}

func compareBlocks(a, b *lane.KeyBlock) int {
	return cmp.Or(a.NextAt.Compare(b.NextAt), strings.Compare(a.ID, b.ID))
}

// firstRemote returns the first messages of all blocks except one, if they are in memory without
// their bodies: up to most of them, the earliest first.
func (b blocks) firstRemote(but *lane.KeyBlock, most int) (first []*lane.Entry) {
	var found []*lane.KeyBlock
	for _, blk := range b {
		if blk == but || blk.First == nil || blk.First.HasBody() || len(found) == most && compareBlocks(blk, found[most-1]) > 0 {
			continue
		}
		i, _ := slices.BinarySearchFunc(found, blk, compareBlocks)
		found = slices.Insert(found, i, blk)
		found = found[:min(len(found), most)]
	}
	for _, blk := range found {
		first = append(first, blk.First)
	}
	return first
}
