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

// fakeIntake is a Weir that files messages under their idempotency keys.
type fakeIntake struct {
	*fakeServer
	mu    sync.Mutex
	filed map[string]string // body by idempotency key
	posts int
	ends  string // the stage they all come to
}

func newFakeIntake(t *testing.T) *fakeIntake {
	in := &fakeIntake{fakeServer: newFakeServer(t), filed: map[string]string{}, ends: "delivered"}
	in.mux.HandleFunc("POST /api/messages", in.post)
	in.mux.HandleFunc("GET /api/messages/{id}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"1"`)
		in.write(w, 200, "application/json", `{"id":%q,"stage":%q,"contract":"a","key":"","lane":0,"sequence":1,"attempts":1,"acceptedAt":"2026-01-08T12:00:00Z"}`, r.PathValue("id"), in.ends)
	})
	return in
}

func (in *fakeIntake) write(w http.ResponseWriter, status int, kind, format string, args ...any) {
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	fmt.Fprintf(w, format, args...)
}

func (in *fakeIntake) post(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	key := r.Header.Get("Idempotency-Key")
	if r.Header.Get("Content-Type") != "application/xml" || key != remote.IdempotencyKey(body) {
		in.t.Errorf("%v for %q", r.Header, body)
	}
	if strings.Contains(string(body), "bad") {
		in.write(w, 422, "application/problem+json", `{"type":"about:blank","title":"x","status":422,"detail":"one problem","problems":[{"path":"./title","message":"is missing"}]}`)
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	_, twice := in.filed[key]
	in.filed[key] = string(body)
	in.posts++
	w.Header().Set("Location", in.server.URL+"/api/messages/x")
	in.write(w, 202, "application/json", `{"id":"AQ%d","stage":"queued","key":"/a","lane":0,"sequence":1,"acceptedAt":"2026-01-08T12:00:00Z","duplicate":%t}`, in.posts, twice)
}

// files writes n messages, and gives their directory.
func files(t *testing.T, n int) string {
	t.Helper()
	dir := t.TempDir()
	for i := range n {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%03d.xml", i)), fmt.Appendf(nil, "<a n='%d'/>", i), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestSend(t *testing.T) {
	t.Parallel()
	in, dir := newFakeIntake(t), files(t, 20)
	in.run("send", dir+"/*.xml").is(t, exitOK, "20 files: 20 accepted\n", "")
	in.run("send", "-p", "1", filepath.Join(dir, "000.xml"), filepath.Join(dir, "01*.xml")).is(t, exitOK, "11 files: 0 accepted, 11 there already\n", "")
	if len(in.filed) != 20 {
		t.Errorf("%d messages were filed", len(in.filed))
	}
	in.run("send", "--wait", dir+"/00*.xml").is(t, exitOK, "10 files: 0 accepted, 10 there already; 10 delivered\n", "")
}

func TestSend_JSON(t *testing.T) {
	t.Parallel()
	in, dir := newFakeIntake(t), files(t, 3)
	bad := filepath.Join(dir, "bad.xml")
	if err := os.WriteFile(bad, []byte("<bad/>"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := in.run("send", "--json", "--wait", dir+"/*.xml")
	d.is(t, exitRefused, `{"file":"`+bad+`","error":"one problem","status":422,"problems":[{"path":"./title","message":"is missing"}]}`, "")
	lines := d.lines(t)
	if len(lines) != 5 || fmt.Sprint(lines[4]["summary"]) != "map[accepted:3 duplicates:0 files:4 notSent:0 refused:1 stages:map[delivered:3] unread:0]" {
		t.Errorf("got %v, want four files and the summary", lines)
	}
	if last := lines[3]; last["stage"] != "delivered" || last["id"] == "" || last["duplicate"] != false {
		t.Errorf("got %v, want a delivered message that is no duplicate", last)
	}
}

func TestSend_WhatIsRefusedIsNamed(t *testing.T) {
	t.Parallel()
	in, dir := newFakeIntake(t), files(t, 2)
	if err := os.WriteFile(filepath.Join(dir, "bad.xml"), []byte("<bad/>"), 0o600); err != nil {
		t.Fatal(err)
	}
	in.run("send", dir+"/*.xml").is(t, exitRefused, "3 files: 2 accepted, 1 refused\n", "bad.xml: 422 Unprocessable Entity: one problem; ./title is missing\n")
}

func TestSend_WhatDiesIsNamed(t *testing.T) {
	t.Parallel()
	in, dir := newFakeIntake(t), files(t, 2)
	in.ends = "dead"
	in.run("send", "--wait", dir+"/*.xml").is(t, exitFailed, "2 files: 2 accepted; 2 dead\n", "AQ2 is dead\n")
	in.ends = "queued"
	in.run("send", "--wait=1ms", dir+"/*.xml").is(t, exitFailed, "2 queued\n", "the time for waiting is over")
}

func TestSend_AFileThatCannotBeRead(t *testing.T) {
	t.Parallel()
	in, dir := newFakeIntake(t), files(t, 2)
	if err := os.Symlink("/proc/self/mem", filepath.Join(dir, "unreadable.xml")); err != nil {
		t.Fatal(err)
	}
	in.run("send", dir+"/*.xml").is(t, exitFailed, "3 files: 2 accepted, 1 not readable\n", "unreadable.xml: ")
}

func TestSend_Stdin(t *testing.T) {
	t.Parallel()
	in := newFakeIntake(t)
	s, stdout, stderr := in.console()
	s.stdin = strings.NewReader("<a/>")
	commandResult{s.runCommand(t.Context(), []string{"send", "-"}), stdout.String(), stderr.String()}.is(t, exitOK, "1 file: 1 accepted\n", "")
	if in.filed[remote.IdempotencyKey([]byte("<a/>"))] != "<a/>" {
		t.Errorf("got %v, want the body of stdin", in.filed)
	}
}

// Of each two requests one is answered with 503, 429, 500 without a body, a broken
// connection, or by an answer that is lost after the message was filed.
func TestSend_TriesAgain(t *testing.T) {
	t.Parallel()
	in, dir := newFakeIntake(t), files(t, 20)
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
			in.post(&lost{http.Header{}}, r)
			panic(http.ErrAbortHandler)
		default:
			return false
		}
		return true
	}
	d := in.run("send", dir+"/*.xml")
	if d.code != exitOK || len(in.filed) != 20 || !strings.Contains(d.out, "there already") {
		t.Errorf("%+v, %d filed", d, len(in.filed))
	}
}

// lost is an answer that nobody gets.
type lost struct{ header http.Header }

func (l *lost) Header() http.Header         { return l.header }
func (l *lost) Write(p []byte) (int, error) { return len(p), nil }
func (l *lost) WriteHeader(int)             {}

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
			in, dir := newFakeIntake(t), files(t, 50)
			in.spoil = func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(c.status); return true }
			in.run("send", "--give-up", "20ms", dir+"/*.xml").is(t, c.code, "50 files: 0 accepted, 50 not sent\n", c.says)
			if c.code != exitUnavailable && strings.Count(in.requests(), "\n") > 8 {
				t.Errorf("got a request for every file, want the command to stop:\n%s", in.requests())
			}
		})
	}
}

