package azurite

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// Env is the environment variable with the connection string of the account for tests. If the
// variable is empty, Shared starts Azurite.
const Env = "WEIR_TEST_AZURITE"

var sharedProcess struct {
	once    sync.Once
	process *Process
	err     error
}

// Shared returns the connection string in Env. If Env is empty, Shared returns the connection
// string of an Azurite in memory, which the first call starts. All tests of the binary use the same
// account, so each test must use names of its own. The binary's TestMain must call Main.
//
// If Azurite cannot run, the test fails. It is not skipped, because a skipped test would prove
// nothing.
func Shared(t testing.TB) string {
	t.Helper()
	if s := os.Getenv(Env); s != "" {
		return s
	}

	sharedProcess.once.Do(func() {
		sharedProcess.process,
			sharedProcess.err = Start(t.Context(), Options{})
	})

	if sharedProcess.err != nil {
		t.Fatalf("these tests need Azurite: %v", sharedProcess.err)
	}

	return sharedProcess.process.ConnectionString()
}

// Main is the body of a TestMain. It runs the tests, stops the Azurite that Shared started, fails
// if a goroutine leaked, and exits.
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
