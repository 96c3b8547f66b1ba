// Command testprogress reads the events of go test -json from its standard input. It prints a line for each package
// that ends, the output of each test that fails, and, while nothing ends, which tests run and since when. Without it,
// go test prints nothing for the ten minutes that the longest package takes.
//
// It exits with 1 if a package failed, if the input has no package, or if a package began and did not end.
package main

import (
	"fmt"
	"os"
	"time"
)

// reportInterval is the time between two lines about the running tests.
const reportInterval = 20 * time.Second

func main() {
	ticker := time.NewTicker(reportInterval)
	defer ticker.Stop()
	p := newProgress(os.Stdout, time.Now)
	if err := p.follow(os.Stdin, ticker.C); err != nil {
		fmt.Fprintln(os.Stderr, "testprogress:", err)
		os.Exit(1)
	}
}
