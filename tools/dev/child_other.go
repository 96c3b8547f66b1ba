//go:build !linux

package main

import (
	"os"
	"syscall"
)

// childAttributes returns nil, because only Linux can signal a child when its parent dies. On other
// systems a child keeps running if this program is killed.
func childAttributes() *syscall.SysProcAttr { return nil }

func killGroup(p *os.Process) { p.Kill() }
