// Command testprogress reads the events of go test -json from its standard input. It prints:
//
//   - a line for each package that has ended, and for each skipped test
//   - the output of each failed test
//   - at an interval, the running tests, and for how long each has run
//   - at the end, the numbers of tests
//
// Without testprogress, go test prints nothing for the ten minutes that the longest package takes.
//
// The exit code is 1 if a package failed or did not end, or if the input has no package or cannot be read. It is 2 for
// wrong flags.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	interval := flag.Duration("interval", 20*time.Second, "time between two lines about the running tests")
	flag.Parse()
	if *interval <= 0 {
		fmt.Fprintf(os.Stderr, "testprogress: -interval is %v, want more than 0\n", *interval)
		os.Exit(2)
	}
	ticker := time.NewTicker(*interval)
	defer ticker.Stop()
	p := newProgress(os.Stdout, time.Now)
	if err := p.follow(os.Stdin, ticker.C); err != nil {
		fmt.Fprintln(os.Stderr, "testprogress:", err)
		os.Exit(1)
	}
}
