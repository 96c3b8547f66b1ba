package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// outdatedProblem is the answer to a "continue" from before a change of the number of lanes.
const outdatedProblem = `{"type":"about:blank","title":"Bad Request","status":400,"detail":"begin anew",` +
	`"problems":[{"path":"continue","rule":"outdated","message":"begin anew"}]}`

// answerOutdated answers each first page with the first text, and refuses the first "continue" as
// outdated. Later requests get the second text.
func (f *fakeServer) answerOutdated(pattern, first, later string) {
	isChanged := false
	f.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		f.mu.Lock()
		defer f.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")

		switch {
		case !isChanged && !r.URL.Query().Has("continue") &&
			!strings.Contains(string(body), `"continue"`):
			fmt.Fprint(w, first)
		case !isChanged:
			isChanged = true
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, outdatedProblem)

		default:
			fmt.Fprint(w, later)
		}
	})
}

// The number of lanes changes between two pages. Each command begins anew, prints each message
// once, and says so.
func TestCommands_BeginAnewIfTheLanesHaveChanged(t *testing.T) {
	t.Parallel()
	const (
		firstPage = `{"messages":[` + listedDead + `],"looked":1,"complete":false,"continue":"t1"}`
		allPages  = `{"messages":[` + listedDead + `,` + listedDue + `],"looked":2,"complete":true}`
		cancelled = `{"selected":2,"cancelled":1,"asked":1,"tooLate":0,"to":"2026-01-08T12:00:00Z","complete":`
		discarded = `{"selected":2,"asked":1,"tooLate":1,"to":"2026-01-08T12:00:00Z","complete":`
	)
	for name, c := range map[string]struct {
		pattern, first, later string
		args                  []string
		want                  string
		count                 int // how often the output has the text
	}{
		"List": {"GET /api/messages", firstPage, allPages, []string{"list"},
			"AQABL714SFvJDd7dAA", 2},
		"Dead": {"GET /api/messages", firstPage, allPages, []string{"dead", "list"},
			"AQABL714SFvJDd7dAA", 2},
		"Cancel": {"POST /api/cancellations", cancelled + `false,"continue":"t"}`,
			cancelled + `true}`,
			[]string{"cancel", "--key", "/a", "--dry-run"}, "2 messages would be cancelled.", 1},
		"Discard": {"POST /api/discards", discarded + `false,"continue":"t"}`, discarded + `true}`,
			[]string{"discard", "--key", "/a", "--dry-run"}, "2 messages would be discarded.", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFakeServer(t)
			f.answerOutdated(c.pattern, c.first, c.later)
			got := f.runCommand(c.args...)
			got.expectEnd(t, exitOK, c.want,
				"the number of lanes has changed meanwhile: beginning anew")
			if n := strings.Count(got.out, c.want); n != c.count {
				t.Errorf("got %q %d times, want %d times:\n%s", c.want, n, c.count, got.out)
			}
		})
	}
}

func TestTail_BeginsAnewIfTheLanesHaveChanged(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	line := func(id string) string {
		return fmt.Sprintf(`{"id":%q,"stage":"queued","contract":"a","key":"/a","lane":0,"sequence":1,"attempts":1,`+
			`"acceptedAt":"2026-01-08T12:00:00Z","size":3}`, id)
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reads := 0
	f.mux.HandleFunc("GET /api/messages", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch reads++; reads {
		case 1:
			fmt.Fprintf(w, `{"messages":[%s],"looked":1,"complete":true}`, line("A1"))
		case 2: // a page without a known message, so tail reads the next one
			fmt.Fprintf(w, `{"messages":[%s],"looked":1,"complete":false,"continue":"t"}`,
				line("A3"))
		case 3:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, outdatedProblem)

		case 4:
			fmt.Fprintf(w, `{"messages":[%s,%s,%s],"looked":3,"complete":true}`, line("A3"),
				line("A2"), line("A1"))
		default:
			cancel()
			fmt.Fprint(w, `{"messages":[],"looked":0,"complete":true}`)
		}
	})

	s, stdout, stderr := f.newConsole()
	code := s.runCommand(ctx, []string{"tail", "--interval", "100ms"})

	for _, id := range []string{"A1", "A2", "A3"} {
		if n := strings.Count(stdout.String(), id); n != 1 {
			t.Errorf("got %s %d times, want it once:\n%s", id, n, stdout.String())
		}
	}

	if code != exitOK || !strings.Contains(stderr.String(), "beginning anew") {
		t.Errorf("got the exit code %d and %q, want 0 and a note that tail begins anew", code,
			stderr.String())
	}
}
