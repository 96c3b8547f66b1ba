package azurite

import (
	"os/exec"
	"syscall"
)

// endWithParent lets the kernel stop the child when this process dies, however it dies.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
}
