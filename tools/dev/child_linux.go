package main

import (
	"os"
	"syscall"
)

// childAttributes puts a child into a group of its own, because Ctrl-C in the terminal must reach this program alone,
// which stops the children in order. A child ends with this program, also if this program is killed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}

func killGroup(p *os.Process) { syscall.Kill(-p.Pid, syscall.SIGKILL) }
