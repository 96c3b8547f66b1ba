package audit_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/audit"
	"weir/internal/storage"
	"weir/internal/storage/memory"
	"weir/internal/weir"
)

// clock is a clock that a test sets.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

// newLog returns an audit log without entries, the audit log's clock, and the buffer with the
// process's log.
func newLog(t *testing.T) (*audit.Log, *clock, *bytes.Buffer) {
	t.Helper()
	c, out := &clock{time.Date(2026, 1, 8, 12, 0, 0, 0, time.UTC)}, &bytes.Buffer{}
	return &audit.Log{Table: memory.New(c.Now).Table(), Keep: 30 * 24 * time.Hour, Now: c.Now,
		Logger: slog.New(slog.NewTextHandler(out, nil))}, c, out
}

func readAll(t *testing.T, l *audit.Log, q audit.Query) (entries []audit.Entry) {
	t.Helper()
	for {
		page, err := l.Read(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}

		entries = append(entries, page.Entries...)
		if q.Continue = page.Continue; q.Continue == "" {
			return entries
		}
	}
}

func actionsOf(entries []audit.Entry) (actions []string) {
	for _, e := range entries {
		actions = append(actions, e.Action)
	}
	return actions
}

func TestLog_ReadsTheNewestFirst(t *testing.T) {
	t.Parallel()
	l, c, _ := newLog(t)
	for _, action := range []string{"pause", "resume", "cancel", "pause", "move"} {
		c.now = c.now.Add(time.Second)
		l.Record(t.Context(), audit.Entry{Action: action, Subject: "of " + action})
	}

	for name, want := range map[string]struct {
		query audit.Query
		want  []string
	}{
		"All": {audit.Query{Limit: 100},
			[]string{"move", "pause", "cancel", "resume", "pause"}},
		"InPages":  {audit.Query{Limit: 2}, []string{"move", "pause", "cancel", "resume", "pause"}},
		"ByAction": {audit.Query{Limit: 1, Action: "pause"}, []string{"pause", "pause"}},
		"Since": {audit.Query{Limit: 1, Since: c.now.Add(-2 * time.Second)},
			[]string{"move", "pause", "cancel"}},
		"BySubject": {audit.Query{Limit: 5, Subject: "of cancel"}, []string{"cancel"}},
	} {
		if got := actionsOf(readAll(t, l, want.query)); !slices.Equal(got, want.want) {
			t.Errorf("%s: got %v, want %v", name, got, want.want)
		}
	}
}

func TestLog_RemoveExpired(t *testing.T) {
	t.Parallel()
	l, c, _ := newLog(t)
	for range 250 {
		l.Record(t.Context(), audit.Entry{Action: "old"})
	}

	c.now = c.now.Add(29 * 24 * time.Hour)
	l.Record(t.Context(), audit.Entry{Action: "new"})

	if _, err := l.RemoveExpired(t.Context()); err != nil ||
		len(readAll(t, l, audit.Query{Limit: 500})) != 251 {
		t.Errorf("within the retention: got error %v or a removed entry, want no error and all 251 entries", err)
	}

	c.now = c.now.Add(2 * 24 * time.Hour)
	if _, err := l.RemoveExpired(t.Context()); err != nil {
		t.Fatal(err)
	}

	if got := actionsOf(readAll(t, l, audit.Query{Limit: 500})); !slices.Equal(got,
		[]string{"new"}) {
		t.Errorf("got %v, want the new entry alone", got)
	}
}

// broken is a table that fails each write.
type broken struct{ storage.Table }

func (broken) Transact(context.Context, string, []storage.Op) ([]storage.ETag, error) {
	return nil, &storage.Error{Op: "table", Kind: storage.Unavailable, Index: -1,
		Err: errors.New("away")}
}

// If storage refuses an entry, Record writes the entry to the process's log.
func TestLog_LogsEveryEntry(t *testing.T) {
	t.Parallel()
	l, _, out := newLog(t)
	l.Table = broken{l.Table}
	l.Record(t.Context(), audit.Entry{Action: "pause", Detail: `{"all":true}`, KeyID: "3fa9c2d1"})

	for _, want := range []string{"level=ERROR", "not recorded", "action=pause",
		"key_id=3fa9c2d1", "all"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got %s, want it to have %s", out, want)
		}
	}

	if _, err := l.Read(t.Context(), audit.Query{Limit: 1}); err != nil {
		t.Error(err)
	}
}

