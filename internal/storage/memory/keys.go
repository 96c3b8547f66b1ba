package memory

import (
	"slices"
	"sort"
)

// blockKeys is how many keys a block holds before it is split.
const blockKeys = 512

// keys are the row keys of a partition in byte order, in blocks of bounded size: adding
// or removing one moves no more than a block, however many there are.
type keys struct {
	blocks [][]string // none is empty
}

// place is where a key is, or would be.
type place struct{ block, at int }

// find gives the place of the first key that is not before k.
func (s *keys) find(k string) (place, bool) {
	b := sort.Search(len(s.blocks), func(i int) bool { return s.blocks[i][len(s.blocks[i])-1] >= k })
	if b == len(s.blocks) {
		return place{b, 0}, false
	}
	at, found := slices.BinarySearch(s.blocks[b], k)
	return place{b, at}, found
}

// key gives the key at a place; false at the end.
func (s *keys) key(p place) (string, bool) {
	if p.block >= len(s.blocks) {
		return "", false
	}
	return s.blocks[p.block][p.at], true
}

func (s *keys) next(p place) place {
	if p.at+1 < len(s.blocks[p.block]) {
		return place{p.block, p.at + 1}
	}
	return place{p.block + 1, 0}
}

func (s *keys) add(k string) {
	p, found := s.find(k)
	if found {
		return
	}
	if p.block == len(s.blocks) {
		s.push(k)
		return
	}
	block := slices.Insert(s.blocks[p.block], p.at, k)
	s.blocks[p.block] = block
	if half := len(block) / 2; len(block) > blockKeys {
		s.blocks[p.block] = slices.Clone(block[:half])
		s.blocks = slices.Insert(s.blocks, p.block+1, slices.Clone(block[half:]))
	}
}

// push adds a key behind all others. A full last block stays full: a log grows at its end.
func (s *keys) push(k string) {
	last := len(s.blocks) - 1
	if last < 0 || len(s.blocks[last]) >= blockKeys {
		s.blocks = append(s.blocks, []string{k})
		return
	}
	s.blocks[last] = append(s.blocks[last], k)
}

func (s *keys) remove(k string) {
	p, found := s.find(k)
	if !found {
		return
	}
	s.blocks[p.block] = slices.Delete(s.blocks[p.block], p.at, p.at+1)
	if len(s.blocks[p.block]) == 0 {
		s.blocks = slices.Delete(s.blocks, p.block, p.block+1)
	}
}
