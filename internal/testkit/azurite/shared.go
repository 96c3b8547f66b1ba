package azurite

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// Env names an account to test against instead of a process of our own.
const Env = "WEIR_TEST_AZURITE"

var shared struct {
	once    sync.Once
	process *Process
	err     error
}

// Shared gives the connection string of the one Azurite of this test binary, started in
// memory when first asked for. Tests keep apart by names of their own in it. Where
// Azurite cannot run the test fails: a skipped test proves nothing. The binary's
// TestMain must be Main.
func Shared(t testing.TB) string {
	t.Helper()
	if s := os.Getenv(Env); s != "" {
		return s
	}
	shared.once.Do(func() { shared.process, shared.err = Start(t.Context(), Options{}) })
	if shared.err != nil {
		t.Fatalf("these tests need Azurite: %v", shared.err)
	}
	return shared.process.ConnectionString()
}

// Main is a TestMain: it runs the tests, stops what Shared started, looks for leaked
// goroutines and exits.
func Main(m *testing.M) { goleak.VerifyTestMain(run{m}) }

type run struct{ m *testing.M }

func (r run) Run() int {
	code := r.m.Run()
	if shared.process == nil {
		return code
	}
	if err := shared.process.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}
