package hostwatch

import "io/fs"

// Steps returns two functions that a watch calls repeatedly. The function look checks that the
// watched sockets are open. The function find searches for sockets.
func Steps(proc fs.FS, host int) (look, find func()) {
	w := &Watch{Proc: proc, Host: host}
	found, _, err := w.findSockets()
	if err != nil || len(found) == 0 {
		panic("no socket found")
	}
	return func() { w.areOpen(found) }, func() { _, _, _ = w.findSockets() }
}
