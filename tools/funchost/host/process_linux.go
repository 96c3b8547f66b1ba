package host

import (
	"os/exec"
	"syscall"
)

// dieWithParent lets the kernel kill the handler when this process dies, however it dies. The
// process group stays shared, as it is with the real host: Ctrl-C reaches the handler too.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
