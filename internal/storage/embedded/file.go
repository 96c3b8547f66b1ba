package embedded

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"os"
	"path/filepath"
	"runtime"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// format is the version of the layout in this package. A store with a greater number is refused.
const format = 1

// pageSize is the size of a page of the file. It is not the size of the machine's pages, so that a
// file can be moved to a machine with other ones.
const pageSize = 4096

// Names of the buckets.
const (
	aboutBucket    = "about"
	tableBucket    = "table"
	ticketsBucket  = "tickets"
	poisonBucket   = "tickets-poison"
	eventsBucket   = "inbox-events"
	bodiesBucket   = "bodies"
	inboxBucket    = "inbox"
	acceptedBucket = "accepted"
	rejectedBucket = "rejected"
)

var (
	queueBuckets     = []string{ticketsBucket, poisonBucket, eventsBucket}
	containerBuckets = []string{bodiesBucket, inboxBucket, acceptedBucket, rejectedBucket}
	// In a container's bucket: the entries by name, the content, and the uploads under way.
	entriesBucket, chunksBucket, uploadsBucket = []byte("entries"), []byte("chunks"),
		[]byte("uploads")
)

var aboutKey = []byte("about")

// about describes the store as a whole. Its fields stay as they are in every later format, so that
// a program can refuse a later one.
type about struct {
	Format    int       `json:"format"`
	CreatedAt time.Time `json:"createdAt"`
}

// mappedBytes is the size of the address space for the file. bbolt waits for all readers before it
// enlarges it, and a back-up is a long reader. On Windows the file itself would have this size.
func mappedBytes() int {
	if runtime.GOOS == "windows" || bits.UintSize < 64 {
		return 0
	}

	return 64 << 30
}

func fileOptions(noSync bool) *bolt.Options {
	return &bolt.Options{
		Timeout: time.Second, NoSync: noSync, NoGrowSync: noSync, PageSize: pageSize,
		NoStatistics: true,
		// The list of free pages grows with the file, and each commit would write it. So it is
		// written by Close alone; after a crash, Open finds the free pages by a walk.
		NoFreelistSync: true, FreelistType: bolt.FreelistMapType, InitialMmapSize: mappedBytes(),
	}
}

// createData makes an empty file if there is none. The file gets its name when it is whole, because
// a file that is cut off would not open.
func createData(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}

	unfinished := path + ".new"
	if err := os.Remove(unfinished); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}

	db, err := bolt.Open(unfinished, 0o600, &bolt.Options{PageSize: pageSize, Timeout: time.Second})
	if err != nil {
		return err
	}

	if err := db.Close(); err != nil {
		return err
	}

	if err := os.Rename(unfinished, path); err != nil {
		return err
	}

	return syncFolder(filepath.Dir(path))
}

// openFile opens a file of bbolt. A file that is damaged beyond use is an error.
func openFile(path string, noSync bool) (db *bolt.DB, err error) {
	if err := checkSize(path, noSync); err != nil {
		return nil, err
	}

	if err := walkIfNeeded(path); err != nil {
		return nil, err
	}

	// A read after the end of a file that was cut off is a fault of the memory.
	err = guardFaults(func() (err error) {
		db, err = bolt.Open(path, 0o600, fileOptions(noSync))
		return err
	})

	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return nil, fmt.Errorf("another program has %s open", path)
	case err != nil:
		return nil, err
	}

	return db, nil
}

// checkSize returns an error if a file is smaller than its newest state says. The file of a store
// without syncs can be smaller, because bbolt does not make it grow before it writes.
func checkSize(path string, noSync bool) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}

	want := int64(2 * pageSize)
	if newest, hasOne, err := readNewestState(path); err != nil {
		return err
	} else if hasOne && !noSync && newest.pages < math.MaxInt64/pageSize {
		want = max(want, int64(newest.pages)*pageSize)
	}

	if info.Size() < want {
		return fmt.Errorf("%w: the file has %d bytes, and its content needs %d: it was cut off",
			errDamaged, info.Size(), want)
	}

	return nil
}

// closeFile closes the file. Before, it writes the list of free pages, so that the next Open need
// not walk over the file.
func closeFile(db *bolt.DB) error {
	return guardFaults(func() error {
		db.NoFreelistSync = false
		flushed := db.Update(func(*bolt.Tx) error { return nil })

		return errors.Join(flushed, db.Close())
	})
}

// prepare refuses a store of a later format, makes the buckets of a new one, and clears the
// remains of the process that had the store before.
func prepare(tx *bolt.Tx, now time.Time) error {
	if err := checkFormat(tx, now); err != nil {
		return err
	}

	if _, err := tx.CreateBucketIfNotExists([]byte(tableBucket)); err != nil {
		return err
	}

	for _, name := range queueBuckets {
		b, err := tx.CreateBucketIfNotExists([]byte(name))
		if err == nil {
			err = showAbandoned(b, now)
		}

		if err != nil {
			return err
		}
	}

	for _, name := range containerBuckets {
		if err := prepareContainer(tx, name); err != nil {
			return err
		}
	}

	return nil
}

func checkFormat(tx *bolt.Tx, now time.Time) error {
	b, err := tx.CreateBucketIfNotExists([]byte(aboutBucket))
	if err != nil {
		return err
	}

	text := b.Get(aboutKey)
	if text == nil {
		text, err = json.Marshal(about{Format: format, CreatedAt: now.UTC()})
		if err != nil {
			return err
		}
		return b.Put(aboutKey, text)
	}

	var a about
	if err := json.Unmarshal(text, &a); err != nil {
		return fmt.Errorf("read the format of the store: %w", err)
	}

	if a.Format > format {
		return fmt.Errorf("a newer version of Weir has written this store (format %d); this version "+
			"reads formats up to %d: run the newer version, or take another folder",
			a.Format, format)
	}

	return nil
}
