package e2e_test

import (
	"bufio"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/internal/testkit/settings"
)

// runCopy runs weir copy, and returns its exit code and output. If killAfter is not empty, it kills
// the command a little after the line with this text.
func (s *system) runCopy(config, killAfter string, args ...string) (code int, output string) {
	s.t.Helper()
	cmd := s.serveCommand(config, append([]string{"copy"}, args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}

	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}

	var all []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if all = append(all, lines.Text()); killAfter != "" &&
			strings.Contains(lines.Text(), killAfter) {
			time.Sleep(5 * time.Millisecond)
			cmd.Process.Kill()
		}
	}

	cmd.Wait()
	text := strings.Join(all, "\n")
	fmt.Fprintln(s.output, text)

	return cmd.ProcessState.ExitCode(), text
}

// mustCopy runs weir copy until it is done: it kills the command in each of its phases first.
func (s *system) mustCopy(config string, args ...string) {
	s.t.Helper()
	for _, phase := range []string{"Copying.", "Comparing."} {
		if code, out := s.runCopy(config, phase, args...); code != -1 {
			s.t.Fatalf("got the exit code %d for a copy that is killed, want -1:\n%s", code, out)
		}
	}

	code, out := s.runCopy(config, "", args...)
	if code != 0 || !strings.Contains(out, "Everything is in") {
		s.t.Fatalf("got the exit code %d, want 0:\n%s", code, out)
	}
}

// mustVerify returns the output of weir verify, which must find each lane whole.
func (s *system) mustVerify(config string, args ...string) string {
	s.t.Helper()
	out, err := s.serveCommand(config, append([]string{"verify"}, args...)...).CombinedOutput()
	if err != nil || strings.Contains(string(out), "NOT whole") {
		s.t.Errorf("weir verify %v: %v\n%s\nwant all lanes whole", args, err, out)
	}

	return string(out)
}

// postWaiting posts versions of ten keys while the CMS is away, and returns the ids.
func (p *serveProcess) postWaiting(first, last int) (ids []string) {
	p.s.t.Helper()
	p.s.setFaults(`{"down": true}`)

	for version := first; version <= last; version++ {
		for key := range 10 {
			ids = append(ids, p.mustPost(fmt.Sprintf("/copy/%d", key), version))
		}
	}

	return ids
}

// Everything moves from a folder to a storage account and back, although the copy is killed in each
// of its phases. The messages that wait are delivered after the move, each once and in order.
func TestCopy_ToAzureAndBack(t *testing.T) {
	t.Parallel()
	s := newSystemOn(t, useSharedStorage(t))
	s.startCMS(usualLatency)
	dir := t.TempDir()
	config, data, back := filepath.Join(dir, "weir.yaml"), filepath.Join(dir, "data"),
		filepath.Join(dir, "back")
	writeFile(t, config, strings.NewReplacer("lanes: 1 ", "lanes: 4 ").Replace(settings.YAML),
		0o600)

	p := s.startServe(config, "--data", data)
	early := p.mustPost("/copy/0", 1)
	p.awaitStage(early, "delivered")
	waiting := p.postWaiting(2, 5)
	status, _ := p.send(plainClient, http.MethodPost, "/api/messages", // a body in a blob
		`<article path="/copy/large" version="1"><title>T</title><text>`+randomText(200_000)+
			`</text></article>`,
		"Content-Type", "application/xml")
	if status != http.StatusAccepted {
		t.Errorf("got %d for a large message, want 202", status)
	}

	p.stop(syscall.SIGKILL)

	s.mustCopy(config, "--from", data, "--to", "azure")

	if before, after := s.mustVerify(config, "--data",
		data), s.mustVerify(config); before != after {
		t.Errorf("weir verify: got\n%s\nin the copy, want\n%s", after, before)
	}

	refused := s.startServe(config, "--data", data)
	if code := refused.wait(); code != 1 ||
		!strings.Contains(refused.log(), "everything was copied to") {
		t.Errorf("got the exit code %d of weir serve on the folder, want 1 with the reason:\n%s",
			code, refused.log())
	}

	s.setFaults(`{}`)
	p = s.startServe(config, "--storage", "azure")
	for _, id := range slices.Concat([]string{early}, waiting) {
		p.awaitStage(id, "delivered")
	}

	more := p.postWaiting(6, 8)

	if code, out := s.runCopy(config, "", "--undo", "--from", "azure"); code != 0 ||
		!strings.Contains(out, "No copy is under way") {
		t.Errorf("undo without a copy: got the exit code %d, want 0:\n%s", code, out)
	}

	p.stop(syscall.SIGTERM)
	s.mustCopy(config, "--from", "azure", "--to", back)

	if before, after := s.mustVerify(config), s.mustVerify(config, "--data", back); before !=
		after {
		t.Errorf("weir verify: got\n%s\nin the copy, want\n%s", after, before)
	}

	s.setFaults(`{}`)
	p = s.startServe(config, "--data", back)
	for _, id := range more {
		p.awaitStage(id, "delivered")
	}

	s.checkKeyOrder()
	if st := s.readStats(); st.Writes != 1+40+1+30 {
		t.Errorf("got %d writes, want 72: each message once", st.Writes)
	}
}

