package simulation_test

import (
	"os"
	"runtime"
	"runtime/debug"
	"testing"
)

// TestMain runs on one processor: the order of goroutines that are ready at one nanosecond
// is then the same each time, as far as anything depends on it.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(400) // a world is small, and soon gone
	os.Exit(m.Run())
}
