//go:build !linux

package host

import "os/exec"

// dieWithParent has no effect: only Linux has a death signal.
func dieWithParent(*exec.Cmd) {}
