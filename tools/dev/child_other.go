//go:build !linux

package main

import (
	"os"
	"syscall"
)

// childAttributes returns nil. Only Linux has a signal at the death of the parent; elsewhere children outlive a kill of
// this program.
func childAttributes() *syscall.SysProcAttr { return nil }

func killGroup(p *os.Process) { p.Kill() }
