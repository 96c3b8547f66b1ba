//go:build unix

package embedded

import (
	"errors"
	"syscall"
)

// A limit on the size of files has the same effect as a full disk.
func isOverQuota(err error) bool {
	return errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

func isReadOnly(err error) bool { return errors.Is(err, syscall.EROFS) }
