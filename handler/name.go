package main

import (
	"fmt"
	"os"
)

// processName tells this process from others, for people: the instance of the platform, or
// the machine, and the process's number there.
func (p *Program) processName() string {
	name := p.instance
	if name == "" {
		name, _ = os.Hostname() // without a name the number has to do
	}
	return fmt.Sprintf("%.40s-%d", name, os.Getpid())
}