// request is a request to the wrapped handler, the handler's answer and the wanted entry.
type request struct {
	method, target, contentType, body string
	headers                           []string     // names and values alternately
	status                            int          // status of the answer
	want                              *audit.Entry // nil = no entry
}

func TestWrapper(t *testing.T) {
	t.Parallel()
	const id = "AQABL714SFvJDd7dAA"
	key := audit.Fingerprint("s3cret-key")
	for name, c := range map[string]request{
		"Pause": {"POST", "/api/pause", "application/json", `{"all":true,"reason":"r"}`,
			[]string{"X-Functions-Key", "s3cret-key", "X-Forwarded-For",
				"203.0.113.4, 198.51.100.7:5"}, 200,
			&audit.Entry{Action: "pause", Detail: `{"all":true,"reason":"r"}`, KeyID: key,
				From: "203.0.113.4, 198.51.100.7:5", Status: 200}},
		"KeyInTheAddress": {"POST", "/api/messages/" + id + "/replay?force=true&code=s3cret-key",
			"", "", nil, 202,
			&audit.Entry{Action: "replay", Subject: id, Detail: `{"force":"true"}`, KeyID: key,
				From: "192.0.2.1:1234", Status: 202}},
		"Edit": {"POST", "/api/messages/" + id + "/edit?note=shorter", "application/xml",
			"<s3cret/>", nil, 202,
			&audit.Entry{Action: "edit", Subject: id, Detail: `{"bodyBytes":9,"note":"shorter"}`,
				From:   "192.0.2.1:1234",
				Status: 202}},
		"Schedule": {"PUT", "/api/schedules/nightly", "application/json",
			`{"cron":"@daily","message":"<s3cret/>"}`,
			[]string{"If-Match", `"v1"`}, 201,
			&audit.Entry{Action: "schedule.put", Subject: "nightly",
				Detail: `{"cron":"@daily","ifMatch":"\"v1\"","messageBytes":9}`,
				From:   "192.0.2.1:1234", Status: 201}},
		"PauseOfASchedule": {"POST", "/api/schedules/nightly/pause", "", "", nil, 200,
			&audit.Entry{Action: "schedule.pause", Subject: "nightly", From: "192.0.2.1:1234",
				Status: 200}},
		"LargeSchedule": {"PUT", "/api/schedules/nightly", "application/json",
			`{"cron":"@daily","message":"` + strings.Repeat("s3cret", 20_000) + `"}`, nil, 200,
			&audit.Entry{Action: "schedule.put", Subject: "nightly", Detail: `{"bodyBytes":120030}`,
				From:   "192.0.2.1:1234",
				Status: 200}},
		"Move": {"PATCH", "/api/messages/" + id, "",
			`{"deliverAt":"2030-01-01T00:00:00Z"}`, nil, 200,
			&audit.Entry{Action: "move", Subject: id,
				Detail: `{"deliverAt":"2030-01-01T00:00:00Z"}`, From: "192.0.2.1:1234",
				Status: 200}},
		"PerhapsDone": {"DELETE", "/api/messages/" + id, "", "", nil, 503,
			&audit.Entry{Action: "cancel", Subject: id, From: "192.0.2.1:1234", Status: 503}},
		"SpoofedPrincipal": {"POST", "/api/resume", "", "",
			[]string{"X-MS-CLIENT-PRINCIPAL-NAME", "root"}, 200,
			&audit.Entry{Action: "resume", From: "192.0.2.1:1234", Status: 200}},
		"KeyInAnyCase": {"POST",
			"/api/messages/" + id + "/replay?CODE=s3cret-key&Code=other&clientID=s3cret",
			"", "", nil,
			202, &audit.Entry{Action: "replay", Subject: id, KeyID: key, From: "192.0.2.1:1234",
				Status: 202}},
		"JoinedKeys": {"POST", "/api/resume?code=s3cret-key,s3cret-junk", "application/json",
			`{"all":true}`, nil, 200,
			&audit.Entry{Action: "resume", Detail: `{"all":true}`, KeyID: key,
				From: "192.0.2.1:1234", Status: 200}},
		"UnknownParameter": {"POST", "/api/resume?key=s3cret", "application/json",
			`{"all":true}`, nil, 400, nil},
		"UnknownParameterOfAPreview": {"POST", "/api/schedules/nightly/preview?n=1", "", "{}",
			nil, 400, nil},
		"MessageInOtherCases": {"PUT", "/api/schedules/nightly", "application/json",
			`{"Cron":"s3cret","Message":"<s3cret/>","MESSAGE":"<s3cret/>","meſſage":"<s3cret/>"}`,
			nil, 503,
			&audit.Entry{Action: "schedule.put", Subject: "nightly", From: "192.0.2.1:1234",
				Status: 503}},
		"UnknownFields": {"POST", "/api/pause", "application/json",
			`{"key":{"message":"s3cret"},"until":["s3cret"],"filter":{"key":"s3cret"},"why":"s3cret","lane":3}`, nil, 500,
			&audit.Entry{Action: "pause", Detail: `{"lane":3}`, From: "192.0.2.1:1234",
				Status: 500}},
		"BulkCancel": {"POST", "/api/cancellations", "application/json",
			`{"filter":{"keyPrefix":"/a/","lane":0,"continue":"s3cret"},"reason":"r","continue":"s3cret"}`, nil, 202,
			&audit.Entry{Action: "cancel.many",
				Detail: `{"filter":{"keyPrefix":"/a/","lane":0},"reason":"r"}`,
				From:   "192.0.2.1:1234", Status: 202}},
		"DryRun": {"POST", "/api/cancellations", "application/json",
			`{"filter":{"key":"a"},"dryRun":true}`, nil, 200, nil},
		"NoDryRun": {"POST", "/api/cancellations", "application/json",
			`{"filter":{"key":"a"},"dryRun":false}`, nil, 200,
			&audit.Entry{Action: "cancel.many", Detail: `{"dryRun":false,"filter":{"key":"a"}}`,
				From: "192.0.2.1:1234", Status: 200}},
		"NoObject": {"POST", "/api/pause", "application/json", `["s3cret"]`, nil, 503,
			&audit.Entry{Action: "pause", Detail: `{"bodyBytes":10}`, From: "192.0.2.1:1234",
				Status: 503}},
		"LongOrigin": {"POST", "/api/resume", "", "",
			[]string{"X-Forwarded-For", strings.Repeat("9.9.9.9, ", 300) + "203.0.113.4"}, 200,
			&audit.Entry{Action: "resume",
				From:   "…" + strings.Repeat("9.9.9.9, ", 300)[2700-245:] + "203.0.113.4",
				Status: 200}},
		"Refused": {"POST", "/api/pause", "application/json", "{}", nil, 422, nil},
		"Read":    {"GET", "/api/schedules/nightly", "", "", nil, 200, nil},
		"Preview": {"POST", "/api/schedules/nightly/preview", "application/json", "{}",
			nil, 200, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, clock, out := newLog(t)
			serveWrapped(t, audit.Wrapper{Log: l}, c)
			got := readAll(t, l, audit.Query{Limit: 10})
			if c.want == nil {
				if len(got) > 0 {
					t.Errorf("got %+v, want no entry", got)
				}
				return
			}

			c.want.At, c.want.Function = clock.now, "write"
			if len(got) != 1 || got[0] != *c.want {
				t.Errorf("got %+v, want %+v", got, *c.want)
			}

			if strings.Contains(out.String(), "s3cret") {
				t.Errorf("got the log %s, want it without the secret", out)
			}
		})
	}
}

