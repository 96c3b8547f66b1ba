package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"weir/internal/testkit/settings"
)

// serveProcess is a process of weir serve.
type serveProcess struct {
	s       *system
	cmd     *exec.Cmd
	address string // address from the log; "" = the process ended before it listened
	ended   chan struct{}

	mu    sync.Mutex
	lines []string // lines of the log
}

// newServeSystem starts the demo CMS, and makes a folder with the settings of the tests. yaml has
// replacements in weir.yaml: old and new text in turn.
func newServeSystem(t *testing.T, yaml ...string) (s *system, config, data string) {
	t.Helper()
	t.Parallel()
	s = newSystemOn(t, nil)
	s.startCMS(usualLatency)
	dir := t.TempDir()
	config, data = filepath.Join(dir, "weir.yaml"), filepath.Join(dir, "data")
	writeFile(t, config, strings.NewReplacer(yaml...).Replace(settings.YAML), 0o600)

	return s, config, data
}

// command returns the program with the settings and the folder of a system.
func (s *system) serveCommand(config string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(built, "handler"), args...)
	connection := ""
	if s.storage != nil {
		connection = s.storage.ConnectionString()
	}

	cmd.Env = append(os.Environ(), "GOGC=", "AzureWebJobsStorage="+connection,
		"WEIR_CMS_URL="+s.cms+"/api/content", "WEIR_CONFIG="+config)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}

	return cmd
}

// startServe starts weir serve on a free port, and waits until it listens or ends. The cleanup of
// the test kills it.
func (s *system) startServe(config string, args ...string) *serveProcess {
	s.t.Helper()
	all := []string{"serve"}
	if !slices.Contains(args, "--listen") {
		all = append(all, "--listen", "127.0.0.1:0")
	}

	p := &serveProcess{s: s, cmd: s.serveCommand(config, append(all, args...)...),
		ended: make(chan struct{})}
	out, in := io.Pipe()
	p.cmd.Stdout, p.cmd.Stderr = in, in
	if err := p.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}

	listening := make(chan string, 1)
	go p.readLog(out, listening)
	go func() { p.cmd.Wait(); in.Close() }()
	s.t.Cleanup(func() { p.cmd.Process.Kill(); <-p.ended })

	select {
	case p.address = <-listening:
	case <-p.ended:
	}

	return p
}

// readLog keeps the lines of the log, and sends the address of the first one.
func (p *serveProcess) readLog(out io.Reader, listening chan<- string) {
	defer close(p.ended)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		fmt.Fprintln(p.s.output, lines.Text())
		p.mu.Lock()
		p.lines = append(p.lines, lines.Text())
		p.mu.Unlock()
		var entry struct{ Msg, Detail string }
		if json.Unmarshal(lines.Bytes(), &entry) == nil && entry.Msg == "serve: started" {
			address, _, _ := strings.Cut(strings.TrimPrefix(entry.Detail, "listens on "), ",")
			listening <- address
		}
	}
}

// log returns the lines of the log so far.
func (p *serveProcess) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n")
}

// stop sends a signal, waits for the end, and returns the exit code.
func (p *serveProcess) stop(signal syscall.Signal) int {
	p.s.t.Helper()
	p.cmd.Process.Signal(signal)
	return p.wait()
}

// wait waits for the end of the process, and returns its exit code.
func (p *serveProcess) wait() int {
	p.s.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(slowdown * 10 * time.Second):
		p.s.t.Fatal("weir serve runs on, want it to end")
	}
	return p.cmd.ProcessState.ExitCode()
}

