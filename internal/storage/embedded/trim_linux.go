package embedded

import (
	"time"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// trimInterval is the least time between two trims.
const trimInterval = 5 * time.Second

// trimmer returns a function that gives the process's share of the mapped file back to the system,
// at most once in trimInterval. The pages stay in the system's cache. Without it, each page that
// the process ever touched would count as its memory.
func trimmer(db *bolt.DB) func() {
	last := time.Now()

	return func() {
		if time.Since(last) >= trimInterval {
			last = time.Now()
			trim(db)
		}
	}
}

func trim(db *bolt.DB) {
	// A read transaction keeps the mapping where it is. If the system refuses, nothing is lost.
	_ = db.View(func(tx *bolt.Tx) error {
		_, _, errno := unix.Syscall(unix.SYS_MADVISE, db.Info().Data, uintptr(tx.Size()),
			unix.MADV_DONTNEED)
		if errno != 0 {
			return errno
		}
		return nil
	})
}
