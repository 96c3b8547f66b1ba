//go:build !linux

package azurite

import "os/exec"

// endWithParent has no effect: other systems have no death signal, so a killed parent
// leaves the emulator running.
func endWithParent(*exec.Cmd) {}
