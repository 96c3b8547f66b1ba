package view_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"weir/functions/view"
	"weir/internal/audit"
	"weir/internal/lane"
	"weir/internal/openapi"
	"weir/internal/openapi/openapitest"
	"weir/internal/overview"
	"weir/internal/weir"
)

var noon = time.Date(2026, 1, 8, 12, 0, 0, 0, time.UTC)

// source implements the readers of messages, lanes, errors, the audit log and bulk replays.
type source struct {
	filter overview.Filter    // the filter of the last search
	limit  int                // the limit of the last search, or of the last call of Clusters
	token  string             // the token of the last search
	due    overview.DueFilter // the filter of the last call of Scheduled
	query  audit.Query        // the last query of the audit log
	// the error of each method; a method that does not find an item returns NotFound instead
	fails error

	isLast      bool          // true = Search returns the last page
	failsBehind error         // the error of Search for every page except the first
	passTime    time.Duration // each call of Search adds passTime to the clock
	clock       time.Duration // the current time is noon plus clock
}

func (s *source) now() time.Time { return noon.Add(s.clock) }

func (s *source) Search(_ context.Context, f overview.Filter, limit int,
	token string) (overview.SearchResult, error) {
	s.filter, s.limit, s.token, s.clock = f, limit, token, s.clock+s.passTime
	found := overview.SearchResult{Messages: []weir.Status{message}, Examined: 7, BodiesSkipped: 2,
		Continue: "abc"}
	if s.isLast {
		found.Complete, found.Continue = true, ""
	}

	if token != "" && s.failsBehind != nil {
		return overview.SearchResult{}, s.failsBehind
	}

	return found, s.fails
}

func (s *source) Lanes(context.Context) ([]overview.Lane, error) {
	return []overview.Lane{busy,
		{Number: 1, Exact: true, DrainEstimate: overview.DrainEstimate{Known: true}}}, s.fails
}

func (s *source) Lane(_ context.Context, n int) (overview.Lane, error) {
	if n != 0 {
		return overview.Lane{}, &weir.Error{Kind: weir.NotFound, Message: "no such lane"}
	}
	return busy, s.fails
}

func (s *source) Clusters(_ context.Context, limit int) (overview.Clusters, error) {
	s.limit = limit
	return overview.Clusters{List: []overview.Cluster{{Fingerprint: "0123456789ab", Contract: "article", CMSStatus: 422,
		Message: "asset <n>", Count: 3, Keys: 2,
		First: noon, Last: noon.Add(time.Hour),
		Sample: overview.Sample{ID: "AQ", Key: "/a", Reason: "asset 1"}}},
		Examined: 3}, s.fails
}

func (s *source) Status(_ context.Context, id weir.ID) (weir.Status, error) {
	if id != message.Message.ID {
		return weir.Status{}, &weir.Error{Kind: weir.NotFound, Message: "no such message"}
	}
	return message, s.fails
}

func (s *source) LoadMessage(ctx context.Context, id weir.ID) (weir.Message, error) {
	st, err := s.Status(ctx, id)
	return st.Message, err
}

func (s *source) LoadEditedMessage(context.Context, weir.ID) (weir.Message, error) {
	return weir.Message{}, &weir.Error{Kind: weir.NotFound, Message: "the message was not edited"}
}

// frozen is a calendar that is always closed.
type frozen struct{}

func (frozen) At(time.Time) (bool, string, time.Time) { return true, "freeze", noon.Add(time.Hour) }
func (frozen) Next(time.Time) time.Time               { return noon.Add(time.Hour) }

// message is the only message of a source.
var message = weir.Status{
	Message: weir.Message{ID: weir.ID{Epoch: 1, Lane: 2, Seq: 3, Nonce: "00112233445566778899"},
		Key: `"><img src=x>`, Contract: "article", ContentType: "text/html",
		Shown: map[string]string{"title": "=1+1"},
		Body:  []byte("<script>alert(1)</script>"), Size: 25, AcceptedAt: noon},
	Stage: weir.Dead, AttemptCount: 30, LastError: "asset 1", CMSStatus: 422, FinishedAt: noon,
	Version: "W/\"7\"",
	Attempts: []weir.Attempt{{Number: 1, At: noon, Outcome: weir.OutcomeRejected, Status: 422,
		Reason: "asset 1", Body: "answer"}},
}

