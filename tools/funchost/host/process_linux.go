package host

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel kill the handler when this process ends for any reason. The
// handler stays in the process group of the host, as with the real host, so Ctrl-C also reaches the
// handler.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
