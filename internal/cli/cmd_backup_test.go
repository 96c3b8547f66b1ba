package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/storage"
	"weir/internal/storage/embedded"
	"weir/internal/storage/folder"
)

// runOnFolder runs a command that needs no settings, and returns its code and its output.
func runOnFolder(t *testing.T, args ...string) (code int, output string) {
	t.Helper()
	s, stdout, stderr := newTestConsole(func(string) string { return "" })
	code = s.runCommand(t.Context(), args)

	return code, stdout.String() + stderr.String()
}

// storeRow makes a store with one row in a folder, and closes it.
func storeRow(t *testing.T, dir string) {
	t.Helper()
	store, err := embedded.Open(dir, embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}

	_, err = store.Table().Transact(t.Context(), "1.0",
		[]storage.Op{{Kind: storage.Insert, Key: "k"}})
	if err != nil {
		t.Fatal(err)
	}

	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestBackup(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "weir") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	data, file, restored := filepath.Join(dir, "a"), filepath.Join(dir, "file"),
		filepath.Join(dir, "b")
	storeRow(t, data)

	if code, out := runOnFolder(t, "backup", "--data", data, file); code != exitOK ||
		!strings.Contains(out, file+": ") {
		t.Fatalf("backup: got %d, %s, want 0 and the size", code, out)
	}

	server, err := folder.Own(data, embedded.Options{Program: "weir serve"})
	if err != nil {
		t.Fatal(err)
	}

	if code, out := runOnFolder(t, "backup", "--data", data, file+"2"); code != exitOK {
		t.Errorf("backup beside a server: got %d, %s, want 0", code, out)
	}

	if err := server.Close(); err != nil {
		t.Fatal(err)
	}

	if code, out := runOnFolder(t, "restore", "--data", restored, file+"2"); code != exitOK {
		t.Fatalf("restore: got %d, %s, want 0", code, out)
	}

	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no folder": {[]string{"backup", file + "3"}, exitUsage,
			"name the folder: --data DIR, or WEIR_DATA"},
		"no store": {[]string{"backup", "--data", dir, file + "3"}, exitFailed,
			"there is no store in the folder"},
		"no target": {[]string{"backup", "--data", data, filepath.Join(dir, "away", "file")},
			exitFailed, "away does not exist: make it, or name another file"},
		"target in a file": {[]string{"backup", "--data", data, filepath.Join(file, "x")},
			exitFailed, "is a file, and no folder"},
		"target is no name": {[]string{"backup", "--data", data,
			filepath.Join(dir, strings.Repeat("x", 300))}, exitFailed, "weir: write " + dir},
		"key alone": {[]string{"key"}, exitUsage,
			"`weir key new` prints a key, and its hash for weir.yaml"},
		"file exists": {[]string{"backup", "--data", data, file}, exitFailed,
			"a back-up replaces no file"},
		"restore over": {[]string{"restore", "--data", data, file}, exitFailed,
			"has a store already"},
		"restore no file": {[]string{"restore", "--data", filepath.Join(dir, "c"), file + "3"},
			exitFailed, "no such file"},
		"restore no folder": {[]string{"restore", file}, exitUsage, "name the folder"},
	} {
		code, out := runOnFolder(t, c.args...)
		if code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%s: got %d, %s, want %d and %q", name, code, out, c.code, c.want)
		}
	}

	left, err := filepath.Glob(filepath.Join(dir, "*.tmp"))
	if err != nil || len(left) > 0 {
		t.Errorf("got the files %q, %v, want none left over", left, err)
	}

	store, err := embedded.Open(restored, embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}

	if _, err := store.Table().Get(t.Context(), "1.0", "k"); err != nil {
		t.Errorf("got %v of the restored row, want no error", err)
	}

	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
}
