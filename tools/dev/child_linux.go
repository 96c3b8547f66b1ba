package main

import (
	"os"
	"syscall"
)

// childAttributes puts a child into a process group of its own. Ctrl-C in the terminal then reaches only this program,
// which stops the children in order. A child ends with this program, even if this program is killed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}

func killGroup(p *os.Process) { syscall.Kill(-p.Pid, syscall.SIGKILL) }
