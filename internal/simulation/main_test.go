package simulation_test

import (
	"os"
	"runtime"
	"runtime/debug"
	"testing"
)

// TestMain runs the tests on one processor, so that repeated runs of a seed are mostly the same: if
// several goroutines become ready in the same nanosecond of virtual time, one processor mostly runs
// them in the same order.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(400) // a simulated run needs little memory, and only for a short time
	code := m.Run()
	if hasSharedBuild {
		os.RemoveAll(sharedBuild().dir)
	}

	os.Exit(code)
}
