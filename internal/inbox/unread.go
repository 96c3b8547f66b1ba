package inbox

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"weir/internal/storage"
	"weir/internal/weir"
)

// maxUnreadRuns is the number of runs that one file can end because storage does not return its content. From then on
// the file is the cause and not storage, and each run goes on with the other files.
const maxUnreadRuns = 5

// maxUnreadFiles bounds the memory for such files. A full memory is cleared.
const maxUnreadFiles = 10_000

// unreadFiles counts the runs that files have ended. It is safe for concurrent use.
type unreadFiles struct {
	mu   sync.Mutex
	runs map[string]int // by keyOf
}

// countRun counts a run for a file that was not read, and returns the number of these runs. If ctx has ended, the read
// was cut off, and countRun returns 0.
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

// checkEncoding returns the reason to reject a file that is stored in another coding than the one that Weir reads; nil =
// there is none.
func checkEncoding(f storage.File) error {
	coding := strings.ToLower(strings.TrimSpace(f.ContentEncoding))
	if coding == "" || coding == "identity" {
		return nil
	}
	return &weir.Error{Kind: weir.Unsupported, Op: "inbox", Message: fmt.Sprintf(
		"the file has the Content-Encoding %q: upload it uncompressed, and without this property", f.ContentEncoding)}
}
