// Package senders has the senders of the pages "From Node", "From Java" and "From Go". Its tests
// run them.
package senders

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// senders has the program of each sender, its source, and the page that shows the source.
var senders = map[string]struct {
	command      []string
	source, page string
}{
	"Node": {[]string{"node", "node/sender.mjs"}, "node/sender.mjs", "from-node.md"},
	"Java": {[]string{"java", "java/Sender.java"}, "java/Sender.java", "from-java.md"},
	"Go":   {[]string{"go", "run", "./gosender"}, "gosender/main.go", "from-go.md"},
}

const article = `<?xml version="1.0" encoding="UTF-8"?><article path="/s"><title>Größe 😀</title></article>`

// flaky is a Weir that closes a connection, answers 503 and 429, and then accepts.
type flaky struct {
	mu    sync.Mutex
	calls []*http.Request
	sent  []string
}

func (f *flaky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	f.calls, f.sent = append(f.calls, r), append(f.sent, string(body))
	call := len(f.calls)
	f.mu.Unlock()

	switch call {
	case 1:
		panic(http.ErrAbortHandler)
	case 2, 3:
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(map[int]int{2: 503, 3: 429}[call])
	default:
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, `{"id":"AQAB"}`)
	}
}

// Each sender posts until Weir has accepted the message, always with the same key and the same
// bytes. A machine without the language does not run its sender; Go and Node are needed by the
// other tests.
func TestSenders(t *testing.T) {
	t.Parallel()
	for name, s := range senders {
		if _, err := exec.LookPath(s.command[0]); err != nil && name == "Java" {
			t.Log("no Java here")
			continue
		}

		t.Run(name, func(t *testing.T) {
			t.Parallel()
			weir := &flaky{}
			server := httptest.NewServer(weir)
			t.Cleanup(server.Close)
			file := filepath.Join(t.TempDir(), "article.xml")
			if err := os.WriteFile(file, []byte(article), 0o600); err != nil {
				t.Fatal(err)
			}

			cmd := exec.CommandContext(t.Context(), s.command[0],
				append(s.command[1:], server.URL, file, "order-1")...)
			printed, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(printed), "AQAB") {
				t.Fatalf("got %s (%v), want the id", printed, err)
			}

			weir.check(t)
		})
	}
}

func (f *flaky) check(t *testing.T) {
	t.Helper()
	if len(f.calls) != 4 {
		t.Errorf("got %d posts, want 4", len(f.calls))
	}

	for i, r := range f.calls {
		if r.Header.Get("Idempotency-Key") != "order-1" || r.Header.Get("Prefer") != "wait=5" ||
			r.Header.Get("Content-Type") != "application/xml" || f.sent[i] != article {
			t.Errorf("post %d: got %v %q, want the same key, type and bytes each time", i+1,
				r.Header, f.sent[i])
		}
	}
}

// A sender that is refused for good does not try again.
func TestSenders_GiveUpAfterARefusal(t *testing.T) {
	t.Parallel()
	calls := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls++
		w.WriteHeader(http.StatusUnprocessableEntity)
	}))

	t.Cleanup(server.Close)
	cmd := exec.CommandContext(t.Context(), "node", "node/sender.mjs", server.URL,
		"node/sender.mjs", "order-1")
	if printed, err := cmd.CombinedOutput(); err == nil || calls != 1 {
		t.Errorf("got %d posts and %s, want 1 and an error", calls, printed)
	}
}

// The pages show the senders that the tests run.
func TestPages_ShowTheSenders(t *testing.T) {
	t.Parallel()
	for name, s := range senders {
		source, err := os.ReadFile(s.source)
		if err != nil {
			t.Fatal(err)
		}

		page, err := os.ReadFile(filepath.Join("..", "..", "docs", s.page))
		if err != nil {
			t.Fatal(err)
		}

		if !strings.Contains(string(page), "```\n") ||
			!strings.Contains(string(page), string(source)) {
			t.Errorf("%s does not show the sender in %s", s.page, name)
		}
	}
}
