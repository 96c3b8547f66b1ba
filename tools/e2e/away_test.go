package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// away runs the handler as a command that knows nothing but the address of Weir.
func (s *system) away(args ...string) ended {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 3*time.Minute)
	defer cancel()
	cmd, stdout, stderr := s.awayCommand(ctx, args...)
	if err := cmd.Run(); cmd.ProcessState == nil {
		s.t.Fatal(err)
	}
	return ended{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func (s *system) awayCommand(ctx context.Context, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	cmd = exec.CommandContext(ctx, filepath.Join(built, "handler"), args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = s.t.TempDir(), []string{"WEIR_URL=" + s.weir}, stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd, stdout, stderr
}

// articles writes n messages of one path each, and gives their directory.
func articles(t *testing.T, n int) string {
	t.Helper()
	dir := t.TempDir()
	for i := range n {
		body := fmt.Sprintf(`<article path="/file/%d" version="1"><title>T</title></article>`, i)
		write(t, filepath.Join(dir, fmt.Sprintf("%02d.xml", i)), body, 0o600)
	}
	return dir
}

// Files are sent, the sending is interrupted, the handler is killed, and the same command is
// run again: each message is written once. There are so many that the first command cannot
// be through before it is interrupted.
func TestSend_InterruptedAndResumed(t *testing.T) {
	s := newSystem(t, 1, "lease: 30s", "lease: 15s", "level: info", "level: debug")
	files := filepath.Join(articles(t, 200), "*.xml")
	cmd, stdout, stderr := s.awayCommand(t.Context(), "send", "-p", "1", files)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.eventually("some are there", time.Minute, func() bool { return strings.Count(s.logs.String(), "receive: accepted") >= 5 })
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	ended{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}.says(t, 1, `^200 files: \d+ accepted, \d+ not sent\n$`, `interrupted; send the same files again`)
	t.Logf("interrupted: %s", stdout)

	s.killNext(0)
	again := s.away("send", "--wait", files)
	again.says(t, 0, `^200 files: [1-9]\d* accepted, [1-9]\d* there already; 200 delivered\n$`, `^(handler: \d+ of 200 final\n)*$`)
	t.Logf("resumed: %s", again.stdout)
	if st := s.clean(); st.Writes-st.Repeats != 200 {
		t.Errorf("%+v", st)
	}
	s.away("send", files).says(t, 0, `^200 files: 0 accepted, 200 there already\n$`, "")
}

// An operator with an address and nothing else sees a message die, finds out why, and has it
// delivered again.
func TestOperator_ByCommands(t *testing.T) { inEachMode(t, testOperatorByCommands) }

func testOperatorByCommands(t *testing.T) {
	s := newSystem(t, 1, "min: 1s, max: 5m", "min: 50ms, max: 100ms")
	s.faults(`{"failPath":"/file/1"}`)
	dir := articles(t, 3)
	s.away("send", "--wait", dir+"/*.xml").says(t, 1, `^3 files: 3 accepted; 2 delivered, 1 dead\n$`, `01\.xml: \S+ is dead\n`)

	list := s.away("dead", "list")
	list.says(t, 0, `(?s)^DIED .*\n\S+ \S+  \S+  article   /file/1  5         \S.*the index is locked`, "")
	id := strings.Fields(strings.Split(list.stdout, "\n")[1])[2]
	s.away("dead", "list", "--key", "/file/2").says(t, 0, `^No dead messages\.\n$`, "")
	errors := s.away("dead", "list", "--errors")
	errors.says(t, 0, `(?s)^LAST .*  [0-9a-f]{12}  1      1     article   500  \S`, "")
	fingerprint := strings.Fields(strings.Split(errors.stdout, "\n")[1])[2]
	s.away("dead", "show", id).says(t, 0, `(?s)is dead\.\n.*attempt 5, .*: retry: 500 .*dead: 500 .*<article path="/file/1"`, "")
	s.away("dead", "show", id, "--body").says(t, 0, `^<article path="/file/1" version="1"><title>T</title></article>$`, "")

	s.faults(`{}`)
	s.away("pause", "--all", "--reason", "a try").says(t, 0, `(?s)^PAUSED .*lane 0 .*resumed +a try\n$`, "")
	s.away("pauses").says(t, 0, `lane 0 .*a try`, "")
	s.away("dead", "replay", "--fingerprint", fingerprint, "--dry-run").says(t, 0, `^It is about 1 message of 1 key; 0 would be refused\. It may take \S+\.\n$`, "")
	s.away("dead", "replay", id).says(t, 0, `the replay is asked for`, "")
	s.eventually("the replay is granted", time.Minute, func() bool {
		return s.away("status", id).stdout != "" && !strings.Contains(s.away("status", id).stdout, "is dead")
	})
	s.away("status", id).says(t, 0, `(?s)is (queued|retrying)\..*It waits for: .*a try`, "")
	s.away("resume", "--all").says(t, 0, `^Nobody has paused anything\.\n$`, "")
	s.away("status", id, "--wait").says(t, 0, `is delivered\.`, "")
	s.away("dead", "replay", id).says(t, 4, "", `409 Conflict`)
	s.away("status", "AQABL714SFvJDd7dAA").says(t, 3, "", `404 Not Found`)

	s.away("dead", "replay", "--all", "--yes").says(t, 0, `^It is about 0 messages of 0 keys; `, "")
	s.faults(`{"failPath":"/file/9"}`)
	write(t, filepath.Join(dir, "9.xml"), `<article path="/file/9" version="1"><title>T</title></article>`, 0o600)
	s.away("send", "--wait", filepath.Join(dir, "9.xml")).says(t, 1, `1 dead`, `is dead`)
	s.faults(`{}`)
	s.away("dead", "replay", "--key", "/file/9", "--yes", "--wait", "--reason", "the index is free").
		says(t, 0, `(?s)Replay \S+ is done: 1 matched, 1 replayed, 0 refused; 1 delivered, 0 dead again, 0 waiting`, "")
}

// tail shows what is accepted and what comes of it, and ends well when it is interrupted.
func TestTail(t *testing.T) {
	s := newSystem(t, 1)
	out := &logs{}
	cmd, _, stderr := s.awayCommand(t.Context(), "tail", "--interval", "200ms")
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.away("send", articles(t, 3)+"/*.xml").says(t, 0, `^3 files: 3 accepted`, "")
	s.eventually("all three show as delivered", time.Minute, func() bool { return strings.Count(out.String(), "  delivered   ") == 3 })
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	ended{cmd.ProcessState.ExitCode(), out.String(), stderr.String()}.says(t, 0, `(?s)^\S+ \S+  \w+ +\S+  lane 0  /file/\d\n`, "")
}
