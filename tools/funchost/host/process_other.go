//go:build !linux

package host

import "os/exec"

// dieWithParent does nothing on systems other than Linux.
func dieWithParent(*exec.Cmd) {}
