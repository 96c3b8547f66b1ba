package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"weir/functions/sweep"
	"weir/internal/lane"
	"weir/internal/poll"
	"weir/internal/relane"
)

// shellFor makes a shell with an environment of its own.
func shellFor(env func(string) string) (s *shell, stdout, stderr *bytes.Buffer) {
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	return &shell{env: env, stdout: stdout, stderr: stderr, started: time.Now()}, stdout, stderr
}

func TestShell_ExitCodes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		args []string
		code int
		says string
	}{
		"Help":          {minimal, []string{"help"}, exitDone, ""},
		"Version":       {minimal, []string{"version"}, exitDone, ""},
		"WaitsForWhat":  {minimal, []string{"status", "--wait", "10m", "AQAB"}, exitUsage, "--wait=10m"},
		"SendsWhat":     {minimal, []string{"send", "--wait", "10m", "a.xml"}, exitUsage, "--wait=10m"},
		"Unknown":       {minimal, []string{"sweep"}, exitUsage, `unknown command "sweep"`},
		"Flag":          {minimal, []string{"poll", "--idle"}, exitUsage, "needs an argument"},
		"Combination":   {minimal, []string{"poll", "--period", "20s"}, exitUsage, "longer than delivery.timeout"},
		"LanesZero":     {minimal, []string{"lanes", "0"}, exitUsage, "must be 1 to 1024"},
		"LanesText":     {minimal, []string{"lanes", "many"}, exitUsage, "is not a number"},
		"LanesNegative": {minimal, []string{"lanes", "-1"}, exitUsage, "give N or --undo"},
		"LanesBoth":     {minimal, []string{"lanes", "2", "--undo"}, exitUsage, "not both"},
		"WrongSettings": {"lanes: 0\n" + minimal, []string{"drain"}, exitFailed, "lanes is 0"},
		"Serve":         {"lanes: 0\n" + minimal, nil, exitFailed, `"level":"ERROR","msg":"handler: wrong setting","err":"lanes is 0`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, stdout, stderr := shellFor(env(t, c.text))
			if code := s.run(t.Context(), append([]string{}, c.args...)); code != c.code || !strings.Contains(stderr.String(), c.says) || (c.says == "" && stderr.Len() > 0) {
				t.Errorf("exit code %d, want %d; stdout %q, stderr %q", code, c.code, stdout, stderr)
			}
			if c.code == exitUsage && stdout.Len() > 0 {
				t.Errorf("stdout %q", stdout)
			}
		})
	}
}

// TestShell_JSON: what is told of the program and of what is wrong can be read by programs.
func TestShell_JSON(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		code int
		want []string
	}{
		"Version": {[]string{"version", "--json"}, exitDone, []string{`"version":`, `"commit":`, `"go":"go1.`}},
		"Check":   {[]string{"check", "--json"}, exitFailed, []string{`{"name":"settings","ok":false,"wrong":["lanes is 0`, `"name":"cms","ok":`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, stdout, stderr := shellFor(env(t, "lanes: 0\n"+minimal))
			if code := s.run(t.Context(), c.args); code != c.code || stderr.Len() > 0 {
				t.Errorf("exit code %d, stderr %q", code, stderr)
			}
			for _, want := range c.want {
				if !strings.Contains(stdout.String(), want) {
					t.Errorf("%s is not in:\n%s", want, stdout)
				}
			}
			for line := range strings.Lines(stdout.String()) {
				if !json.Valid([]byte(line)) {
					t.Errorf("no JSON: %s", line)
				}
			}
		})
	}
}

func TestPollFlags_WinOverTheFile(t *testing.T) {
	t.Parallel()
	s, err := loadSettings(env(t, minimal+"poll: { period: 2m, idle: 3s }\n"))
	if err != nil {
		t.Fatal(err)
	}
	f := pollFlags{period: 5 * time.Minute, idle: time.Second, estimate: time.Second, tolerance: 2}
	got := f.config(s, func(name string) bool { return name == "period" || name == "tolerance" })
	want := poll.Config{Period: 5 * time.Minute, Idle: 3 * time.Second, Estimate: 2 * time.Second, Tolerance: 2, Timeout: 30 * time.Second}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestLookHourly(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 1, 8, 12, 0, 0, 0, time.UTC)
	for period, want := range map[time.Duration]int{time.Minute: 4, 10 * time.Second: 4, 2 * time.Hour: 2} {
		looks := 0
		for at := noon.Add(2 * time.Second); at.Before(noon.Add(4 * time.Hour)); at = at.Add(period) {
			c := &sweep.Cleaner{}
			if lookHourly(c, at, period); !c.ForgottenAt.After(at) {
				looks++
			} else if c.ForgottenAt.Sub(at) > time.Hour {
				t.Errorf("%s: looks next at %s", at, c.ForgottenAt)
			}
		}
		if looks != want {
			t.Errorf("period %s: looked %d times in 4 hours, want %d", period, looks, want)
		}
	}
}

func TestVersionOf(t *testing.T) {
	t.Parallel()
	info := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "2026-01-08T12:00:00Z"}, {Key: "vcs.modified", Value: "true"}}}
	if got := versionOf(info); got != (build{"v1.2.3", "abc of 2026-01-08T12:00:00Z, changed since"}) {
		t.Errorf("%+v", got)
	}
	if got := versionOf(&debug.BuildInfo{}); got != (build{"unknown", "unknown"}) {
		t.Errorf("%+v", got)
	}
}

func TestRouteAndConnect(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	through, target, err := route("http://" + listener.Addr().String() + "/content/{key}?id={id}")
	if err != nil || through.Host != listener.Addr().String() {
		t.Fatalf("%v %v %v", through, target, err)
	}
	if err := connect(t.Context(), through, target); err != nil {
		t.Error(err)
	}
	listener.Close()
	if err := connect(t.Context(), through, target); err == nil {
		t.Error("nobody listens there")
	}
}

func TestFinding_Print(t *testing.T) {
	t.Parallel()
	s, stdout, _ := shellFor(nil)
	ok, two := finding{name: "table", detail: "2 lanes"}, finding{name: "settings", wrong: errors.Join(errors.New("a"), errors.New("b")), todo: "do c"}
	ok.print(s)
	two.print(s)
	if got := stdout.String(); got != "table     ok  2 lanes\nsettings  wrong: a; do c\nsettings  wrong: b; do c\n" {
		t.Errorf("%q", got)
	}
}

// TestExitCode_Restart: the host counts each end but 200, and gives up after the third.
func TestExitCode_Restart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error // of serving
		want int
	}{
		"LanesWereChanged":  {errors.Join(fmt.Errorf("%w from 2 to 5", relane.ErrChanged), nil), 200},
		"TheTableIsGone":    {fmt.Errorf("%w: gone", lane.ErrBegunAnew), 200},
		"TheHostStays":      {errors.Join(errHostStays, nil), 200},
		"TheHostIsGone":     {errHostGone, 1},
		"WrongFromTheStart": {fmt.Errorf("%w: storage has lanes: 2", lane.ErrLanes), 1},
		"Broken":            {errors.New("use of closed network connection"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			err := endOf(c.err, slog.New(slog.NewTextHandler(&out, nil)))
			if got := exitCode(failed(err, true)); got != c.want || !strings.Contains(out.String(), "handler: stopped") {
				t.Errorf("got %d and %q, want %d", got, out.String(), c.want)
			}
		})
	}
	if err := endOf(nil, slog.New(slog.DiscardHandler)); err != nil {
		t.Errorf("got %v, want nothing of an orderly end", err)
	}
}
