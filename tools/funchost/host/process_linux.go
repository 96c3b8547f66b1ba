package host

import (
	"os/exec"
	"syscall"
)

// dieWithParent lets the kernel kill the handler when this process ends for any reason. Both stay in one process group,
// as with the real host, so Ctrl-C reaches the handler, too.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
