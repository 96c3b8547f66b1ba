//go:build !linux

package embedded

// prefetch does nothing: the system reads ahead as it does for each file.
func prefetch(string) {}
