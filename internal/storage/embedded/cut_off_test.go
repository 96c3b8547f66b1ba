package embedded_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/storage/embedded"
)

// A file that is cut off anywhere is refused or opens, with an error in place of a fault of the
// memory, which would end the process with a trace.
func TestOpen_FileThatIsCutOff(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := embedded.Open(dir, embedded.Options{Program: "test"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(dir, "weir.db"))
	if err != nil {
		t.Fatal(err)
	}

	refused := 0
	for size := 0; size < min(len(whole), 64<<10); size += 2048 {
		cut := t.TempDir()
		if err := os.WriteFile(filepath.Join(cut, "weir.db"), whole[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := embedded.Open(cut, embedded.Options{Program: "test"})
		if err == nil {
			_ = s.Close() // an error, because pages are missing
			continue
		}
		refused++
		if !strings.Contains(err.Error(), "restore a back-up") || strings.Contains(err.Error(), "nil pointer") {
			t.Errorf("got %q for a file of %d bytes, want the remedy, and no error of Go", err, size)
		}
	}
	if refused == 0 {
		t.Error("got no error for a file without its first pages")
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
		!strings.Contains(err.Error(), "the back-up is no store") || strings.Contains(err.Error(), "weir.db") {
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