// plainClient checks no answers against openapi.yaml: the pages and the sign-in are not in it. It
// follows no redirects.
var plainClient = &http.Client{Timeout: slowdown * 10 * time.Second,
	Transport:     &http.Transport{MaxIdleConnsPerHost: 32},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// post posts an article, and returns the status and the body of the answer; 0 = there was none.
func (p *serveProcess) post(path string, version int, headers ...string) (status int, body []byte) {
	p.s.t.Helper()
	article := fmt.Sprintf(`<article path=%q version="%d"><title>T</title></article>`,
		path, version)
	return p.send(plainClient, http.MethodPost, "/api/messages", article,
		append([]string{"Content-Type", "application/xml"}, headers...)...)
}

// send sends a request. headers has names and values in turn.
func (p *serveProcess) send(client *http.Client, method, path, content string,
	headers ...string) (int, []byte) {
	p.s.t.Helper()
	req, err := http.NewRequestWithContext(p.s.t.Context(), method, p.address+path,
		strings.NewReader(content))
	if err != nil {
		p.s.t.Fatal(err)
	}

	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}

	resp, err := client.Do(req)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil
	}

	return resp.StatusCode, body
}

// mustPost posts an article, and returns the message's id.
func (p *serveProcess) mustPost(path string, version int, headers ...string) string {
	p.s.t.Helper()
	status, body := p.post(path, version, headers...)
	var m postedMessage
	if err := json.Unmarshal(body, &m); status != http.StatusAccepted || err != nil {
		p.s.t.Fatalf("got %d %s for a post, want 202", status, body)
	}
	return m.ID
}

// awaitStage waits until a message has a stage.
func (p *serveProcess) awaitStage(id, stage string, headers ...string) {
	p.s.t.Helper()
	p.s.awaitCondition("the message is "+stage, 20*time.Second, func() bool {
		_, body := p.send(plainClient, http.MethodGet, "/api/messages/"+id, "", headers...)
		var m postedMessage
		return json.Unmarshal(body, &m) == nil && m.Stage == stage
	})
}

// A message goes from the post to the CMS, and the page and the status show it. The log has the
// reasons of the start and of the stop.
func TestServe_DeliversAndStops(t *testing.T) {
	s, config, data := newServeSystem(t)
	p := s.startServe(config, "--data", data)
	id := p.mustPost("/a", 1)
	p.awaitStage(id, "delivered")
	status, body := p.send(plainClient, http.MethodGet, "/api/dashboard/messages/"+id, "")
	if status != http.StatusOK ||
		!bytes.Contains(body, []byte("/a")) {
		t.Errorf("got %d for the page of the message, want 200 with its key", status)
	}

	for _, path := range []string{"/process", "/sweep", "/poison", "/inbox"} {
		if status, _ := p.send(plainClient, http.MethodPost, path, "{}"); status !=
			http.StatusNotFound {
			t.Errorf("got %d for %s, want 404: only the process itself calls this function",
				status, path)
		}
	}

	if code := p.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("got the exit code %d after SIGTERM, want 0", code)
	}

	for _, want := range []string{`"msg":"serve: started","reason":"command weir serve"`,
		`"msg":"serve: stopped","reason":"terminated signal received"`} {
		if !strings.Contains(p.log(), want) {
			t.Errorf("the log has no %s", want)
		}
	}

	again := s.startServe(config, "--data", data)
	again.awaitStage(id, "delivered")
	if st := s.readStats(); st.Writes != 1 {
		t.Errorf("got %d writes after a restart, want 1", st.Writes)
	}
}

func TestServe_NamesWrongSettings(t *testing.T) {
	s, config, data := newServeSystem(t, "lanes: 1 ", "lanes: 0 ", "method: POST", "methud: POST")
	p := s.startServe(config, "--data", data)
	if code := p.wait(); code != 1 {
		t.Errorf("got the exit code %d, want 1", code)
	}

	for _, want := range []string{"lanes is 0", "methud"} {
		if !strings.Contains(p.log(), want) {
			t.Errorf("the log has no %q:\n%s", want, p.log())
		}
	}
}