// serveWrapped sends a request through a wrapped handler that reads the body and answers.
func serveWrapped(t *testing.T, wrapper audit.Wrapper, c request) {
	t.Helper()
	h := wrapper.Wrap("write", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
		w.WriteHeader(c.status)
	}))

	mux := &http.ServeMux{}
	for _, path := range []string{"/api/pause", "/api/resume", "/api/messages/{id}",
		"/api/messages/{id}/replay",
		"/api/messages/{id}/edit", "/api/cancellations", "/api/schedules/{name}",
		"/api/schedules/{name}/preview",
		"/api/schedules/{name}/pause"} {
		mux.Handle(path, h)
	}

	r := httptest.NewRequest(c.method, c.target, strings.NewReader(c.body))
	r.Header.Set("Content-Type", c.contentType)
	for i := 0; i < len(c.headers); i += 2 {
		r.Header.Set(c.headers[i], c.headers[i+1])
	}

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	if w.Code != c.status {
		t.Errorf("got status %d, want %d", w.Code, c.status)
	}
}

// signIn is the sign-in of the template.
var signIn = audit.SignIn{IsRequired: true, OpenPaths: audit.DefaultOpenPaths}

// On a path that needs sign-in, the wrapper takes the person's name from the header
// X-MS-CLIENT-PRINCIPAL-NAME.
func TestWrapper_NamesThePersonWhoSignedIn(t *testing.T) {
	t.Parallel()
	l, _, _ := newLog(t)
	serveWrapped(t, audit.Wrapper{Log: l, SignIn: signIn},
		request{method: "POST", target: "/api/resume", status: 200,
			headers: []string{"X-MS-CLIENT-PRINCIPAL-NAME", "ada@example.org"}})

	if got := readAll(t, l, audit.Query{Limit: 10}); len(got) != 1 ||
		got[0].Principal != "ada@example.org" {
		t.Errorf("got %+v, want an entry of ada@example.org", got)
	}
}

