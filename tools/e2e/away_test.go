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

// runByAPI runs a command of the handler with Weir's address as the only setting.
func (s *system) runByAPI(args ...string) commandResult {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), slowdown*3*time.Minute)
	defer cancel()
	cmd, stdout, stderr := s.newAPICommand(ctx, args...)
	if err := cmd.Run(); cmd.ProcessState == nil {
		s.t.Fatalf("start: %v", err)
	}

	return commandResult{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// newAPICommand returns a command that is not yet started, and the buffers for its output. Its
// environment has only Weir's address.
func (s *system) newAPICommand(ctx context.Context, args ...string) (cmd *exec.Cmd, stdout,
	stderr *bytes.Buffer) {
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	cmd = exec.CommandContext(ctx, filepath.Join(built, "handler"), args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = s.t.TempDir(), []string{"WEIR_URL=" + s.weir},
		stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd, stdout, stderr
}

// writeArticles writes n files with one message each, and returns their folder. Each message has
// its own path.
func writeArticles(t *testing.T, n int) string {
	t.Helper()
	dir := t.TempDir()
	for i := range n {
		body := fmt.Sprintf(`<article path="/file/%d" version="1"><title>T</title></article>`, i)
		writeFile(t, filepath.Join(dir, fmt.Sprintf("%02d.xml", i)), body, 0o600)
	}
	return dir
}

// The test interrupts weir send, kills the handler, and sends the same files again. The CMS gets
// each message. After the kill, the next holder of the lane is allowed to repeat writes. There are
// so many files that weir send does not finish before the interrupt.
func TestSend_InterruptedAndResumed(t *testing.T) {
	s := newSystem(t, 1, "lease: 30s", "lease: 15s", "level: info", "level: debug")
	files := filepath.Join(writeArticles(t, 200), "*.xml")
	cmd, stdout, stderr := s.newAPICommand(t.Context(), "send", "-p", "1", files)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	s.awaitCondition("some are there", time.Minute,
		func() bool { return strings.Count(s.output.String(), "receive: accepted") >= 5 })
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}

	cmd.Wait()
	commandResult{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}.checkOutput(t, 1,
		`(?m)^200 files: \d+ accepted, \d+ not sent\n\z`, `interrupted; send the same files again`)
	t.Logf("interrupted: %s", stdout)

	s.killNext(0)
	again := s.runByAPI("send", "--wait", files)

	// The host answers 500 or 502 while it has not yet noticed the end of the handler, and the
	// command tries again.
	again.checkOutput(t, 0, `^200 files: [1-9]\d* accepted, [1-9]\d* sent before; 200 delivered\n$`,
		`^(weir: (\d+ of 200 (final|sent)|50[02] .*; trying again for up to 5m0s)\n)*$`)
	t.Logf("resumed: %s", again.stdout)
	if st := s.checkRecord(); st.Writes-st.Repeats != 200 {
		t.Errorf("got %+v, want 200 messages written", st)
	}

	s.runByAPI("send", files).checkOutput(t, 0, `^200 files: 0 accepted, 200 sent before\n$`,
		`^(weir: \d+ of 200 sent\n)*$`) // the command reports its progress if it takes long
}

// An operator with only Weir's address finds a dead message and its reason, and replays the
// message.
func TestOperator_ByCommands(t *testing.T) { inEachMode(t, testOperatorByCommands) }

func testOperatorByCommands(t *testing.T) {
	s := newSystem(t, 1, "min: 1s, max: 5m", "min: 50ms, max: 100ms")
	s.setFaults(`{"failPath":"/file/1"}`)
	dir := writeArticles(t, 3)
	s.runByAPI("send", "--wait", dir+"/*.xml").checkOutput(t, 1,
		`3 files: 3 accepted; 2 delivered, 1 dead\n$`, `01\.xml: \S+ is dead\n`)

	list := s.runByAPI("dead", "list")
	list.checkOutput(t, 0, `(?s)^DIED .*\n\S+ \S+  \S+  article   /file/1  5         \S.*the index is locked`, "")
	id := strings.Fields(strings.Split(list.stdout, "\n")[1])[2]
	s.runByAPI("dead", "list", "--key", "/file/2").checkOutput(t, 0, `^No dead messages\.\n$`, "")
	errors := s.runByAPI("dead", "list", "--errors")
	errors.checkOutput(t, 0, `(?s)^LAST .*  [0-9a-f]{12}  1      1     article   500  \S`, "")
	fingerprint := strings.Fields(strings.Split(errors.stdout, "\n")[1])[2]
	s.runByAPI("dead", "show", id).checkOutput(t, 0,
		`(?s)is dead\.\n.*attempt 5, .*: retry: 500 .*dead: 500 .*<article path="/file/1"`, "")
	s.runByAPI("dead", "show", id, "--body").checkOutput(t, 0,
		`^<article path="/file/1" version="1"><title>T</title></article>$`, "")

	s.setFaults(`{}`)
	s.runByAPI("pause", "--all", "--reason", "a try").checkOutput(t, 0,
		`(?s)^PAUSED .*lane 0 .*resumed +a try\n$`, "")
	s.runByAPI("pauses").checkOutput(t, 0, `lane 0 .*a try`, "")
	s.runByAPI("dead", "replay", "--fingerprint", fingerprint, "--dry-run").checkOutput(t, 0,
		`^About 1 message of 1 key\.`, "")
	s.runByAPI("dead", "replay", id).checkOutput(t, 0, `replay requested`, "")
	s.awaitCondition("the replay is granted", time.Minute, func() bool {
		return s.runByAPI("status", id).stdout != "" &&
			!strings.Contains(s.runByAPI("status", id).stdout, "is dead")
	})

	s.runByAPI("status", id).checkOutput(t, 0,
		`(?s)is (queued|retrying)\..*It waits for: .*a try`, "")
	s.runByAPI("resume", "--all").checkOutput(t, 0, `^Nothing is paused\.\n$`, "")
	s.runByAPI("status", id, "--wait").checkOutput(t, 0, `is delivered\.`, "")
	s.runByAPI("dead", "replay", id).checkOutput(t, 4, "", `409 Conflict`)
	s.runByAPI("status", "AQABL714SFvJDd7dAA").checkOutput(t, 3, "", `404 Not Found`)

	s.runByAPI("dead", "replay", "--all", "--yes").checkOutput(t, 0,
		`^About 0 messages of 0 keys\.`, "")
	s.setFaults(`{"failPath":"/file/9"}`)
	writeFile(t, filepath.Join(dir, "9.xml"),
		`<article path="/file/9" version="1"><title>T</title></article>`, 0o600)
	s.runByAPI("send", "--wait", filepath.Join(dir, "9.xml")).checkOutput(t, 1, `1 dead`, `is dead`)
	s.setFaults(`{}`)
	s.runByAPI("dead", "replay", "--key", "/file/9", "--yes", "--wait", "--reason", "the index is free").
		checkOutput(t, 0, `(?s)Replay \S+ is done: 1 matched, 1 replayed, 0 refused; 1 delivered, 0 dead again,`+
			` 0 waiting`, "")
}

// weir tail shows each accepted message and its final stage. After an interrupt it exits with 0.
func TestTail(t *testing.T) {
	s := newSystem(t, 1)
	out := &processLogs{}
	cmd, _, stderr := s.newAPICommand(t.Context(), "tail", "--interval", "200ms")
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	s.runByAPI("send", writeArticles(t, 3)+"/*.xml").checkOutput(t, 0,
		`(?m)^3 files: 3 accepted`, "")
	s.awaitCondition("all three show as delivered", time.Minute,
		func() bool { return strings.Count(out.String(), "  delivered   ") == 3 })
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}

	cmd.Wait()
	commandResult{cmd.ProcessState.ExitCode(), out.String(), stderr.String()}.checkOutput(t,
		0, `(?s)^\S+ \S+  \w+ +\S+  lane 0  /file/\d\n`, "")
}
