package hostwatch

import "io/fs"

// Steps returns the two functions that a watch repeats: look checks that the watched sockets are open, and find
// searches for sockets.
func Steps(proc fs.FS, host int) (look, find func()) {
	w := &Watch{Proc: proc, Host: host}
	found, _, err := w.findSockets()
	if err != nil || len(found) == 0 {
		panic("no socket found")
	}
	return func() { w.areOpen(found) }, func() { _, _, _ = w.findSockets() }
}