// busy is lane 0 of a source: it has a holder and waiting messages.
var busy = overview.Lane{
	At: noon, Accepted: 10, Counts: lane.Counts{Delivered: 4, Dead: 1}, Waiting: 5,
	Scheduled: 1, Queued: 3,
	Retrying: 1, OldestAt: noon.Add(-90 * time.Second),
	Rate1: overview.Rate{PerMinute: 2, Known: true}, Held: true, Holder: "host-1", Fence: 7,
	NextDue: noon.Add(time.Minute), LastError: "x", LastErrorAt: noon,
	Pauses: []weir.Pause{{Key: "/a", Reason: "legal", Since: noon}},
	PauseCause: overview.PauseCause{By: overview.ByCMS, Reason: "503",
		Until: noon.Add(time.Minute)},
}

// newReads returns a source, and a function that sends a GET request and returns the answer. The
// function's argument "header" has a name and a value for each header. The function checks each
// answer against the OpenAPI document, except an answer with the status 400.
func newReads(t *testing.T) (*source,
	func(address string, header ...string) *httptest.ResponseRecorder) {
	t.Helper()
	document, err := openapitest.Read(openapi.Document)
	if err != nil {
		t.Fatal(err)
	}

	s, log, mux := &source{}, slog.New(slog.DiscardHandler), http.NewServeMux()
	mux.Handle("/api/messages",
		&view.Messages{Source: s, Lanes: 4, ShownNames: []string{"desk", "title"}, Now: s.now,
			Logger: log})
	mux.Handle("/api/scheduled",
		&view.Scheduled{Source: s, Lanes: 4, ShownNames: []string{"desk", "title"}, Now: s.now,
			Logger: log})
	mux.Handle("/api/lanes", &view.Lanes{Source: s, Calendar: frozen{}, Now: s.now, Logger: log})
	mux.Handle("/api/lanes/{lane}", &view.Lane{Source: s, Logger: log})
	mux.Handle("/api/replays", &view.Replays{Jobs: s, Now: s.now, Logger: log})
	mux.Handle("/api/audit", &view.Audit{Reader: s, Now: s.now, Logger: log})
	mux.Handle("/api/errors", &view.Errors{Source: s, Now: s.now, Logger: log})
	mux.Handle("/api/messages/{id}/body", &view.Body{Bodies: s, Logger: log})
	mux.Handle("/api/messages/{id}/attempts", &view.Attempts{Source: s, Logger: log})

	return s, func(address string, header ...string) *httptest.ResponseRecorder {
		t.Helper()
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, address, nil)
		for i := 0; i+1 < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}

		mux.ServeHTTP(w, r)

		// some tests send wrong requests on purpose, which get a 400
		if w.Code != http.StatusBadRequest {
			for _, text := range document.Check(openapitest.Exchange{Request: r, Status: w.Code,
				Header: w.Header(), Received: w.Body.Bytes()}) {
				t.Errorf("GET %s breaks openapi.yaml: %s", address, text)
			}
		}

		return w
	}
}

func expectAnswer(t *testing.T, w *httptest.ResponseRecorder, code int, parts ...string) {
	t.Helper()
	if w.Code != code {
		t.Errorf("got %d %s, want %d", w.Code, w.Body, code)
	}

	for _, part := range parts {
		if !strings.Contains(w.Body.String(), part) {
			t.Errorf("got %s, want it with %s", w.Body, part)
		}
	}
}

