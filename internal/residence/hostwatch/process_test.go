//go:build linux

package hostwatch_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"weir/internal/residence/hostwatch"
)

// roleVariable is the environment variable that gives a process of the test binary its role. A test
// starts the binary as a host. The host starts the binary again as its handler.
const roleVariable = "HOSTWATCH_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "host":
		playHost()
	case "handler":
		playHandler()
	default:
		goleak.VerifyTestMain(m)
	}
}

// playHost starts a handler, and listens on one socket. Then it carries out the orders that it
// reads from stdin, one per line.
func playHost() {
	handler := exec.Command("/proc/self/exe")
	handler.Env = append(os.Environ(), roleVariable+"=handler")
	handler.Stdout = os.Stdout
	if err := handler.Start(); err != nil {
		panic(err)
	}

	first, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}

	lines := bufio.NewScanner(os.Stdin)
	var second net.Listener
	for lines.Scan() {
		switch lines.Text() {
		case "listen":
			if second, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
				panic(err)
			}

		case "close one":
			first.Close()
		case "close":
			second.Close()
		case "end":
			os.Exit(0)
		}

		fmt.Println("done:", lines.Text())
	}

	_ = handler.Process.Kill()
	_ = handler.Wait()
}

// playHandler watches its parent, the host, and prints the events until the host is gone.
func playHandler() {
	w := hostwatch.Watch{Proc: os.DirFS("/proc"), Host: os.Getppid(), Parent: os.Getppid,
		Found: func(n int) { fmt.Println("found:", n) }}
	event, err := w.Stop(context.Background())
	fmt.Println("saw:", event, err)
	if event == hostwatch.Stops {
		fmt.Println("saw the end:", w.End(context.Background()))
	}
}

// testHost is a host in a process of its own.
type testHost struct {
	stdin io.Writer
	lines *bufio.Scanner
	found string // the last "found:" line that was read
}

func startHost(t *testing.T) *testHost {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), roleVariable+"=host")
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}

	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}

	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	out.Close()
	_ = in.SetReadDeadline(time.Now().Add(time.Minute)) // so that a failing test does not hang
	t.Cleanup(func() {
		stdin.Close()
		_, _ = io.Copy(io.Discard, in) // returns when the host and the handler have ended
		in.Close()
		_ = cmd.Wait()
	})

	return &testHost{stdin: stdin, lines: bufio.NewScanner(in)}
}

// sendOrder sends an order to the host. It waits until the order is done, except if the order is
// "end".
func (h *testHost) sendOrder(t *testing.T, order string) {
	t.Helper()
	if _, err := fmt.Fprintln(h.stdin, order); err != nil {
		t.Fatal(err)
	}

	if order != "end" {
		h.awaitLine(t, "done: "+order)
	}
}

// awaitLine reads the output until the line "want". The "found:" lines of the handler can come
// between the other lines at any time. So awaitLine skips these lines, and remembers the last one.
// If the remembered line is "want", awaitLine returns at once.
func (h *testHost) awaitLine(t *testing.T, want string) {
	t.Helper()
	for h.found != want && h.lines.Scan() && h.lines.Text() != want &&
		strings.HasPrefix(h.lines.Text(), "found:") {
		h.found = h.lines.Text()
	}

	if h.found == want {
		return
	}

	if h.lines.Text() != want {
		t.Fatalf("the host or its handler said %q (%v), want %q", h.lines.Text(),
			h.lines.Err(), want)
	}
}

func TestWatch_OfARealHost(t *testing.T) {
	t.Parallel()
	t.Run("Stops", func(t *testing.T) {
		t.Parallel()
		h := startHost(t)
		h.sendOrder(t, "listen")
		h.awaitLine(t, "found: 2")
		h.sendOrder(t, "close one")
		h.sendOrder(t, "close")
		h.awaitLine(t, "saw: stops <nil>")
		h.sendOrder(t, "end")
		h.awaitLine(t, "saw the end: <nil>")
	})

	t.Run("IsGone", func(t *testing.T) {
		t.Parallel()
		h := startHost(t)
		h.sendOrder(t, "listen")
		h.awaitLine(t, "found: 2")
		h.sendOrder(t, "end")

		if h.lines.Scan(); h.lines.Text() != "saw: gone <nil>" &&
			h.lines.Text() != "saw: stops <nil>" {
			t.Errorf("the handler said %q, want saw: gone or saw: stops", h.lines.Text())
		}
	})
}

func TestCheck_OfThisProcess(t *testing.T) {
	t.Parallel()
	if err := hostwatch.Check(os.DirFS("/proc"), os.Getpid()); err != nil {
		t.Error(err)
	}
}

func BenchmarkWatch(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	look, find := hostwatch.Steps(os.DirFS("/proc"), os.Getpid())
	b.Run("look", func(b *testing.B) {
		for b.Loop() {
			look()
		}
	})

	b.Run("find", func(b *testing.B) {
		for b.Loop() {
			find()
		}
	})
}
