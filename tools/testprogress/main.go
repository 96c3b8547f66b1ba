// Command testprogress runs commands go test -json at the same time, and prints:
//
//   - a line for each package that has ended, with its processor time if go test has the flag
//     -exec 'testprogress -measure', and for each skipped test
//   - the output of each failed test
//   - at an interval, the running tests, for how long each has run, and what is left
//   - after each command its numbers of tests, its time and its processor time, and at the end the
//     numbers over all commands
//
// Tests that watch other processes wait much of the time. The tests of another command use the
// processors meanwhile.
//
// Usage:
//
//	testprogress [flags] -- go test -json … packages [-- go test -C tools -json … packages] …
//
// Without testprogress, go test prints nothing for the ten minutes that the longest package takes,
// and ends a run that is only slow. testprogress ends a run when no test makes progress: then it
// has the goroutines dumped into a file.
//
// The exit code is 1 if a package failed or did not end, or if a command has no package. It is 2
// for wrong flags, and 130 after an interrupt.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	o := options{killAfter: 10 * time.Second, commandOut: os.Stderr}
	flag.DurationVar(&o.interval, "interval", 20*time.Second,
		"time between two lines about the running tests")
	flag.DurationVar(&o.stall, "stall", 5*time.Minute,
		"end the run when a test runs and nothing happens for this time")
	flag.DurationVar(&o.buildStall, "build-stall", 30*time.Minute,
		"end the run when no test runs and nothing happens for this time: a build makes no events")
	flag.BoolVar(&o.verbose, "v", false, "print the output of each test")
	flag.StringVar(&o.dumps, "dumps", filepath.Join("build", "test-goroutines.txt"),
		"file for dumps of goroutines")
	isMeasuring := flag.Bool("measure", false,
		"run a test binary, and print its processor time: for the flag -exec of go test")
	flag.Parse()

	if *isMeasuring {
		os.Exit(runMeasured(flag.Args(), os.Stdout))
	}

	commands := splitCommands(flag.Args())
	if o.interval <= 0 || o.stall <= 0 || o.buildStall <= 0 || len(commands) == 0 {
		fmt.Fprintln(os.Stderr, "testprogress: want durations above 0, and a command after --")
		os.Exit(2)
	}

	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	os.Exit(runAll(newProgress(os.Stdout, time.Now, o), commands, signals))
}

// runAll runs the commands at the same time, and returns the exit code of this program.
func runAll(p *progress, commands [][]string, signals <-chan os.Signal) int {
	for _, args := range commands {
		if err := p.startCommand(args); err != nil {
			p.reportError(err)
		}
	}

	ticks := time.NewTicker(p.interval)
	defer ticks.Stop()
	checks := time.NewTicker(min(checkInterval, p.stall/4))
	defer checks.Stop()
	p.follow(events{ticks.C, checks.C, signals})

	fmt.Fprintf(p.out, "total %s\n", p.counts)

	switch {
	case p.isInterrupted:
		return 130
	case p.hasFailed:
		return 1
	}

	return 0
}

// splitCommands splits the arguments at each "--". It leaves out empty commands.
func splitCommands(args []string) (commands [][]string) {
	var command []string
	for _, arg := range append(args, "--") {
		switch {
		case arg != "--":
			command = append(command, arg)
		case len(command) > 0:
			commands = append(commands, command)
			command = nil
		}
	}

	return commands
}