func TestMessages(t *testing.T) {
	t.Parallel()
	s, ask := newReads(t)
	expectAnswer(t, ask("/api/messages"), 200, `"looked":7`, `"notSearched":2`, `"complete":false`,
		`"continue":"abc"`, `"size":25`, `"stage":"dead"`, `"lane":2`, `"shown":{"title":"=1+1"}`)

	if s.limit != 50 || s.filter != (overview.Filter{}) || s.token != "" {
		t.Errorf("got a search with %+v and limit %d, want no filter and limit 50",
			s.filter, s.limit)
	}

	q := url.Values{"stage": {"dead"}, "key": {"a&b=/ü'"}, "contract": {"article"}, "lane": {"3"},
		"from": {"2026-01-08T13:00:00+01:00"}, "to": {"2026-01-09T00:00:00Z"},
		"text": {"Straße"}, "fingerprint": {"0123456789ab"}, "limit": {"200"}, "continue": {"xyz"},
		"code": {"secret"}}

	expectAnswer(t, ask("/api/messages?"+q.Encode()), 200)
	f := s.filter
	if f.Lane == nil || *f.Lane != 3 {
		t.Errorf("got the filter's lane %v, want 3", f.Lane)
	}

	if f.Lane = nil; f != (overview.Filter{Stage: weir.Dead, Key: "a&b=/ü'", Contract: "article",
		From: noon, To: noon.Add(12 * time.Hour), Text: "Straße", Fingerprint: "0123456789ab"}) ||
		s.limit != 200 || s.token != "xyz" {
		t.Errorf("got a search with %+v, limit %d, token %q; want the filters of the address, limit 200, token xyz", f,
			s.limit, s.token)
	}

	expectAnswer(t, ask("/api/messages?keyPrefix=/n&version=3&cmsStatus=5xx&attemptsFrom=2&attemptsTo=4"+
		"&idempotencyKey=a-b&shown=title:A:b"+
		"&finishedFrom=2026-01-08T12:00:00Z&finishedTo=2026-01-09T00:00:00Z&sort=-attempts"), 200)

	if s.filter != (overview.Filter{KeyPrefix: "/n", Version: "3",
		CMSStatus:   overview.StatusRange{Low: 500, High: 599},
		MinAttempts: 2, MaxAttempts: 4, IdempotencyKey: "a-b",
		Shown:        overview.ShownFilter{Name: "title", Text: "A:b"},
		FinishedFrom: noon, FinishedTo: noon.Add(12 * time.Hour)}) {
		t.Errorf("got a search with %+v; want the filters of the address", s.filter)
	}

	s.fails = errors.New("password=hunter2")
	if w := ask("/api/messages"); w.Code != 500 || strings.Contains(w.Body.String(), "hunter2") {
		t.Errorf("got %d %s, want status 500 and no \"hunter2\"", w.Code, w.Body)
	}
}

func TestMessages_NamesAllThatIsWrong(t *testing.T) {
	t.Parallel()
	_, ask := newReads(t)
	w := ask("/api/messages?stage=gone&lane=4&from=yesterday&limit=0&stge=dead&key=" +
		strings.Repeat("k", 1025) + "&text=%ff&contract=a&contract=b")
	expectAnswer(t, w, 400, "must be one of scheduled, queued,", `"path":"stage"`, `"path":"lane"`,
		`"path":"from"`, `"path":"limit"`, `stge`, `"path":"key"`,
		`"path":"text"`, `"path":"contract"`)
	expectAnswer(t, ask("/api/messages?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z"), 400,
		`"path":"to"`)
	expectAnswer(t, ask("/api/messages?fingerprint=0123456789ab&stage=queued"), 400,
		`"path":"fingerprint"`)

	for _, name := range []string{"cmsStatus=6xx", "cmsStatus=99", "cmsStatus=ok", "attemptsFrom=0",
		"sort=size", "shown=title", "shown=:x",
		"attemptsTo=2&attemptsFrom=3",
		"finishedTo=2026-01-01T00:00:00Z&finishedFrom=2026-01-02T00:00:00Z"} {
		field, _, _ := strings.Cut(name, "=")
		expectAnswer(t, ask("/api/messages?"+name), 400, `"path":"`+field+`"`)
	}

	for _, query := range []string{"limit=201", "limit=x", "lane=-1", "lane=1.5",
		"to=10000-01-01T00:00:00Z"} {
		expectAnswer(t, ask("/api/messages?"+query), 400)
	}
}

