package embedded

import (
	"os"
	"path/filepath"
)

// Exists reports whether a folder has a store. If it cannot find out, the store counts as there, so
// that Open returns the error.
func Exists(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, dataName))

	return !os.IsNotExist(err)
}
