package embedded_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// The variable names the folder in which a copy of the test program works until it is killed.
const childVariable = "WEIR_STORE_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childVariable); dir != "" {
		runWriters(dir)
		os.Exit(1) // the writers end only by an error
	}
	goleak.VerifyTestMain(m)
}