func TestSend_InterruptedAndResumed(t *testing.T) {
	t.Parallel()
	in, dir := newFakeIntake(t), files(t, 50)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reached, interrupted := make(chan struct{}, 50), make(chan struct{})
	in.spoil = func(http.ResponseWriter, *http.Request) bool {
		if reached <- struct{}{}; len(reached) == 20 {
			cancel()
			close(interrupted)
		} else if len(reached) > 20 {
			<-interrupted // under way as it is interrupted: it is finished
		}
		return false
	}
	s, stdout, stderr := in.console()
	began := time.Now()
	first := commandResult{s.runCommand(ctx, []string{"send", dir + "/*.xml"}), stdout.String(), stderr.String()}
	filed := len(in.filed)
	first.is(t, exitFailed, fmt.Sprintf("50 files: %d accepted, %d not sent\n", filed, 50-filed), "interrupted; send the same files again")
	if filed < 20 || filed > 24 || time.Since(began) > s.gracePeriod/2 {
		t.Errorf("%d filed after %s", filed, time.Since(began))
	}
	in.spoil = nil
	in.run("send", dir+"/*.xml").is(t, exitOK, fmt.Sprintf("50 files: %d accepted, %d there already\n", 50-filed, filed), "")
	if len(in.filed) != 50 {
		t.Errorf("%d messages were filed", len(in.filed))
	}
}

func TestSend_InterruptedWhileWaitingToTryAgain(t *testing.T) {
	t.Parallel()
	in, dir := newFakeIntake(t), files(t, 5)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in.spoil = func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Retry-After", "240")
		w.WriteHeader(http.StatusServiceUnavailable)
		cancel()
		return true
	}
	s, stdout, stderr := in.console()
	began := time.Now()
	commandResult{s.runCommand(ctx, []string{"send", dir + "/*.xml"}), stdout.String(), stderr.String()}.is(t, exitFailed, "5 not sent", "interrupted")
	if took := time.Since(began); took > s.gracePeriod/2 {
		t.Errorf("ended after %s, want it within half of %s", took, s.gracePeriod)
	}
}

func TestSend_InterruptedWhileWaiting(t *testing.T) {
	t.Parallel()
	in, dir := newFakeIntake(t), files(t, 5)
	in.ends = "queued"
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in.spoil = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet {
			cancel()
		}
		return false
	}
	s, stdout, stderr := in.console()
	d := commandResult{s.runCommand(ctx, []string{"send", "--wait", "--json", dir + "/*.xml"}), stdout.String(), stderr.String()}
	if lines := d.lines(t); d.code != exitFailed || len(lines) != 6 || lines[4]["stage"] != "queued" || lines[5]["summary"] == nil {
		t.Errorf("got %+v, want six lines, the last one the summary", d)
	}
}

func TestSend_InterruptedWhileReadingStdin(t *testing.T) {
	t.Parallel()
	in := newFakeIntake(t)
	ctx, cancel := context.WithCancel(t.Context())
	s, stdout, stderr := in.console()
	r, w := io.Pipe()
	s.stdin = r
	go func() {
		w.Write([]byte("<a>")) // is read, and its end never comes
		cancel()
	}()
	commandResult{s.runCommand(ctx, []string{"send", "-"}), stdout.String(), stderr.String()}.is(t, exitFailed, "1 not sent", "interrupted")
	w.Close()
}
