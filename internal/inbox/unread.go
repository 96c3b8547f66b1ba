package inbox

import (
	"context"
	"sync"

	"weir/internal/storage"
)

// maxUnreadRuns is the number of runs that one file can end because storage does not return its
// content. After so many runs Weir takes the file for the cause, and not storage, and each run goes
// on with the other files.
const maxUnreadRuns = 5

// maxUnreadFiles bounds the memory for such files. A full memory is cleared.
const maxUnreadFiles = 10_000

// unreadFiles counts the runs that files have ended. It is safe for concurrent use.
type unreadFiles struct {
	mu   sync.Mutex
	runs map[string]int // by keyOf
}

// countRun counts a run for a file that was not read, and returns the number of these runs. If ctx
// has ended, the read was cut off, and countRun returns 0.
func (u *unreadFiles) countRun(ctx context.Context, f storage.File) int {
	if ctx.Err() != nil {
		return 0
	}

	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.runs) >= maxUnreadFiles {
		clear(u.runs)
	}

	u.runs[keyOf(f)]++

	return u.runs[keyOf(f)]
}
