// Command testprogress reads the events of go test -json from its standard input. It prints a line for each package
// that ends and for each test that is skipped, and the output of each test that fails. At an interval it prints which
// tests run and for how long, and at the end the numbers of tests. Without testprogress, go test prints nothing for the
// ten minutes that the longest package takes.
//
// It exits with 1 if a package failed, if the input has no package or cannot be read, or if a package began and did not
// end. It exits with 2 for wrong flags.
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
