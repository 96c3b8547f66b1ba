package simulation_test

import (
	"os"
	"runtime"
	"runtime/debug"
	"testing"
)

// TestMain runs the tests on one processor. If several goroutines become ready at one nanosecond, their order is then
// mostly the same in each run.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(400) // a world is small and short-lived
	os.Exit(m.Run())
}