func TestLanes(t *testing.T) {
	t.Parallel()
	s, ask := newReads(t)
	expectAnswer(t, ask("/api/lanes"), 200,
		`"totals":{"accepted":10,"delivered":4,"dead":1,"cancelled":0,"superseded":0,"discarded":0,"waiting":5}`,
		`"calendar":{"closed":true,"until":"2026-01-08T13:00:00Z","reason":"freeze",`+
			`"nextChange":"2026-01-08T13:00:00Z"}`,
		`"emptyInSeconds":0`)

	expectAnswer(t, ask("/api/lanes/0"), 200, `"oldestWaitingSeconds":90`, `"ratePerMinute1":2,`,
		`"pausedBy":"cms"`,
		`"pausedUntil":"2026-01-08T12:01:00Z"`, `"scope":"key"`, `"holder":"host-1"`,
		`"exact":false`)

	if w := ask("/api/lanes/0"); strings.Contains(w.Body.String(), "ratePerMinute15") ||
		strings.Contains(w.Body.String(), "emptyIn") {
		t.Errorf("got %s, want neither ratePerMinute15 nor emptyIn, which are unknown", w.Body)
	}

	for _, n := range []string{"9", "x", "-1", "99999999999999999999"} {
		expectAnswer(t, ask("/api/lanes/"+n), 404)
	}

	s.fails = &weir.Error{Kind: weir.Unavailable, Message: "away"}
	expectAnswer(t, ask("/api/lanes"), 503)
}

func TestErrors(t *testing.T) {
	t.Parallel()
	s, ask := newReads(t)
	expectAnswer(t, ask("/api/errors?limit=3"), 200, `"fingerprint":"0123456789ab"`,
		`"lastAt":"2026-01-08T13:00:00Z"`,
		`"sample":{"id":"AQ","key":"/a","reason":"asset 1"}`, `"complete":false`)
	if s.limit != 3 {
		t.Errorf("got the limit %d, want 3", s.limit)
	}

	expectAnswer(t, ask("/api/errors?limit=1000&order=up"), 400, `"path":"limit"`, "order")
}

func TestBody(t *testing.T) {
	t.Parallel()
	_, ask := newReads(t)
	id := message.Message.ID.String()
	w := ask("/api/messages/" + id + "/body")
	if w.Code != 200 || w.Body.String() != string(message.Message.Body) {
		t.Errorf("got %d %s, want status 200 and body %v", w.Code, w.Body,
			string(message.Message.Body))
	}

	for name, want := range map[string]string{
		"Content-Type": "text/html", "X-Content-Type-Options": "nosniff",
		"Cache-Control":           "no-store",
		"Content-Security-Policy": "sandbox; default-src 'none'",
		"Content-Disposition":     `attachment; filename="` + id + `.xml"`,
	} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s: got %q, want %v", name, got, want)
		}
	}

	if again := ask("/api/messages/"+id+"/body", "If-None-Match", w.Header().Get("ETag")); again.Code != 304 ||
		again.Body.Len() > 0 {
		t.Errorf("with its ETag: got %d, want status 304 and an empty body", again.Code)
	}

	expectAnswer(t, ask("/api/messages/"+id+"/body?which=edited"), 404)
	expectAnswer(t, ask("/api/messages/"+id+"/body?which=other"), 400)
	expectAnswer(t, ask("/api/messages/AAAA/body"), 404)
}

func TestAttempts(t *testing.T) {
	t.Parallel()
	_, ask := newReads(t)
	w := ask("/api/messages/" + message.Message.ID.String() + "/attempts")
	expectAnswer(t, w, 200, `"count":30`, `"outcome":"rejected"`, `"answer":"answer"`)

	if again := ask("/api/messages/"+message.Message.ID.String()+"/attempts", "If-None-Match",
		w.Header().Get("ETag")); again.Code != 304 {
		t.Errorf("with its ETag: got %d, want 304", again.Code)
	}

	expectAnswer(t, ask("/api/messages/nonsense/attempts"), 404)
}
