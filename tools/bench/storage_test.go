package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"weir/internal/testkit/azurite"
)

// Each scenario has an Azurite of its own, which ends with the scenario, also after a failure. With
// a delay the proxies stand before this Azurite.
func TestRunPass_OwnStorageForEachScenario(t *testing.T) {
	t.Parallel()
	app := t.TempDir()
	if err := os.WriteFile(filepath.Join(app, "host.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}

	b, stop, err := newBench(app, t.TempDir(), tiny, io.Discard)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})

	errBroken := errors.New("broken")
	var used []*azurite.Process
	run := func(_ context.Context, b *bench) ([]result, error) {
		used = append(used, b.storage)
		if b.measuredStorage() == b.storage.ConnectionString() ||
			b.yardstickStorage() == b.storage.ConnectionString() {
			t.Error("got storage without a proxy, want a proxy that delays the answers")
		}
		return nil, errBroken
	}

	err = b.runPass(t.Context(), time.Millisecond,
		[]scenario{{name: "a", run: run}, {name: "b", run: run}})
	if !errors.Is(err, errBroken) || len(used) != 2 || used[0].PID() == used[1].PID() {
		t.Fatalf("got %d Azurites, %v, want two different ones and the scenarios' error", len(used),
			err)
	}

	for _, p := range used {
		select {
		case <-p.Done():
		default:
			t.Errorf("process %d runs, want it ended with its scenario", p.PID())
		}
	}

	if b.storage != nil || b.farStorage != nil || b.delay != 0 {
		t.Errorf("got storage %v, proxy %v, delay %s after the pass, want none", b.storage,
			b.farStorage, b.delay)
	}
}
