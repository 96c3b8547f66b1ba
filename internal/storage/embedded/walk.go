package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"
)

// bbolt walks over a file in goroutines of its own when it opens a file without a list of free
// pages, and when it checks a file. If a page is damaged, it panics there, which no caller can
// catch. So these functions walk over the file before.

// walkIfNeeded returns an error if bbolt would walk over the file, and a page is damaged.
func walkIfNeeded(path string) error {
	isNeeded, err := lacksFreePages(path)
	if err != nil || !isNeeded {
		return err
	}

	prefetch(path)

	return guardFaults(func() error {
		db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Second})
		if err != nil {
			return err
		}

		return errors.Join(guardFaults(func() error { return db.View(walkPages) }), db.Close())
	})
}

// Places in the first two pages of a file of bbolt, each of which describes a state.
const (
	placeHeader    = 16 // the checksum covers the bytes from here on
	placeFreePages = 48
	placePages     = 56
	placeState     = 64
	placeSum       = 72
	stateSize      = 80
	noFreePages    = ^uint64(0)
)

// fileState is the newest whole state of a file.
type fileState struct {
	id             uint64
	pages          uint64 // number of pages from the beginning of the file to the last one in use
	lacksFreePages bool
}

// readNewestState reads the state that bbolt takes when it opens a file; false = there is none, and
// bolt.Open refuses the file.
func readNewestState(path string) (newest fileState, hasOne bool, err error) {
	file, err := os.Open(path)
	if err != nil {
		return newest, false, err
	}
	defer file.Close()

	for n := range int64(2) {
		var state [stateSize]byte
		if _, err := file.ReadAt(state[:], n*pageSize); err != nil {
			continue // the file is too short, or this page cannot be read
		}

		sum := fnv.New64a()
		sum.Write(state[placeHeader:placeSum])
		isWhole := binary.NativeEndian.Uint64(state[placeSum:]) == sum.Sum64()
		if id := binary.NativeEndian.Uint64(state[placeState:]); isWhole &&
			(!hasOne || id >= newest.id) {
			hasOne = true
			newest = fileState{id, binary.NativeEndian.Uint64(state[placePages:]),
				binary.NativeEndian.Uint64(state[placeFreePages:]) == noFreePages}
		}
	}

	return newest, hasOne, nil
}

// lacksFreePages reports whether the newest state of a file has no list of free pages. Only Close
// writes the list.
func lacksFreePages(path string) (bool, error) {
	newest, hasOne, err := readNewestState(path)

	return !hasOne || newest.lacksFreePages, err
}

// walkPages visits each page that a state refers to. It panics or returns an error if one is
// damaged.
func walkPages(tx *bolt.Tx) error {
	return tx.ForEach(func(_ []byte, b *bolt.Bucket) error { return walkBucket(b) })
}

func walkBucket(b *bolt.Bucket) error {
	var before []byte

	return b.ForEach(func(key, value []byte) error {
		if before != nil && string(before) >= string(key) {
			return fmt.Errorf("%w: keys in a wrong order", errDamaged)
		}

		before = key
		if value != nil {
			return nil
		}

		inner := b.Bucket(key)
		if inner == nil {
			return fmt.Errorf("%w: a bucket without pages", errDamaged)
		}

		return walkBucket(inner)
	})
}