// A copy that was killed is given up: the folder can be used again.
func TestCopy_Undo(t *testing.T) {
	t.Parallel()
	s := newSystemOn(t, useSharedStorage(t))
	s.startCMS(usualLatency)
	dir := t.TempDir()
	config, data := filepath.Join(dir, "weir.yaml"), filepath.Join(dir, "data")
	writeFile(t, config, settings.YAML, 0o600)
	p := s.startServe(config, "--data", data)
	waiting := p.postWaiting(1, 2)

	if code, out := s.runCopy(config, "", "--from", data, "--to", "azure"); code != 1 ||
		!strings.Contains(out, "weir serve has this folder open") {
		t.Errorf("beside a server: got the exit code %d, want 1 with the process:\n%s", code, out)
	}

	p.stop(syscall.SIGKILL)
	if code, out := s.runCopy(config, "Copying.", "--from", data, "--to", "azure"); code != -1 {
		t.Fatalf("got the exit code %d for a copy that is killed, want -1:\n%s", code, out)
	}

	half := s.startServe(config, "--storage", "azure")
	if code := half.wait(); code != 1 ||
		!strings.Contains(half.log(), "half copy of another store") {
		t.Errorf("got the exit code %d of weir serve on a half copy, want 1 with the reason:\n%s",
			code, half.log())
	}

	if code, out := s.runCopy(config, "", "--undo", "--from", data); code != 0 {
		t.Errorf("undo: got the exit code %d, want 0:\n%s", code, out)
	}

	s.setFaults(`{}`)
	p = s.startServe(config, "--data", data)
	for _, id := range waiting {
		p.awaitStage(id, "delivered")
	}

	s.checkKeyOrder()
}

// A process that still runs on the storage account notices the copy, and ends. No message that it
// accepted is missing in the copy.
func TestCopy_BesideARunningProcess(t *testing.T) {
	t.Parallel()
	s := newSystemOn(t, useSharedStorage(t))
	s.startCMS(usualLatency)
	dir := t.TempDir()
	config, back := filepath.Join(dir, "weir.yaml"), filepath.Join(dir, "back")
	writeFile(t, config, settings.YAML, 0o600)
	p := s.startServe(config, "--storage", "azure")
	s.setFaults(`{"down": true}`)
	accepted := make(chan int, 1)
	p.mustPost("/copy/0", 1)
	go func() {
		count, status := 1, http.StatusAccepted
		for version := 2; status != 0; version++ { // until the process has ended
			if status, _ = p.post("/copy/0", version); status == http.StatusAccepted {
				count++
			}
		}

		accepted <- count
	}()

	if code, out := s.runCopy(config, "", "--from", "azure", "--to", back); code != 0 {
		t.Errorf("got the exit code %d, want 0:\n%s", code, out)
	}

	if code := p.wait(); code != 1 || !strings.Contains(p.log(), "everything is being copied to") {
		t.Errorf("got the exit code %d of the running process, want 1 with the reason", code)
	}

	want := fmt.Sprintf("whole: %d accepted", <-accepted)
	if out := s.mustVerify(config, "--data", back); !strings.Contains(out, want) {
		t.Errorf("got %s, want %q", out, want)
	}
}
