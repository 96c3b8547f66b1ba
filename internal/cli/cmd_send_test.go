package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/remote"
)

// fakeIntake is a server that accepts messages, and stores them by idempotency key. It refuses
// bodies that contain "bad".
type fakeIntake struct {
	*fakeServer
	mu    sync.Mutex
	filed map[string]string // accepted bodies by idempotency key
	posts int               // number of accepted posts
	ends  string            // stage in each answer about a message's status
}

func newFakeIntake(t *testing.T) *fakeIntake {
	in := &fakeIntake{fakeServer: newFakeServer(t), filed: map[string]string{}, ends: "delivered"}
	in.mux.HandleFunc("POST /api/messages", in.receiveMessage)
	in.mux.HandleFunc("GET /api/messages/{id}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"1"`)
		in.writeAnswer(w, 200, "application/json",
			`{"id":%q,"stage":%q,"contract":"a","key":"","lane":0,`+
				`"sequence":1,"attempts":1,"acceptedAt":"2026-01-08T12:00:00Z"}`,
			r.PathValue("id"), in.ends)
	})

	return in
}

func (in *fakeIntake) writeAnswer(w http.ResponseWriter, status int, kind, format string,
	args ...any) {
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	fmt.Fprintf(w, format, args...)
}

func (in *fakeIntake) receiveMessage(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	key := r.Header.Get("Idempotency-Key")
	if r.Header.Get("Content-Type") != "application/xml" || key != remote.IdempotencyKey(body) {
		in.t.Errorf("got the header %v for %q, want application/xml and the Idempotency-Key of the body", r.Header,
			body)
	}

	if strings.Contains(string(body), "bad") {
		in.writeAnswer(w, 422, "application/problem+json",
			`{"type":"about:blank","title":"x","status":422,`+
				`"detail":"one problem","problems":[{"path":"./title","message":"is missing"}]}`)
		return
	}

	in.mu.Lock()
	defer in.mu.Unlock()
	_, twice := in.filed[key]
	in.filed[key] = string(body)
	in.posts++
	w.Header().Set("Location", in.server.URL+"/api/messages/x")
	in.writeAnswer(w, 202, "application/json",
		`{"id":"AQ%d","stage":"queued","key":"/a","lane":0,"sequence":1,`+
			`"acceptedAt":"2026-01-08T12:00:00Z","duplicate":%t}`, in.posts, twice)
}

