package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/storage/azure"
	"weir/internal/weir"
)

type commandResult struct {
	code           int
	stdout, stderr string
}

// runHandler runs a command of the handler with the weir.yaml in the folder app, and waits for the
// end of the command. If ctx ends first, the command gets SIGTERM.
func (s *system) runHandler(ctx context.Context, app string, env []string,
	args ...string) commandResult {
	s.t.Helper()
	cmd := exec.CommandContext(ctx, filepath.Join(built, "handler"), args...)
	cmd.Env = append(append(os.Environ(), s.handlerEnv()...),
		append([]string{"WEIR_CONFIG=" + filepath.Join(app, "weir.yaml")}, env...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && ctx.Err() == nil {
		s.t.Errorf("handler %s: %v", strings.Join(args, " "), err)
	}

	return commandResult{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// openAppender returns an appender and the storage account that the appender uses. With the
// appender, a test can append messages without a host.
func (s *system) openAppender(lanes int) (*lane.Appender, *azure.Account) {
	s.t.Helper()
	account, err := azure.Open(azure.Config{ConnectionString: s.storage.ConnectionString(),
		Prefix: "weir"})
	if err != nil {
		s.t.Fatal(err)
	}

	s.t.Cleanup(account.Close)
	store := &lane.Store{Table: account.Table(), Bodies: account.Bodies(), Lanes: lanes,
		Now: time.Now}
	if err := errors.Join(account.Ensure(s.t.Context()), store.Open(s.t.Context())); err != nil {
		s.t.Fatal(err)
	}

	return lane.NewAppender(store, slog.New(slog.NewTextHandler(io.Discard, nil))), account
}

// appendMessage appends version n+1 of the article at path. If Weir reports Unavailable,
// appendMessage tries again for up to a minute, or longer on a busy machine (see slowdown).
func (s *system) appendMessage(a *lane.Appender, path string, n int) weir.Message {
	s.t.Helper()
	body := fmt.Sprintf(`<article path="%s" version="%d"><title>T</title></article>`, path, n+1)
	for limit := time.Now().Add(slowdown * time.Minute); ; {
		r, err := a.Append(s.t.Context(),
			weir.Message{Contract: "article", Key: path, ContentType: "application/xml",
				Body: []byte(body)}, "")
		if weir.KindOf(err) == weir.Unavailable && time.Now().Before(limit) {
			continue
		}

		if err != nil {
			s.t.Errorf("append version %d of %s: %v", n+1, path, err)
		}

		return r.Message
	}
}

// checkOutput checks the exit code, and matches both outputs with regular expressions. If an
// expression is "", that output must be empty.
func (e commandResult) checkOutput(t *testing.T, code int, stdout, stderr string) {
	t.Helper()
	for name, part := range map[string]struct{ got, want string }{"stdout": {e.stdout, stdout},
		"stderr": {e.stderr, stderr}} {
		if ok, err := regexp.MatchString(part.want, part.got); err != nil || !ok ||
			(part.want == "" && part.got != "") {
			t.Errorf("%s is %q, want %q %v", name, part.got, part.want, err)
		}
	}

	if e.code != code {
		t.Errorf("exit code %d, want %d; %+v", e.code, code, e)
	}
}

func TestCommand_Usage(t *testing.T) {
	runUnder := func(env []string, args ...string) commandResult {
		cmd := exec.CommandContext(t.Context(), filepath.Join(built, "handler"), args...)
		cmd.Env = env
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); cmd.ProcessState == nil {
			t.Fatalf("start: %v", err)
		}

		return commandResult{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	}

	for name, c := range map[string]struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		"Help": {[]string{"--help"}, 0,
			`(?s)Exit codes.*check .*drain .*poll .*version `, ""},
		"HelpCommand": {[]string{"help", "poll"}, 0,
			`(?s)--period duration.*default 1m0s.*--tolerance`, ""},
		"Version": {[]string{"version"}, 0,
			`^weir \S+\ncommit \S+.*\ngo1\.\S+ linux/\w+\n$`, ""},
		"UnknownCommand": {[]string{"pol"}, 2, "", `unknown command "pol"(?s).*--help`},
		"UnknownFlag":    {[]string{"poll", "--perod", "1m"}, 2, "", `unknown flag: --perod`},
		"BadDuration": {[]string{"poll", "--period", "minute"}, 2, "",
			`invalid argument "minute"`},
		"Argument":      {[]string{"drain", "3"}, 2, "", `unknown command "3"`},
		"FlagOfAnother": {[]string{"version", "--idle", "1s"}, 2, "", `unknown flag: --idle`},
		"NoCommand": {nil, 2, "",
			`(?s)Available Commands:.*no Functions host has started this process`},
		"NoSettings": {[]string{"poll"}, 1, "",
			`weir: AzureWebJobsStorage is not set.*\nweir: weir.yaml cannot be read`},
	} {
		t.Run(name, func(t *testing.T) { runUnder([]string{}, c.args...).checkOutput(t, c.code, c.stdout, c.stderr) })
	}

	t.Run("ServingLogsErrorsToStderr", func(t *testing.T) {
		got := runUnder([]string{"FUNCTIONS_CUSTOMHANDLER_PORT=40001"})
		got.checkOutput(t, 1, "", `"msg":"handler: wrong setting"`)

		for line := range strings.Lines(got.stderr) {
			if !json.Valid([]byte(line)) {
				t.Errorf("got the line %q, want JSON", line)
			}
		}
	})
}

func TestCommand_PollFlags(t *testing.T) {
	s := newBareSystem(t)
	app := s.stageApp("timeout: 30s", "timeout: 1s", "retention: 7d ",
		"poll: { period: 6s, idle: 500ms, estimate: 200ms, tolerance: 2 }\nretention: 7d ")

	for name, c := range map[string]struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		"FlagsWin": {[]string{"--idle", "1h", "--estimate", "1s"}, 0,
			`^poll: 1 runs, 0 messages, average 1s \(estimate\), idle \d+ %, ([4-9]|\d\d+)(\.\d)?s\n$`, ""},
		"ShorterThanOne": {[]string{"--period", "1s"}, 2, "",
			`period \(1s\) must be longer than delivery.timeout \(1s\)`},
		"EstimateTooLarge": {[]string{"--estimate", "4s"}, 2, "", `estimate × tolerance \(8s\)`},
		"Tolerance":        {[]string{"--tolerance", "0"}, 2, "", `tolerance is 0`},
	} {
		t.Run(name, func(t *testing.T) {
			s.runHandler(t.Context(), app, nil, append([]string{"poll"}, c.args...)...).checkOutput(
				t, c.code, c.stdout, c.stderr)
		})
	}

	t.Run("FromTheFile", func(t *testing.T) {
		// On a busy machine a period may have time for one run only. Then the test starts another
		// process.
		twoRuns := regexp.MustCompile(`^poll: ([2-9]|\d\d+) runs, `)
		got := s.runHandler(t.Context(), app, nil, "poll")
		for more := 0; !twoRuns.MatchString(got.stdout) && more < 20; more++ {
			got = s.runHandler(t.Context(), app, nil, "poll")
		}

		got.checkOutput(t, 0, `^poll: ([2-9]|\d\d+) runs, 0 messages, average 200ms \(estimate\), idle \d+ %,`+
			` ([5-9]|\d\d+)(\.\d)?s\n$`, "")
	})

	t.Run("StorageAway", func(t *testing.T) {
		away := "AzureWebJobsStorage=" +
			strings.ReplaceAll(s.storage.ConnectionString(), "127.0.0.1:", "127.0.0.1:1")
		s.runHandler(t.Context(), app, []string{away}, "poll").checkOutput(t, 1, "",
			`storage could not be opened`)
	})

	t.Run("ToldToEnd", func(t *testing.T) {
		appender, _ := s.openAppender(1)
		s.appendMessage(appender, "/told", 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan commandResult, 1)
		go func() { ended <- s.runHandler(ctx, app, nil, "poll", "--period", "1h") }()
		s.awaitCondition("the process delivers", time.Minute,
			func() bool { return s.readStats().Writes == 1 })
		cancel()
		end := <-ended
		end.checkOutput(t, 0, `^poll: \d+ runs`, "")
	})

	t.Run("JSON", func(t *testing.T) {
		s.runHandler(t.Context(), app, nil, "poll", "--json", "--period", "5s", "--idle", "1s", "--estimate", "100ms").
			checkOutput(t, 0, `^\{"runs":\d+,"delivered":0,"rejected":0,"retried":0,"unavailable":0,"cut":0,`+
				`"averageSeconds":0.1,"estimated":true,"idle":1,"seconds":[\d.]+\}\n$`, "")
	})
}

func TestCommand_Drain(t *testing.T) {
	s := newBareSystem(t)
	appender, account := s.openAppender(2)
	app := s.stageApp("lanes: 1 ", "lanes: 2 ", "timeout: 30s", "timeout: 1s", "lease: 30s",
		"lease: 15s")
	drain := func() commandResult {
		t.Helper()
		return s.runHandler(t.Context(), app,
			nil, "drain")
	}

	drain().checkOutput(t, 0, `^lane 0: empty\nlane 1: empty\n$`, "")
	for n := range 40 {
		s.appendMessage(appender, fmt.Sprint("/p/", n%10), n/10)
	}

	drain().checkOutput(t, 0, `^lane 0: empty, \d+ delivered\nlane 1: empty, \d+ delivered\n$`, "")

	if st := s.readStats(); st.Writes != 40 || st.Overlaps != 0 || st.Inversions != 0 ||
		st.Repeats != 0 {
		t.Errorf("got %+v, want 40 writes, none repeated, overlapping or out of order", st)
	}

	s.setFaults(`{"failPath":"/bad"}`)
	s.appendMessage(appender, "/bad", 0)
	patient := s.stageApp("lanes: 1 ", "lanes: 2 ", "timeout: 30s", "timeout: 1s", "lease: 30s",
		"lease: 15s", "min: 1s, max: 5m", "min: 5m, max: 5m")
	s.runHandler(t.Context(), patient, nil, "drain").checkOutput(t, 0,
		`lane \d: the next is due at \S+, 1 waiting`, "")
	s.runHandler(t.Context(), patient, nil, "drain", "--json").checkOutput(t, 0,
		`\{"lane":\d,"state":"waiting","delivered":0,"dead":0,"cancelled":0,"superseded":0,"discarded":0,"waiting":1,`+
			`"until":"\S+Z"\}\n`, "")

	s.setFaults(`{"down":true}`)
	first := s.appendMessage(appender, "/p/1", 10)
	drain().checkOutput(t, 0, fmt.Sprintf(`lane %d: paused until \S+ because the CMS is unavailable, \d waiting`,
		first.ID.Lane), "503")
	s.setFaults(`{}`)

	other := s.appendMessage(appender, "/p/1", 11)
	store := &lane.Store{Table: account.Table(), Bodies: account.Bodies(), Lanes: 2, Now: time.Now,
		Epoch: other.ID.Epoch}
	s.awaitCondition("the pause is over", time.Minute, func() bool {
		c, err := store.ReadControl(t.Context(), other.ID.Lane)
		at, work := c.NextWorkAt(time.Now())
		return err == nil && work && !at.After(time.Now())
	})

	const holder = "6f1c1f70-5d0c-4b1e-9d3f-0a4f3a1c2b11"
	if err := account.Leases().Acquire(t.Context(), store.LeaseName(other.ID.Lane), holder,
		30*time.Second); err != nil {
		t.Fatal(err)
	}

	s.runHandler(t.Context(), app, nil, "drain", "--json").checkOutput(t, 1,
		fmt.Sprintf(`\{"lane":%d,"state":"held",.*"waiting":\d\}`, other.ID.Lane),
		`a message is left that could have been sent`)
	drain().checkOutput(t, 1, fmt.Sprintf(`lane %d: held by another process, \d waiting`,
		other.ID.Lane), `a message is left that could have been sent`)
}

func TestCommand_Check(t *testing.T) {
	s := newBareSystem(t)
	app := s.stageApp("lanes: 1 ", "lanes: 2 ")
	check := func(app string, env ...string) commandResult {
		t.Helper()
		return s.runHandler(t.Context(), app, env, "check")
	}

	check(app).checkOutput(t, 0,
		`^settings  ok\ncontracts ok  article, delete\nanswers   ok  article, delete: .*\n`+
			`doctype   ok  article, delete: .*\n`+
			`calendar  ok  always open\nhost +ok  no plan of Azure\x27s.*\n`+
			`stop +ok  a stop of the host is noticed.*\ntable +ok  not there yet.*\n`+
			`messages  ok  not there yet.*\nschedules ok  not there yet.*\nqueues +ok  not there yet.*\n`+
			`blobs +ok  not there yet.*\nclock +ok  not compared yet.*\ncms +ok  accepts connections at 127.0.0.1:\d+\n$`, "")

	s.openAppender(2)
	check(app).checkOutput(t, 0,
		`table +ok  lanes: 2\nmessages  ok .*\nschedules ok  0 of at most 500,`+
			` up to 0 messages a second of at most 10\nqueues +ok  0 waiting,`+
			` 0 poisoned\nblobs +ok\nclock +ok  differs from storage's by about \ds\n`, "")

	one := s.stageApp()
	check(one).checkOutput(t, 0,
		`table +ok  lanes: 2; storage was never used, so the next start takes lanes: 1`, "")
	s.runHandler(t.Context(), one, nil, "drain").checkOutput(t, 0, `lane 0: empty\n`, "")
	check(one).checkOutput(t, 0, `table +ok  lanes: 1\n`, "")
	s.runHandler(t.Context(), app, nil, "drain").checkOutput(t, 0, `lane 1: empty\n`, "")
	appender, _ := s.openAppender(2)
	m := weir.Message{Contract: "gone", Key: "/a", ContentType: "application/xml",
		Body: []byte("<gone/>")}
	if _, err := appender.Append(t.Context(), m, ""); err != nil {
		t.Fatal(err)
	}

	check(app).checkOutput(t, 1,
		`messages  wrong: messages wait for contracts that the settings lack: gone`, "")
	check(one).checkOutput(t, 1,
		`table +wrong: the number of lanes is 2 in storage, and 1 in the setting; set lanes: 2`, "")
	check(app, "WEIR_CMS_URL=http://127.0.0.1:1/").checkOutput(t, 1,
		`(?s)table +ok.*cms +wrong: .*refused; see whether delivery.url is right`, "")
	check(app, "AzureWebJobsStorage="+strings.ReplaceAll(s.storage.ConnectionString(), "127.0.0.1:", "127.0.0.1:1")).
		checkOutput(t, 1, `(?s)settings +ok.*table +wrong: .*; see whether AzureWebJobsStorage.*`+
			`queues +wrong.*blobs +wrong.*clock +wrong.*cms +ok`, "")
	check(s.stageApp("root: delete", "root: delete\n    onFailure: maybe", "attempts: 5", "attempts: 0")).
		checkOutput(t, 1, `(?s)settings +wrong: weir.yaml: \[\d+:\d+\] delivery.attempts is 0.*`+
			`contracts wrong: .*maybe.*table +wrong`, "")
	if n := len(s.readRequests()); n != 0 {
		t.Errorf("the CMS got %d requests: a check must not write", n)
	}
}
