//go:build !linux

package main

import (
	"os"
	"syscall"
)

// childAttributes: without Linux there is no signal at the parent's death, and children outlive a kill of this program.
func childAttributes() *syscall.SysProcAttr { return nil }

func killGroup(p *os.Process) { p.Kill() }
