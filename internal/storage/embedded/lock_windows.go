package embedded

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// tryLock locks a file, or returns errLocked. It locks a byte far beyond the end, because Windows
// lets no other process read locked bytes, and the owner is read from the file.
func tryLock(file *os.File) error {
	at := &windows.Overlapped{OffsetHigh: 1}
	err := windows.LockFileEx(windows.Handle(file.Fd()),
		windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return errLocked
	}

	return err
}

// syncFolder does nothing: Windows keeps names durable by its journal, and syncs no folder.
func syncFolder(string) error { return nil }
