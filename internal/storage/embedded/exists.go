package embedded

import (
	"errors"
	"os"
	"path/filepath"
)

// ErrNoStore means that a command found no store in the folder. Only a server makes one, so that a
// wrong name of a folder is not taken for an empty store.
var ErrNoStore = errors.New("there is no store in the folder; weir serve --data makes it")

// Exists reports whether a folder has a store. If it cannot find out, the store counts as there, so
// that Open returns the error.
func Exists(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, dataName))

	return !os.IsNotExist(err)
}
