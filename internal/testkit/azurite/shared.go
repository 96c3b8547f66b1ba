package azurite

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// Env is the environment variable with the connection string of an account. If it is set, tests use that account. If it
// is empty, they start a process of their own.
const Env = "WEIR_TEST_AZURITE"

var sharedProcess struct {
	once    sync.Once
	process *Process
	err     error
}

// Shared returns the connection string in Env, or else that of the one Azurite of this test binary. The first call
// starts this Azurite, in memory. All tests share the account, so each test uses names of its own. If Azurite cannot
// run, the test fails: a skipped test would prove no promise. The binary's TestMain must call Main.
func Shared(t testing.TB) string {
	t.Helper()
	if s := os.Getenv(Env); s != "" {
		return s
	}
	sharedProcess.once.Do(func() { sharedProcess.process, sharedProcess.err = Start(t.Context(), Options{}) })
	if sharedProcess.err != nil {
		t.Fatalf("these tests need Azurite: %v", sharedProcess.err)
	}
	return sharedProcess.process.ConnectionString()
}

// Main is the body of a TestMain: it runs the tests, stops the emulator of Shared, looks for leaked
// goroutines and exits.
func Main(m *testing.M) { goleak.VerifyTestMain(leakCheckedRun{m}) }

type leakCheckedRun struct{ m *testing.M }

func (r leakCheckedRun) Run() int {
	code := r.m.Run()
	if sharedProcess.process == nil {
		return code
	}
	if err := sharedProcess.process.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}
