package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The environment decides whether this test binary runs the tests, the program under test, or the
// program's handler.
func TestMain(m *testing.M) {
	if port := os.Getenv("FUNCTIONS_CUSTOMHANDLER_PORT"); port != "" {
		err := http.ListenAndServe("127.0.0.1:"+port, http.NotFoundHandler())
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	if os.Getenv("FUNCHOST_TEST_MAIN") != "" {
		main()
	}

	goleak.VerifyTestMain(m)
}

func writeScriptRoot(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	root := t.TempDir()
	files := map[string]string{
		"host.json": `{"version":"2.0","customHandler":{"description":{"defaultExecutablePath":"` +
			self +
			`"},"enableForwardingHttpRequest":true}}`,
		"fn/function.json": `{"bindings":[{"type":"httpTrigger","name":"req"},{"type":"http","direction":"out",` +
			`"name":"res"}]}`,
	}
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	return root
}

// startFunchost starts the program and waits until its handler is ready. It returns the program's
// process and the handler's pid.
func startFunchost(t *testing.T) (cmd *exec.Cmd, handler int) {
	t.Helper()
	cmd = exec.Command(os.Args[0], "--script-root", writeScriptRoot(t), "--port", "0")
	cmd.Env = append(os.Environ(), "FUNCHOST_TEST_MAIN=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	url, lines := "", bufio.NewScanner(out)
	address := regexp.MustCompile(`fn: (http://127\.0\.0\.1:\d+)/api/fn`)
	for lines.Scan() {
		if m := address.FindStringSubmatch(lines.Text()); m != nil {
			url = m[1]
		}
		if strings.Contains(lines.Text(), "Worker process started and initialized.") {
			return cmd, readHandlerPID(t, url)
		}
	}

	t.Fatalf("the program ended (%v), want the line of a started handler", lines.Err())

	return nil, 0
}

func readHandlerPID(t *testing.T, url string) int {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get(url + "/admin/host/status")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var status struct{ Instances []struct{ PID int } }
	if err := json.NewDecoder(res.Body).Decode(&status); err != nil || len(status.Instances) != 1 ||
		status.Instances[0].PID == 0 {
		t.Fatalf("status %+v: %v, want 1 Instance, PID more than 0 and no error", status, err)
	}

	return status.Instances[0].PID
}

// awaitGone waits until a process has ended. A zombie counts as ended, because only its parent can
// remove it.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	tick, limit := time.NewTicker(10*time.Millisecond), time.After(10*time.Minute)
	defer tick.Stop()

	for {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}

		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("process %d runs, want it ended", pid)
		}
	}
}

func TestMain_StopsOnSignals(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			cmd, handler := startFunchost(t)
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}

			if err := cmd.Wait(); err != nil {
				t.Errorf("exited with %v; want 0", err)
			}

			awaitGone(t, handler)
		})
	}
}

func TestMain_KilledTakesTheHandlerAlong(t *testing.T) {
	t.Parallel()
	cmd, handler := startFunchost(t)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, handler)
}

func TestRun_ExitCodes(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = taken.Close() }) // runs after the parallel subtests have ended
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	for name, c := range map[string]struct {
		args []string
		code int
		text string
	}{
		"TakenPort": {[]string{"--script-root", writeScriptRoot(t), "--port", port},
			1, "port " + port + " is unavailable"},
		"NoScriptRoot":   {[]string{"--script-root", t.TempDir(), "--port", "0"}, 1, "host.json"},
		"WrongInstances": {[]string{"--instances", "http"}, 2, "http=2,process=1"},
		"GroupsTwice":    {[]string{"--instances", "http=1", "--group", "q"}, 2, "--group"},
		"WrongFlag":      {[]string{"--nonsense"}, 2, "nonsense"},
		"Help":           {[]string{"--help"}, 0, "script-root"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr strings.Builder
			code := runHost(context.Background(), c.args, func(string) string { return "" },
				&stdout, &stderr)
			if code != c.code || !strings.Contains(stderr.String(), c.text) {
				t.Errorf("exit code %d, %q; want %d and %q", code, &stderr, c.code, c.text)
			}
		})
	}
}
