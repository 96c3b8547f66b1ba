package hostwatch

import "io/fs"

// Steps returns the check of the watched sockets, and the search for them, as a watch repeats them.
func Steps(proc fs.FS, host int) (look, find func()) {
	w := &Watch{Proc: proc, Host: host}
	found, _, err := w.findSockets()
	if err != nil || len(found) == 0 {
		panic("no socket found")
	}
	return func() { w.areOpen(found) }, func() { _, _, _ = w.findSockets() }
}
