package memory

import (
	"slices"
	"sort"
)

// blockKeys is the largest number of keys in a block of a keyList.
const blockKeys = 512

// keyList has the row keys of a partition in byte order. The keys are in blocks of bounded size, so
// that an insert or removal moves the keys of one block at most.
type keyList struct {
	blocks [][]string // no block is empty
}

// keyPos is the position of a key, or the position at which a missing key would be inserted.
type keyPos struct{ block, index int }

// findPos returns the position of the first key that is not less than k, and reports whether that
// key is k.
func (s *keyList) findPos(k string) (keyPos, bool) {
	b := sort.Search(len(s.blocks),
		func(i int) bool { return s.blocks[i][len(s.blocks[i])-1] >= k })
	if b == len(s.blocks) {
		return keyPos{b, 0}, false
	}

	at, found := slices.BinarySearch(s.blocks[b], k)
	return keyPos{b, at}, found
}

// keyAt returns the key at a position; false = the position is past the last key.
func (s *keyList) keyAt(p keyPos) (string, bool) {
	if p.block >= len(s.blocks) {
		return "", false
	}
	return s.blocks[p.block][p.index], true
}

func (s *keyList) nextPos(p keyPos) keyPos {
	if p.index+1 < len(s.blocks[p.block]) {
		return keyPos{p.block, p.index + 1}
	}
	return keyPos{p.block + 1, 0}
}

func (s *keyList) insertKey(k string) {
	p, found := s.findPos(k)
	if found {
		return
	}

	if p.block == len(s.blocks) {
		s.appendKey(k)
		return
	}

	block := slices.Insert(s.blocks[p.block], p.index, k)
	s.blocks[p.block] = block
	if half := len(block) / 2; len(block) > blockKeys {
		s.blocks[p.block] = slices.Clone(block[:half])
		s.blocks = slices.Insert(s.blocks, p.block+1, slices.Clone(block[half:]))
	}
}

// appendKey adds a key that is greater than all others. If the last block is full, the key gets a
// new block. If appendKey split the full block instead, keys that arrive in ascending order would
// leave every block half empty.
func (s *keyList) appendKey(k string) {
	last := len(s.blocks) - 1
	if last < 0 || len(s.blocks[last]) >= blockKeys {
		s.blocks = append(s.blocks, []string{k})
		return
	}
	s.blocks[last] = append(s.blocks[last], k)
}

func (s *keyList) removeKey(k string) {
	p, found := s.findPos(k)
	if !found {
		return
	}

	s.blocks[p.block] = slices.Delete(s.blocks[p.block], p.index, p.index+1)
	if len(s.blocks[p.block]) == 0 {
		s.blocks = slices.Delete(s.blocks, p.block, p.block+1)
	}
}
