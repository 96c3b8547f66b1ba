//go:build !linux

package azurite

import "os/exec"

// endWithParent has no effect on systems other than Linux. If this process is killed, the emulator
// keeps running.
func endWithParent(*exec.Cmd) {}
