package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// measuredPrefix begins the line that runMeasured prints.
const measuredPrefix = "testprogress: cpu "

// runMeasured runs a test binary, as go test -exec asks for it, and prints its processor time after
// its output. It returns the exit code of the binary. The signals that end a run reach the binary,
// too, because it is in the same process group: this process outlives them, and waits for it.
func runMeasured(command []string, out io.Writer) int {
	if len(command) == 0 {
		fmt.Fprintln(os.Stderr, "testprogress: -measure wants a test binary and its flags")
		return 2
	}

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT)
	defer signal.Stop(signals)

	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, out, os.Stderr
	err := cmd.Run()
	if cmd.ProcessState != nil {
		fmt.Fprintf(out, "%s%.1fs\n", measuredPrefix, readCPU(cmd.ProcessState).Seconds())
	}

	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return max(1, exit.ExitCode()) // below 0 after a signal
	}

	fmt.Fprintln(os.Stderr, "testprogress:", err)

	return 2
}

// readCPU returns the processor time of a process that has ended, and of the children for which it
// has waited. A command that did not end has none.
func readCPU(state *os.ProcessState) time.Duration {
	if state == nil {
		return 0
	}
	return state.UserTime() + state.SystemTime()
}
