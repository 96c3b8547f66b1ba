//go:build !linux

package host

import "os/exec"

// dieWithParent does nothing: a death signal exists on Linux only.
func dieWithParent(*exec.Cmd) {}
