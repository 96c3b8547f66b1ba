package main

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
)

// runHere runs a shell command as runMeasured runs a test binary, in a process of its own. It
// returns the output and the exit code.
func runHere(t *testing.T, script string) (output string, code int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestRunMeasured$")
	cmd.Env = append(os.Environ(), "MEASURED="+script)
	text, _ := cmd.Output() // the exit code is a result

	return string(text), cmd.ProcessState.ExitCode()
}

func TestRunMeasured(t *testing.T) {
	if script := os.Getenv("MEASURED"); script != "" {
		os.Exit(runMeasured([]string{"sh", "-c", script}, os.Stdout))
	}
	t.Parallel()

	const loop = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; "
	for name, c := range map[string]struct {
		script, output string
		code           int
		leastCPU       float64 // seconds
	}{
		"passes":              {"echo one", "one\n", 0, 0},
		"fails":               {"echo one; exit 3", "one\n", 3, 0},
		"is killed":           {"kill -9 $$", "", 1, 0},
		"ends after a signal": {"kill -QUIT $PPID; echo one; exit 2", "one\n", 2, 0},
		"computes":            {loop, "", 0, 0.1},
		"its child computes":  {"sh -c '" + loop + "'; true", "", 0, 0.1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			output, code := runHere(t, c.script)
			found := regexp.MustCompile(`^((?s:.*))testprogress: cpu ([0-9.]+)s\n$`).
				FindStringSubmatch(output)
			if found == nil || found[1] != c.output || code != c.code {
				t.Fatalf("got %q and code %d, want %q, a processor time and code %d", output, code,
					c.output, c.code)
			}

			if cpu, err := strconv.ParseFloat(found[2], 64); err != nil || cpu < c.leastCPU {
				t.Errorf("got %s s, %v, want at least %v s", found[2], err, c.leastCPU)
			}
		})
	}
}

func TestRunMeasured_WantsACommand(t *testing.T) {
	t.Parallel()
	if code := runMeasured(nil, nil); code != 2 {
		t.Errorf("got code %d, want 2", code)
	}
}
