package app

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

func TestSeverityHandler(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	level := &slog.LevelVar{}
	log := slog.New(newSeverityHandler(&stdout, &stderr, level)).With("lane", 3)
	log.Debug("never")
	log.Info("read")
	log.Warn("heed")
	log.WithGroup("g").Error("fix", "err", "broken")

	if got := stdout.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "read") ||
		!strings.Contains(got, "heed") {
		t.Errorf("stdout: got %s, want the lines of info and warning alone", got)
	}

	if got := stderr.String(); strings.Count(got, "\n") != 1 ||
		!strings.Contains(got, `"level":"ERROR","msg":"fix","lane":3,"g":{"err":"broken"}`) {
		t.Errorf("stderr: got %s, want the line of the error", got)
	}

	level.Set(slog.LevelError)
	log.Warn("no longer")
	if strings.Contains(stdout.String(), "no longer") {
		t.Errorf("got a warning at level error, want none")
	}
}