// A second server on the folder is refused with the name of the first. Commands work beside the
// first, and after it.
func TestServe_HasTheFolderAlone(t *testing.T) {
	s, config, data := newServeSystem(t)
	p := s.startServe(config, "--data", data)
	p.awaitStage(p.mustPost("/a", 1), "delivered")
	second := s.startServe(config, "--data", data)
	want := fmt.Sprintf("weir serve has this folder open: process %d", p.cmd.Process.Pid)
	if code := second.wait(); code != 1 || !strings.Contains(second.log(), want) {
		t.Errorf("got the exit code %d and the log %s, want 1 and %q", code, second.log(), want)
	}

	for i := range 2 {
		for args, want := range map[string]string{"verify": "whole: 1 accepted, 0 waiting",
			"lanes": "Lanes: 1 (epoch 1)",
			"check": "table     ok  lanes: 1", "drain": "lane 0: empty"} {
			out, err := s.serveCommand(config, args, "--data", data).CombinedOutput()
			if err != nil || !strings.Contains(string(out), want) {
				t.Errorf("weir %s, round %d: %v\n%s\nwant %q", args, i, err, out, want)
			}
		}

		if i == 0 {
			p.stop(syscall.SIGINT)
		}
	}

	missing := filepath.Join(t.TempDir(), "missing")
	if out, err := s.serveCommand(config, "verify", "--data", missing).CombinedOutput(); err ==
		nil ||
		!strings.Contains(string(out), "no store") {
		t.Errorf("weir verify on a folder that is not there: %v\n%s\nwant an error", err, out)
	}
}

// weir lanes changes the number of lanes beside the server. The server then ends with 200, so that
// its service manager starts it with the new setting.
func TestServe_ChangesLanes(t *testing.T) {
	s, config, data := newServeSystem(t)
	p := s.startServe(config, "--data", data)
	p.awaitStage(p.mustPost("/a", 1), "delivered")

	if out, err := s.serveCommand(config, "lanes", "3", "--data", data).CombinedOutput(); err !=
		nil {
		t.Fatalf("weir lanes 3: %v\n%s", err, out)
	}

	p.post("/b", 1) // lets the server notice the change at once
	if code := p.wait(); code != 200 {
		t.Errorf("got the exit code %d after the change, want 200", code)
	}

	writeFile(t, config, strings.Replace(settings.YAML, "lanes: 1 ", "lanes: 3 ", 1), 0o600)
	again := s.startServe(config, "--data", data)
	again.awaitStage(again.mustPost("/c", 1), "delivered")
}

// The server is killed three times while clients post. Each message that was answered 202 reaches
// the CMS, in the order of its key; a repeat has the id of the message that it repeats.
func TestServe_KilledInABurst(t *testing.T) {
	const clients, versions, kills = 8, 40, 3
	s, config, data := newServeSystem(t, "lanes: 1 ", "lanes: 4 ")
	var current atomic.Pointer[serveProcess]
	current.Store(s.startServe(config, "--data", data))
	accepted := make([]int, clients) // highest accepted version
	var posts atomic.Int32
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			for v := 1; v <= versions; v++ {
				key := fmt.Sprintf("c%d-v%d", c, v)
				s.awaitCondition("the post is accepted", startLimit, func() bool {
					status, _ := current.Load().post(fmt.Sprintf("/c/%d", c), v,
						"Idempotency-Key", key)
					return status == http.StatusAccepted || status == http.StatusOK
				})

				accepted[c] = v
				posts.Add(1)
			}
		})
	}

	for k := range kills {
		s.awaitCondition("more posts are accepted", startLimit, func() bool {
			return int(posts.Load()) >= (k+1)*clients*versions/(kills+1)
		})
		current.Load().stop(syscall.SIGKILL)
		current.Store(s.startServe(config, "--data", data))
	}

	all.Wait()

	s.awaitCondition("all messages are delivered", 60*time.Second, func() bool {
		delivered := map[string]bool{}
		for _, r := range s.readRequests() {
			if r.Status == http.StatusOK || r.Status == http.StatusCreated {
				delivered[r.ID] = true
			}
		}
		return len(delivered) == clients*versions
	})

	st := s.readStats()
	if st.Overlaps != 0 || st.Inversions != 0 || st.Duplicates != 0 {
		t.Errorf("the CMS's record: %+v, want no overlaps, inversions and duplicates", st)
	}

	if code := current.Load().stop(syscall.SIGTERM); code != 0 {
		t.Errorf("got the exit code %d, want 0", code)
	}

	if out, err := s.serveCommand(config, "verify", "--data", data).CombinedOutput(); err != nil {
		t.Errorf("weir verify: %v\n%s\nwant whole lanes", err, out)
	}

	t.Logf("%d messages, %d kills: %d repeats", clients*versions, kills, st.Repeats)
}