func TestWrapper_AuthorOf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		signIn audit.SignIn
		header http.Header
		target string
		want   string
	}{
		"SignedIn": {signIn, http.Header{"X-Ms-Client-Principal-Name": {"ada"},
			"X-Functions-Key": {"k"}}, "/api/pause", "ada"},
		"OpenPath": {signIn, http.Header{"X-Ms-Client-Principal-Name": {"ada"},
			"X-Functions-Key": {"k"}}, "/api/Messages/x/edit", "key " + audit.Fingerprint("k")},
		"OtherOpenPath": {audit.SignIn{IsRequired: true, OpenPaths: []string{"/api/pause"}},
			http.Header{"X-Ms-Client-Principal-Name": {"ada"}}, "/api/pause", ""},
		"Spoofed": {audit.SignIn{OpenPaths: audit.DefaultOpenPaths}, http.Header{
			"X-Ms-Client-Principal-Name": {"ada"}, "X-Functions-Key": {"k"}}, "/",
			"key " + audit.Fingerprint("k")},
		"KeyInTheAddress": {signIn, nil, "/?Code=k&code=x", "key " + audit.Fingerprint("k")},
		"Unknown":         {signIn, nil, "/", ""},
	} {
		r := httptest.NewRequest(http.MethodPost, c.target, nil)
		r.Header = c.header
		if got := (audit.Wrapper{SignIn: c.signIn}).AuthorOf(r); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// The entry is stored before the client has the answer.
func TestWrapper_RecordsBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	l, _, _ := newLog(t)
	before := -1
	h := audit.Wrapper{Log: l}.Wrap("write",
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "done")
		}))

	w := &firstByte{ResponseRecorder: httptest.NewRecorder(), seen: func() {
		before = len(readAll(t, l, audit.Query{Limit: 10}))
	}}
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/api/pause", nil))
	if before != 1 {
		t.Errorf("got %d entries when the answer began, want 1", before)
	}
}

// firstByte is a recorder that calls seen when the answer begins.
type firstByte struct {
	*httptest.ResponseRecorder
	seen func()
}

func (f *firstByte) WriteHeader(status int) {
	f.seen()
	f.ResponseRecorder.WriteHeader(status)
}

func TestLog_ReadWithoutStorage(t *testing.T) {
	t.Parallel()
	l, _, _ := newLog(t)
	l.Table = unreadable{l.Table}
	if _, err := l.Read(t.Context(), audit.Query{Limit: 1}); weir.KindOf(err) != weir.Unavailable {
		t.Errorf("got %v, want Unavailable", err)
	}
}

// unreadable is a table that fails each read of a range.
type unreadable struct{ storage.Table }

func (unreadable) Range(context.Context, storage.Query) (storage.Page, error) {
	return storage.Page{}, &storage.Error{Op: "table", Kind: storage.Unavailable, Index: -1,
		Err: errors.New("away")}
}