// writeFiles returns a new directory with n files, each with a different message.
func writeFiles(t *testing.T, n int) string {
	t.Helper()
	dir := t.TempDir()
	for i := range n {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%03d.xml", i)),
			fmt.Appendf(nil, "<a n='%d'/>", i), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	return dir
}

func TestSend(t *testing.T) {
	t.Parallel()
	in, dir := newFakeIntake(t), writeFiles(t, 20)
	in.runCommand("send", dir+"/*.xml").expectEnd(t, exitOK, "20 files: 20 accepted\n", "")
	in.runCommand("send", "-p", "1", filepath.Join(dir, "000.xml"), filepath.Join(dir, "01*.xml")).expectEnd(t, exitOK,
		"11 files: 0 accepted, 11 sent before\n", "")
	if len(in.filed) != 20 {
		t.Errorf("got %d filed messages, want 20", len(in.filed))
	}

	in.runCommand("send", "--wait", dir+"/00*.xml").expectEnd(t, exitOK,
		"10 files: 0 accepted, 10 sent before; 10 "+"delivered\n", "")
}

// The command sends only the *.xml files of a directory, sorted by name.
func TestSend_Directory(t *testing.T) {
	t.Parallel()
	in, dir := newFakeIntake(t), writeFiles(t, 3)
	for _, name := range []string{"notes.txt", "b.XML"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("<a n='b'/>"), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	if err := os.Mkdir(filepath.Join(dir, "deeper.xml"), 0o700); err != nil {
		t.Fatal(err)
	}

	got := in.runCommand("send", "-p", "1", dir)
	var files []string
	for _, line := range strings.Split(strings.TrimSpace(got.out), "\n") {
		if fields := strings.Fields(line); strings.HasPrefix(line, "AQ") && fields[1] == "queued" &&
			fields[2] == "/a" {
			files = append(files, fields[0]+" "+filepath.Base(fields[3]))
		}
	}

	want := "AQ1 000.xml, AQ2 001.xml, AQ3 002.xml, AQ4 b.XML"
	if text := strings.Join(files, ", "); got.code != exitOK || text != want ||
		!strings.Contains(got.out, "4 files: 4 accepted") {
		t.Errorf("got code %d and files %q in\n%s%s, want %q", got.code, text, got.out,
			got.errors, want)
	}
}

func TestSend_JSON(t *testing.T) {
	t.Parallel()
	in, dir := newFakeIntake(t), writeFiles(t, 3)
	bad := filepath.Join(dir, "bad.xml")
	if err := os.WriteFile(bad, []byte("<bad/>"), 0o600); err != nil {
		t.Fatal(err)
	}

	d := in.runCommand("send", "--json", "--wait", dir+"/*.xml")
	d.expectEnd(t, exitRefused,
		`{"file":"`+bad+`","error":"one problem","status":422,"problems":[{"path":"./title",`+
			`"message":"is missing"}]}`, "")
	lines := d.parseLines(t)
	if len(lines) != 5 || fmt.Sprint(lines[4]["summary"]) !=
		"map[accepted:3 duplicates:0 files:4 notSent:0 "+
			"refused:1 stages:map[delivered:3] unread:0]" {
		t.Errorf("got %v, want four files and the summary", lines)
	}

	if last := lines[3]; last["stage"] != "delivered" || last["id"] == "" ||
		last["duplicate"] != false {
		t.Errorf("got %v, want a delivered message that is no duplicate", last)
	}
}

func TestSend_NamesRefusedMessages(t *testing.T) {
	t.Parallel()
	in, dir := newFakeIntake(t), writeFiles(t, 2)
	if err := os.WriteFile(filepath.Join(dir, "bad.xml"), []byte("<bad/>"), 0o600); err != nil {
		t.Fatal(err)
	}

	in.runCommand("send", dir+"/*.xml").expectEnd(t, exitRefused,
		"3 files: 2 accepted, 1 refused\n",
		"bad.xml: 422 Unprocessable Entity: one problem; ./title is missing\n")
}

func TestSend_NamesDeadMessages(t *testing.T) {
	t.Parallel()
	in, dir := newFakeIntake(t), writeFiles(t, 2)
	in.ends = "dead"
	in.runCommand("send", "--wait", dir+"/*.xml").expectEnd(t, exitFailed,
		"2 files: 2 accepted; 2 dead\n", "AQ2 is dead\n")
	in.ends = "queued"
	in.runCommand("send", "--wait=1ms", dir+"/*.xml").expectEnd(t, exitFailed, "2 queued\n",
		"the time for waiting is over")
}

func TestSend_AFileThatCannotBeRead(t *testing.T) {
	t.Parallel()
	in, dir := newFakeIntake(t), writeFiles(t, 2)
	if err := os.Symlink("/proc/self/mem", filepath.Join(dir, "unreadable.xml")); err != nil {
		t.Fatal(err)
	}

	in.runCommand("send", dir+"/*.xml").expectEnd(t, exitFailed,
		"3 files: 2 accepted, 1 not readable\n", "unreadable.xml: ")
}

func TestSend_Stdin(t *testing.T) {
	t.Parallel()
	in := newFakeIntake(t)
	s, stdout, stderr := in.newConsole()
	s.stdin = strings.NewReader("<a/>")
	commandResult{s.runCommand(t.Context(), []string{"send", "-"}), stdout.String(), stderr.String()}.expectEnd(t,
		exitOK, "1 file: 1 accepted\n", "")
	if in.filed[remote.IdempotencyKey([]byte("<a/>"))] != "<a/>" {
		t.Errorf("got the filed messages %v, want the body of stdin", in.filed)
	}
}

// Every second request fails, in turn with 503, 429, 500, a broken connection, and a connection
// that breaks after the message was accepted.
func TestSend_TriesAgain(t *testing.T) {
	t.Parallel()
	in, dir := newFakeIntake(t), writeFiles(t, 20)
	var mu sync.Mutex
	n := 0
	in.spoil = func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()

		switch n++; n % 10 {
		case 1:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		case 3:
			w.WriteHeader(http.StatusTooManyRequests)
		case 5:
			w.WriteHeader(http.StatusInternalServerError)
		case 7:
			panic(http.ErrAbortHandler)
		case 9:
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			in.receiveMessage(&discardedAnswer{http.Header{}}, r)
			panic(http.ErrAbortHandler)

		default:
			return false
		}

		return true
	}

	d := in.runCommand("send", dir+"/*.xml")
	if d.code != exitOK || len(in.filed) != 20 || !strings.Contains(d.out, "sent before") {
		t.Errorf("got %+v and %d filed messages, want exit code %d, 20 filed messages and \"sent before\" in the "+
			"output", d,
			len(in.filed), exitOK)
	}
}

// discardedAnswer is an http.ResponseWriter that drops the answer.
type discardedAnswer struct{ header http.Header }

func (d *discardedAnswer) Header() http.Header         { return d.header }
func (d *discardedAnswer) Write(p []byte) (int, error) { return len(p), nil }
func (d *discardedAnswer) WriteHeader(int)             {}

func TestSend_Stops(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status, code int
		says         string
	}{
		"NoKey":   {http.StatusUnauthorized, exitRefused, "WEIR_CODE"},
		"NoWeir":  {http.StatusNotFound, exitNotFound, "no Weir at this address"},
		"Away":    {http.StatusServiceUnavailable, exitUnavailable, "given up after"},
		"NotWeir": {http.StatusFound, exitFailed, "leads elsewhere"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in, dir := newFakeIntake(t), writeFiles(t, 50)
			in.spoil = func(w http.ResponseWriter, _ *http.Request) bool {
				w.WriteHeader(c.status)
				return true
			}

			in.runCommand("send", "--give-up", "20ms", dir+"/*.xml").expectEnd(t, c.code,
				"50 files: 0 accepted, 50 not sent\n", c.says)

			if c.code != exitUnavailable && strings.Count(in.receivedRequests(), "\n") > 8 {
				t.Errorf("got more than 8 requests, want the command to stop after at most 8:\n%s",
					in.receivedRequests())
			}
		})
	}
}

