package embedded

import (
	"os"

	"golang.org/x/sys/unix"
)

// prefetchStep is the number of bytes of one call. The system reads no more than its read-ahead for a
// call, and this is the usual one.
const prefetchStep = 128 << 10

// prefetch asks the system to read a file in the order of its bytes. bbolt walks over the file in
// the order of its keys, and the system would read each page by itself: many times slower than in
// order if the file is not in the cache. An error only means that the walk takes longer.
func prefetch(path string) {
	file, err := os.Open(path)
	if err != nil {
		return
	}
	defer file.Close()

	info, err := file.Stat()
	if err != nil {
		return
	}

	for at := int64(0); at < info.Size(); at += prefetchStep {
		if unix.Fadvise(int(file.Fd()), at, prefetchStep, unix.FADV_WILLNEED) != nil {
			return
		}
	}
}
