package azurite

import (
	"os/exec"
	"syscall"
)

// endWithParent makes the kernel send SIGTERM to the child when this process ends, even by SIGKILL.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
}
