package embedded

import (
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"
)

func TestExplainOpen(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"this process cannot write there":     fmt.Errorf("mkdir /data: %w", fs.ErrPermission),
		"(open /data: read-only file system)": fmt.Errorf("open /data: %w", syscall.EROFS),
		"the disk is full":                    fmt.Errorf("write /data: %w", syscall.ENOSPC),
		"restore a back-up":                   errDamaged,
		"unknown":                             fmt.Errorf("unknown"),
	} {
		if got := explainOpen(err).Error(); !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
}
