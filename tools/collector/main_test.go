package collector_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(unhurried{m}) }

// unhurried waits for the goroutines that send what was left when a test closed its export. goleak
// alone gives them two seconds, which is too short on a busy machine.
type unhurried struct{ tests *testing.M }

// Run implements goleak.TestingM.
func (u unhurried) Run() (exitCode int) {
	exitCode = u.tests.Run()
	for range 60 {
		if goleak.Find() == nil {
			break
		}
	}

	return exitCode
}
