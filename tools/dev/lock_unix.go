//go:build unix

package main

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// openLocked opens and locks a file. The lock ends when the file is closed or this process ends.
// Children do not inherit the lock. If another process has the lock, the error is errLocked.
func openLocked(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}

	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, &os.PathError{Op: "lock", Path: path, Err: err}
	}

	return f, nil
}