// While the disk is full, posts are refused and nothing is lost; when there is space again, posts
// are accepted without a restart.
func TestServe_FullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small disk")
	}

	s, config, _ := newServeSystem(t)
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=40m"); err != nil {
		t.Skip("no small disk can be mounted here: ", err)
	}

	t.Cleanup(func() { syscall.Unmount(disk, 0) })
	p := s.startServe(config, "--data", filepath.Join(disk, "data"))
	p.awaitStage(p.mustPost("/a", 1), "delivered")

	s.setFaults(`{"down": true}`)
	filler := filepath.Join(disk, "filler")
	fillDisk(t, filler)
	accepted, refused := []string{}, 0
	body := strings.Repeat("x", 200<<10)
	for n := 0; refused < 3 && n < 400; n++ {
		content := fmt.Sprintf(
			`<article path="/full/%d" version="1"><title>T</title><!--%s--></article>`, n, body)
		status, answer := p.send(
			plainClient,
			http.MethodPost,
			"/api/messages",
			content,
			"Content-Type",
			"application/xml",
		)
		switch status {
		case http.StatusAccepted:
			var m postedMessage
			if err := json.Unmarshal(answer, &m); err != nil {
				t.Fatal(err)
			}
			accepted = append(accepted, m.ID)

		case http.StatusServiceUnavailable:
			refused++
		default:
			t.Fatalf("got %d %s on a full disk, want 202 or 503", status, answer)
		}
	}

	if refused == 0 {
		t.Error("got no refusal on a full disk, want 503")
	}

	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}

	s.setFaults(`{}`)
	s.awaitCondition("posts are accepted again", 20*time.Second, func() bool {
		status, _ := p.post("/b", 1, "Idempotency-Key", "after")
		return status == http.StatusAccepted || status == http.StatusOK
	})

	p.send(plainClient, http.MethodPost, "/api/resume", `{"all":true}`, "Content-Type",
		"application/json")
	for _, id := range accepted {
		p.awaitStage(id, "delivered")
	}
}

// fillDisk writes a file until the disk is full.
func fillDisk(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 64<<10)
	for {
		if _, err := f.Write(block); err != nil {
			return
		}
	}
}

// A function app and weir serve on one account share lanes and leases: each message is written
// once, and in the order of its key, whichever process accepted it.
func TestServe_BesideAFunctionApp(t *testing.T) {
	const keys, versions = 6, 10
	s := newSystem(t, 1, "lanes: 1 ", "lanes: 3 ")
	p := s.startServe(filepath.Join(s.app, "weir.yaml"), "--storage", "azure")
	host := &serveProcess{s: s, address: s.weir}
	var all sync.WaitGroup
	for k := range keys {
		all.Go(func() {
			for v := 1; v <= versions; v++ {
				to := p
				if (k+v)%2 == 0 {
					to = host
				}

				s.awaitCondition("the post is accepted", startLimit, func() bool {
					status, _ := to.post(fmt.Sprintf("/k/%d", k), v, "Idempotency-Key",
						fmt.Sprintf("%d-%d", k, v))
					return status == http.StatusAccepted || status == http.StatusOK
				})
			}
		})
	}

	all.Wait()
	s.awaitCondition("all messages are delivered", 60*time.Second,
		func() bool { return s.readStats().Writes >= keys*versions })

	if st := s.readStats(); st.Writes != keys*versions || st.Overlaps != 0 || st.Overtaken != 0 ||
		st.Repeats != 0 {
		t.Errorf("the CMS's record: %+v, want %d writes, none of them twice or out of order", st,
			keys*versions)
	}

	if code := p.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("got the exit code %d, want 0", code)
	}
}
