package main

import (
	"os"
	"syscall"
)

// childAttributes puts a child into its own process group. So Ctrl-C in the terminal reaches only
// this program, which stops its children gracefully. The kernel stops a child if this program is
// killed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}

func killGroup(p *os.Process) { syscall.Kill(-p.Pid, syscall.SIGKILL) }
