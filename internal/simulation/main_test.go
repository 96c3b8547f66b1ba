package simulation_test

import (
	"os"
	"runtime"
	"testing"
)

// TestMain runs on one processor: the order of goroutines that are ready at one nanosecond
// is then the same each time, as far as anything depends on it.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	os.Exit(m.Run())
}
