package hostwatch

import "io/fs"

// Steps returns what a watch does at each look, and at each search.
func Steps(proc fs.FS, host int) (look, find func()) {
	w := &Watch{Proc: proc, Host: host}
	front, err := w.find()
	if err != nil || len(front) == 0 {
		panic("no socket found")
	}
	return func() { w.areOpen(front) }, func() { _, _ = w.find() }
}
