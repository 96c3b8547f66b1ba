package cli

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

const (
	listedDead = `{"id":"AQABL714SFvJDd7dAA","stage":"dead","contract":"article","key":"/a","lane":0,"sequence":1,` +
		`"attempts":3,"acceptedAt":"2026-01-08T12:00:00Z","cmsStatus":422,"lastError":"no\u001b[31m","size":9,` +
		`"shown":{"title":"T","desk":"D"}}`
	listedDue = `{"id":"AQABL714SFvJDd7dAA","stage":"scheduled","contract":"article","key":"/b","lane":0,"sequence":2,` +
		`"attempts":0,"acceptedAt":"2026-01-08T12:00:00Z","deliverAt":"2030-01-01T00:00:00Z","size":9}`
)

func TestList_PrintsAllPages(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	f.answerJSON("GET /api/messages", 200,
		`{"messages":[`+listedDead+`],"looked":1,"complete":false,"continue":"t1"}`,
		`{"messages":[`+listedDue+`],"looked":1,"complete":true}`)
	got := f.runCommand("list", "--key-prefix", "/", "--cms-status", "4xx", "--finished-from",
		"2026-01-01T00:00:00Z", "--attempts-to", "9")
	got.expectEnd(t, exitOK, "desk: D; title: T", "")

	if strings.Contains(got.out, "\x1b") ||
		!strings.Contains(got.out, "2030-01-01 00:00:00Z  scheduled") {
		t.Errorf("got\n%q\nwant both messages without control characters", got.out)
	}

	const filter = "attemptsTo=9&cmsStatus=4xx"
	want := "GET /api/messages?" + filter +
		"&finishedFrom=2026-01-01T00%3A00%3A00Z&keyPrefix=%2F&limit=50 \n" +
		"GET /api/messages?" + filter +
		"&continue=t1&finishedFrom=2026-01-01T00%3A00%3A00Z&keyPrefix=%2F&limit=49 "
	if got := f.receivedRequests(); got != want {
		t.Errorf("got the requests\n%s\nwant\n%s", got, want)
	}
}

func TestList_ScheduledAndFiles(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	f.mux.HandleFunc("GET /api/scheduled", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("format") == "" {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"messages":[],"looked":0,"complete":true}`)
			return
		}

		w.Header().Set("Content-Type", "text/csv; charset=utf-8")
		io.WriteString(w, "id,stage\r\nx,scheduled\r\n")
	})

	f.runCommand("list", "--scheduled").expectEnd(t, exitOK, "No messages match.\n", "")
	f.runCommand("list", "--scheduled", "--lane", "0", "--format", "csv").expectEnd(t, exitOK,
		"id,stage\r\nx,scheduled\r\n", "")

	if got := f.receivedRequests(); !strings.HasSuffix(got,
		"GET /api/scheduled?format=csv&lane=0 ") {
		t.Errorf("got the requests\n%s\nwant the last one without a limit, so that the server's default applies", got)
	}

	for text, args := range map[string][]string{"--limit must be": {"--limit", "0"},
		"must be csv":    {"--format", "xml"},
		"--key is empty": {"--key", ""}, "--from is": {"--from", "noon"},
		"none of the others": {"--scheduled", "--key", "/a"}} {
		f.runCommand(append([]string{"list"}, args...)...).expectEnd(t, exitUsage, "", text)
	}
}

// If the connection breaks during the export, the command must end with an error.
func TestList_AFileThatIsCutOff(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	f.spoil = func(w http.ResponseWriter, _ *http.Request) bool {
		io.WriteString(w, "id,stage\r\n")
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}

	f.runCommand("list", "--format", "csv").expectEnd(t, exitUnavailable, "id,stage\r\n", "weir:")
}
