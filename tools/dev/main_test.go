package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A second system in one folder would damage the first system's data and truncate the first system's log.
func TestRunSystem_RefusesASecondInOneFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("build", 0o755); err != nil {
		t.Fatal(err)
	}
	logPath := filepath.Join("build", "run.log")
	if err := os.WriteFile(logPath, []byte("the first system's log\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	first, err := lockFolder()
	if err != nil {
		t.Fatalf("got %v for the first system, want the lock", err)
	}
	err = runSystem(t.Context(), devOptions{port: 1, cmsPort: 2, storagePort: 3})
	if err == nil || !strings.Contains(err.Error(), "the system of this folder is running already") {
		t.Errorf("got %v for the second system, want that one is running already", err)
	}
	if text, err := os.ReadFile(logPath); err != nil || string(text) != "the first system's log\n" {
		t.Errorf("got %q, %v as the log, want it unchanged", text, err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	third, err := lockFolder()
	if err != nil {
		t.Fatalf("got %v after the first system ended, want the lock", err)
	}
	third.Close()
}

func TestDescribeDemo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "In another terminal: make demo. "},
		{[]string{"--port", "7081", "--cms-port", "7082"}, "In another terminal: make demo PORT=7081 CMS_PORT=7082. "},
		{[]string{"--storage-port", "11000"}, "In another terminal: make demo. "},
		{[]string{"--cms", "https://cms.example/api"}, ""},
	} {
		o, err := parseFlags(c.args)
		if err != nil {
			t.Fatalf("%v: got %v, want no error", c.args, err)
		}
		if got := o.describeDemo(); got != c.want {
			t.Errorf("%v: got %q, want %q", c.args, got, c.want)
		}
	}
}