func TestSend_InterruptedAndResumed(t *testing.T) {
	t.Parallel()
	in, dir := newFakeIntake(t), writeFiles(t, 50)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reached, interrupted := make(chan struct{}, 50), make(chan struct{})
	in.spoil = func(http.ResponseWriter, *http.Request) bool {
		if reached <- struct{}{}; len(reached) == 20 {
			cancel()
			close(interrupted)
		} else if len(reached) > 20 {
			<-interrupted // so this request is in flight at the interruption, and must still finish
		}
		return false
	}

	s, stdout, stderr := in.newConsole()
	began := time.Now()
	first := commandResult{s.runCommand(ctx, []string{"send", dir + "/*.xml"}), stdout.String(),
		stderr.String()}
	filed := len(in.filed)
	first.expectEnd(t, exitFailed,
		fmt.Sprintf("50 files: %d accepted, %d not sent\n", filed, 50-filed),
		"interrupted; send the same files again")

	if filed < 20 || filed > 24 || time.Since(began) > s.gracePeriod/2 {
		t.Errorf("got %d filed messages after %s, want 20 to 24 within %s", filed,
			time.Since(began), s.gracePeriod/2)
	}

	in.spoil = nil
	in.runCommand("send", dir+"/*.xml").expectEnd(t, exitOK,
		fmt.Sprintf("50 files: %d accepted, %d sent before\n", 50-filed, filed), "")
	if len(in.filed) != 50 {
		t.Errorf("got %d filed messages, want 50", len(in.filed))
	}
}

func TestSend_InterruptedWhileWaitingToTryAgain(t *testing.T) {
	t.Parallel()
	in, dir := newFakeIntake(t), writeFiles(t, 5)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in.spoil = func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Retry-After", "240")
		w.WriteHeader(http.StatusServiceUnavailable)
		cancel()
		return true
	}

	s, stdout, stderr := in.newConsole()
	began := time.Now()
	commandResult{s.runCommand(ctx, []string{"send", dir + "/*.xml"}), stdout.String(), stderr.String()}.expectEnd(t,
		exitFailed, "5 not sent", "interrupted")
	if took := time.Since(began); took > s.gracePeriod/2 {
		t.Errorf("the command ended after %s, want within %s", took, s.gracePeriod/2)
	}
}

func TestSend_InterruptedWhileWaiting(t *testing.T) {
	t.Parallel()
	in, dir := newFakeIntake(t), writeFiles(t, 5)
	in.ends = "queued"
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in.spoil = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet {
			cancel()
		}
		return false
	}

	s, stdout, stderr := in.newConsole()
	d := commandResult{s.runCommand(ctx, []string{"send", "--wait", "--json", dir + "/*.xml"}),
		stdout.String(), stderr.String()}
	if lines := d.parseLines(t); d.code != exitFailed || len(lines) != 6 ||
		lines[4]["stage"] != "queued" ||
		lines[5]["summary"] == nil {
		t.Errorf("got %+v, want six lines, the last one the summary", d)
	}
}

func TestSend_InterruptedWhileReadingStdin(t *testing.T) {
	t.Parallel()
	in := newFakeIntake(t)
	ctx, cancel := context.WithCancel(t.Context())
	s, stdout, stderr := in.newConsole()
	r, w := io.Pipe()
	s.stdin = r
	go func() {
		w.Write([]byte("<a>")) // stdin stays open, so the command waits for more
		cancel()
	}()

	commandResult{s.runCommand(ctx, []string{"send", "-"}), stdout.String(), stderr.String()}.expectEnd(t, exitFailed,
		"1 not sent", "interrupted")
	w.Close()
}
