package embedded_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/storage/embedded"
)

// A file that is cut off anywhere is refused, also if its first pages are whole. A fault of the
// memory, which would end the process with a trace, never happens. The process before has closed
// the store, or was killed: then the file has no list of free pages.
func TestOpen_FileThatIsCutOff(t *testing.T) {
	t.Parallel()
	for name, isClosed := range map[string]bool{"Closed": true, "Killed": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s, err := embedded.Open(dir, embedded.Options{Program: "test"})
			must(t, err)
			for i := range 20 {
				must(t, s.Bodies().Put(t.Context(), fmt.Sprint("body", i), make([]byte, 30_000)))
			}

			path := filepath.Join(dir, "weir.db")
			whole, err := os.ReadFile(path)
			must(t, err)
			must(t, s.Close())

			if isClosed {
				whole, err = os.ReadFile(path)
				must(t, err)
			}

			wantRefused(t, whole, 100)
		})
	}
}

// wantRefused opens a file that is cut off at many places.
func wantRefused(t *testing.T, whole []byte, places int) {
	t.Helper()
	open := func(size int) error {
		cut := t.TempDir()
		must(t, os.WriteFile(filepath.Join(cut, "weir.db"), whole[:size], 0o600))
		s, err := embedded.Open(cut, embedded.Options{Program: "test"})
		if err == nil {
			must(t, s.Close())
		}
		return err
	}
	if err := open(len(whole)); err != nil {
		t.Fatalf("got %v for the whole file, want no error", err)
	}

	// the file grows in larger steps than its content
	content := len(bytes.TrimRight(whole, "\x00"))
	for i := range places {
		size := content * i / places
		if i%2 == 1 {
			size -= size % 4096 // at the beginning of a page
		}

		err := open(size)
		if err == nil || !strings.Contains(err.Error(), "restore a back-up") ||
			strings.Contains(err.Error(), "nil pointer") {
			t.Errorf("got %v for %d bytes of %d, want the remedy, and no error of Go", err, size,
				len(whole))
		}
	}
}

// The name of the damaged file in the error is that of the back-up.
func TestRestore_NoBackup(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "letter.txt")
	if err := os.WriteFile(file, []byte("Dear reader"), 0o600); err != nil {
		t.Fatal(err)
	}

	err := embedded.Restore(t.TempDir(), file)
	if err == nil || !strings.Contains(err.Error(), "letter.txt") ||
		!strings.Contains(err.Error(), "the back-up is no store") ||
		strings.Contains(err.Error(), "weir.db") {
		t.Errorf("got %v, want that letter.txt is no back-up", err)
	}
}

func TestOpen_InPlaceOfAFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "letter.txt")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	for _, dir := range []string{file, filepath.Join(file, "below")} {
		_, err := embedded.Open(dir, embedded.Options{})
		if err == nil || !strings.Contains(err.Error(), "must be a folder") {
			t.Errorf("%s: got %v, want that it must be a folder", dir, err)
		}
	}
}
