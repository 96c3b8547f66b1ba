//go:build !linux

package main

import (
	"os"
	"syscall"
)

// childAttributes returns nil. Only on Linux does a child get a signal when its parent dies. Elsewhere children outlive
// a kill of this program.
func childAttributes() *syscall.SysProcAttr { return nil }

func killGroup(p *os.Process) { p.Kill() }
