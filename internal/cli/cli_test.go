package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/app"
	"weir/internal/diagnosis"
	"weir/internal/poll"
)

func newTestConsole(env func(string) string) (s *console, stdout, stderr *bytes.Buffer) {
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	return &console{env: env, stdout: stdout, stderr: stderr, startedAt: time.Now()}, stdout, stderr
}

func TestConsole_ExitCodes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settings string // weir.yaml
		args     []string
		code     int
		says     string // part of stderr; "" = stderr is empty
	}{
		"Help":    {minimal, []string{"help"}, exitOK, ""},
		"Version": {minimal, []string{"version"}, exitOK, ""},
		"StatusWaitSpace": {minimal, []string{"status", "--wait", "10m", "AQAB"}, exitUsage,
			"--wait=10m"},
		"SendWaitSpace": {minimal, []string{"send", "--wait", "10m", "a.xml"}, exitUsage,
			"--wait=10m"},
		"Unknown":     {minimal, []string{"sweep"}, exitUsage, `unknown command "sweep"`},
		"FlagNoValue": {minimal, []string{"poll", "--idle"}, exitUsage, "needs an argument"},
		"PeriodTooShort": {minimal, []string{"poll", "--period", "20s"}, exitUsage,
			"longer than delivery.timeout"},
		"LanesZero": {minimal, []string{"lanes", "0"}, exitUsage, "must be 1 to 1024"},
		"LanesText": {minimal, []string{"lanes", "many"}, exitUsage, "is not a number"},
		"LanesNegative": {minimal, []string{"lanes", "-1"}, exitUsage,
			"give N, --fold or --undo"},
		"LanesBoth": {minimal, []string{"lanes", "2", "--undo"}, exitUsage, "not both"},
		"LanesFold": {minimal, []string{"lanes", "--fold", "case,width"}, exitUsage,
			`"width" is not one of case, accents, nfc, nor none`},
		"LanesFoldAndUndo": {minimal, []string{"lanes", "--fold", "none", "--undo"}, exitUsage,
			"not both"},
		"WrongSettings": {"lanes: 0\n" + minimal, []string{"drain"}, exitFailed,
			"weir.yaml: [1:8] lanes is 0"},
		"NoHost": {minimal, nil, exitUsage, "Available Commands:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, stdout, stderr := newTestConsole(newEnvironment(t, c.settings))
			if code := s.runCommand(t.Context(), append([]string{}, c.args...)); code != c.code ||
				!strings.Contains(stderr.String(), c.says) || (c.says == "" && stderr.Len() > 0) {
				t.Errorf("got exit code %d, stdout %q and stderr %q, want %d and stderr with %q",
					code, stdout, stderr, c.code, c.says)
			}

			if c.code == exitUsage && stdout.Len() > 0 {
				t.Errorf("got stdout %q, want none for wrong usage", stdout)
			}
		})
	}
}

// With --json the commands "version" and "check" print lines of JSON.
func TestConsole_JSON(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		code int
		want []string
	}{
		"Version": {[]string{"version", "--json"}, exitOK,
			[]string{`"version":`, `"commit":`, `"go":"go1.`}},
		"Check": {[]string{"check", "--json"}, exitFailed,
			[]string{`{"name":"settings","ok":false,"wrong":["weir.yaml: [1:8] lanes ` +
				`is 0`, `"name":"cms","ok":`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, stdout, stderr := newTestConsole(newEnvironment(t, "lanes: 0\n"+minimal))
			if code := s.runCommand(t.Context(), c.args); code != c.code || stderr.Len() > 0 {
				t.Errorf("got exit code %d and stderr %q, want %d and none", code, stderr, c.code)
			}

			for _, want := range c.want {
				if !strings.Contains(stdout.String(), want) {
					t.Errorf("got stdout\n%s\nwant %s in it", stdout, want)
				}
			}

			for line := range strings.Lines(stdout.String()) {
				if !json.Valid([]byte(line)) {
					t.Errorf("got the line %s, want JSON", line)
				}
			}
		})
	}
}

func TestPollFlags_TakePrecedenceOverTheFile(t *testing.T) {
	t.Parallel()
	a, err := app.New(newEnvironment(t, minimal+"poll: { period: 2m, idle: 3s }\n"),
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}

	f := pollFlags{period: 5 * time.Minute, idle: time.Second, estimate: time.Second, tolerance: 2}
	got := f.overrideConfig(a.PollConfig(),
		func(name string) bool { return name == "period" || name == "tolerance" })
	want := poll.Config{Period: 5 * time.Minute, Idle: 3 * time.Second, Estimate: 2 * time.Second,
		Tolerance: 2, Timeout: 30 * time.Second}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestPrintFinding(t *testing.T) {
	t.Parallel()
	s, stdout, _ := newTestConsole(nil)
	s.printFinding(diagnosis.Finding{Name: "table", Detail: "2 lanes"})
	s.printFinding(diagnosis.Finding{Name: "settings",
		Wrong: errors.Join(errors.New("a"), errors.New("b")), Todo: "do c"})

	if got := stdout.String(); got !=
		"table     ok  2 lanes\nsettings  wrong: a; do c\nsettings  wrong: b; do c\n" {
		t.Errorf("got %q, want a line for each problem", got)
	}
}

// If the process ends with the exit code exitRestart, a Functions host starts it again and counts
// no failure. The host counts other error codes as failures, and does not start the process again
// after the third failure.
func TestExitCode_Restart(t *testing.T) {
	t.Parallel()
	if got := exitCode(asFailure(&app.RestartError{Err: errors.New("the host stays")}, true)); got != exitRestart {
		t.Errorf("got exit code %d of a restart, want %d", got, exitRestart)
	}

	if got := exitCode(asFailure(errors.New("the host is gone"), true)); got != exitFailed {
		t.Errorf("got exit code %d of a failure, want %d", got, exitFailed)
	}
}

// minimal is the text of a valid weir.yaml.
const minimal = `
delivery: { url: "http://127.0.0.1:7072/api/content" }
contracts:
  - { name: article, root: article, key: ./@path }
`

// Without a command, and with a host's port in the environment, the process serves the host. In
// this test the process ends at once, because the setting "lanes: 0" is wrong.
func TestConsole_ServesAHost(t *testing.T) {
	t.Parallel()
	s, stdout, stderr := newTestConsole(newEnvironment(t, "lanes: 0\n"+minimal,
		"FUNCTIONS_CUSTOMHANDLER_PORT", "40001", "WEIR_PREFIX", "news"))
	want := `"level":"ERROR","msg":"handler: wrong setting","err":"weir.yaml: [1:8] lanes is 0`
	if code := s.runCommand(t.Context(), []string{}); code != exitFailed ||
		!strings.Contains(stderr.String(), want) {
		t.Errorf("got exit code %d, stdout %q and stderr %q, want %d and stderr with %s", code,
			stdout, stderr, exitFailed,
			want)
	}
}

// newEnvironment writes a weir.yaml with this text, and returns an environment that leads to the
// file. The parameter "more" has further variables of the environment: a name, its value, the next
// name, its value, and so on.
func newEnvironment(t *testing.T, text string, more ...string) func(string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "weir.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	values := map[string]string{"AzureWebJobsStorage": "UseDevelopmentStorage=true",
		"FUNCTIONS_APP_ROOT_PATH": dir}
	for i := 0; i < len(more); i += 2 {
		values[more[i]] = more[i+1]
	}

	return func(name string) string { return values[name] }
}
