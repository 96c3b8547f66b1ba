//go:build !linux

package embedded

import bolt "go.etcd.io/bbolt"

// trimmer returns a function that does nothing: only on Linux do the pages of a mapped file count
// as memory of the process for long.
func trimmer(*bolt.DB) func() { return func() {} }
