// Command testprogress reads the events of go test -json from its standard input. It prints a line for each package
// that ends, the output of each test that fails, and, while nothing ends, which tests run and since when. Without it,
// go test prints nothing for the ten minutes that the longest package takes.
//
// It exits with 1 if a package failed, if the input has no package, or if a package began and did not end.
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
