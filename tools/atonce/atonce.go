// Package atonce sets how many tests of a test binary run in parallel. Without it there are as many
// as processors. Tests that wait for other processes most of the time leave the processors idle,
// unless more of them run.
package atonce

import (
	"flag"
	"fmt"
	"strconv"
)

// SetTests lets n tests run in parallel, unless the flag -parallel was given. A TestMain must call
// it before it runs the tests. SetTests parses the command line.
func SetTests(n int) error {
	flag.Parse()
	isGiven := false
	flag.Visit(func(f *flag.Flag) { isGiven = isGiven || f.Name == "test.parallel" })
	if isGiven {
		return nil
	}

	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		return fmt.Errorf("set the number of parallel tests: %w", err)
	}

	return nil
}
