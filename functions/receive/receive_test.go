package receive_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/functions/receive"
	"weir/internal/await"
	"weir/internal/filing"
	"weir/internal/httpio"
	"weir/internal/lane"
	"weir/internal/testkit/ziptest"
	"weir/internal/weir"
)

// fake implements the interfaces of the function and of its Filer, except those of its Waits.
type fake struct {
	message     weir.Message // the message that was appended
	idem        string       // the idempotency key of the message
	err         error        // the error that Append returns
	duplicate   bool         // true = the log already has the message
	isDelivered bool         // the message is delivered
	rung        []bool       // for each call of Ring: true = the answer was already written
	answered    func() bool  // reports whether the answer was written; nil = never
	embargo     time.Time    // the due time in the body; zero = none
	hangs       bool         // Append waits until its context ends
	waits       *await.Waits
	refused     error    // the last error that the observer got
	senders     []string // the sender of each accepted post
}

func (f *fake) Refused(err error) { f.refused = err }

func (f *fake) Sent(sender string) { f.senders = append(f.senders, sender) }

func (f *fake) Accept(_ context.Context, contentType string, body []byte) (weir.Message, error) {
	return weir.Message{Key: "/a", ContentType: contentType, Body: body, DueAt: f.embargo}, nil
}

func (f *fake) Append(ctx context.Context, m weir.Message, idem string) (lane.Receipt, error) {
	if f.hangs {
		<-ctx.Done()
		return lane.Receipt{}, &weir.Error{Kind: weir.Unavailable, Message: "gave up"}
	}

	if err := ctx.Err(); err != nil {
		return lane.Receipt{}, err
	}

	f.message, f.idem = m, idem
	m.ID = weir.ID{Epoch: 1, Lane: 2, Seq: 3, Nonce: "00112233445566778899"}
	r := lane.Receipt{Message: m, Stage: weir.Queued, Duplicate: f.duplicate}
	if !m.DueAt.IsZero() {
		r.Stage = weir.Scheduled
	}

	if f.isDelivered {
		r.Stage = weir.Delivered
	}

	return r, f.err
}
func (f *fake) Check(address string) error {
	if address != "https://hooks.example.com/1" {
		return &weir.Error{Kind: weir.Invalid, Message: "not allowed"}
	}
	return nil
}

func (f *fake) Ring(int) { f.rung = append(f.rung, f.answered != nil && f.answered()) }

func (f *fake) newFunction() *receive.Function {
	return &receive.Function{Filer: &filing.Filer{Contracts: f, Callbacks: f, Log: f}, Waker: f,
		Waits: f.waits, Observer: f,
		Fingerprint: func(r *http.Request) string { return r.Header.Get("X-Functions-Key") },
		Intake:      httpio.NewIntake(1<<20, 100), Now: time.Now, MaxBody: 100,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
}

func serveReceive(f *fake, change func(*http.Request)) *httptest.ResponseRecorder {
	fn := f.newFunction()
	r := httptest.NewRequest(http.MethodPost, "http://weir.example/api/messages?code=s3cret",
		strings.NewReader("<a/>"))
	if change != nil {
		change(r)
	}

	w := httptest.NewRecorder()
	f.answered = func() bool { return w.Flushed }
	fn.ServeHTTP(w, r)

	return w
}

// Each accepted post counts for its sender, so that operators find the sender of a flood. A refused
// post does not.
func TestFunction_CountsSenders(t *testing.T) {
	t.Parallel()
	f := &fake{}
	serveReceive(f, func(r *http.Request) { r.Header.Set("X-Functions-Key", "3fa9c2d1") })
	serveReceive(f, nil)
	serveReceive(f, func(r *http.Request) { r.Header.Set("Idempotency-Key", "two words") })

	if !slices.Equal(f.senders, []string{"3fa9c2d1", "no key"}) || f.refused == nil {
		t.Errorf("got the senders %q and the refusal %v, want [3fa9c2d1, no key] and a refusal",
			f.senders, f.refused)
	}
}

func TestFunction_RingsOnceItHasAnswered(t *testing.T) {
	t.Parallel()
	f := &fake{}
	if serveReceive(f, nil); !slices.Equal(f.rung, []bool{true}) {
		t.Errorf("got for each ring whether the answer was written before it: %v; want [true]",
			f.rung)
	}

	f = &fake{duplicate: true} // the process that appended the message may have died before it rang
	if serveReceive(f, nil); len(f.rung) != 1 {
		t.Errorf("a repeated message that waits: got %d rings, want 1", len(f.rung))
	}

	f = &fake{duplicate: true, isDelivered: true}
	if serveReceive(f, nil); len(f.rung) != 0 {
		t.Errorf("a repeated message that is final: got %d rings, want none", len(f.rung))
	}

	f = &fake{}
	func() {
		defer func() { recover() }()
		f.newFunction().ServeHTTP(brokenWriter{httptest.NewRecorder()},
			httptest.NewRequest(http.MethodPost, "/api/messages", strings.NewReader("<a/>")))
	}()

	if len(f.rung) != 1 {
		t.Errorf("without an answer: got %d rings, want 1", len(f.rung))
	}
}

// brokenWriter is an answer that cannot be written.
type brokenWriter struct{ http.ResponseWriter }

func (brokenWriter) Write([]byte) (int, error) { panic(http.ErrAbortHandler) }

// parent is a valid traceparent.
const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestFunction_Accepted(t *testing.T) {
	t.Parallel()
	f := &fake{}
	w := serveReceive(f, func(r *http.Request) {
		r.Header.Set("Idempotency-Key", "k-1")
		r.Header.Set("Traceparent", parent)
		r.Header.Set("X-Forwarded-Proto", "https")
	})

	var got map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}

	for _, field := range []string{"id", "stage", "key", "lane", "sequence", "acceptedAt",
		"duplicate"} {
		if _, ok := got[field]; !ok {
			t.Errorf("got %v, want the field %s", got, field)
		}
	}

	if want := "https://weir.example/api/messages/" + got["id"].(string); w.Code != 202 ||
		w.Header().Get("Location") != want {
		t.Errorf("got %d and the Location %s, want 202 and %s", w.Code,
			w.Header().Get("Location"), want)
	}

	if f.idem != "k-1" || f.message.TraceParent != parent || len(f.rung) != 1 ||
		strings.Contains(w.Header().Get("Location"), "s3cret") {
		t.Errorf("got %+v and the Location %q; want idem k-1, TraceParent %v, one ring and no \"s3cret\" in "+
			"Location", f, w.Header().Get("Location"), parent)
	}
}

func TestFunction_StorageHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		w := serveReceive(&fake{hangs: true}, nil)
		if took := time.Since(began); w.Code != 503 || w.Header().Get("Retry-After") == "" ||
			took > 10*time.Second {
			t.Errorf("got %d with Retry-After %q after %s; want 503 with Retry-After within 10s",
				w.Code, w.Header().Get("Retry-After"), took)
		}
	})
}

func TestFunction_StorageDown(t *testing.T) {
	t.Parallel()
	f := &fake{err: &weir.Error{Kind: weir.Unavailable, Message: "away"}}
	if w := serveReceive(f, nil); w.Code != 503 || w.Header().Get("Retry-After") == "" ||
		len(f.rung) > 0 {
		t.Errorf("got %d %v, and %d rings; want status 503, a Retry-After and none", w.Code,
			w.Header(), len(f.rung))
	}
}

func TestFunction_TooLarge(t *testing.T) {
	t.Parallel()
	f := &fake{}
	w := serveReceive(f, func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(strings.Repeat("x", 101))) })
	if w.Code != 413 || weir.KindOf(f.refused) != weir.TooLarge {
		t.Errorf("got %d, and the observer got %v, want status 413 and an error of kind TooLarge",
			w.Code, f.refused)
	}
}

func TestFunction_ContentEncoding(t *testing.T) {
	t.Parallel()
	for coding, status := range map[string]int{"gzip": 400, "gzip, gzip": 415, "deflate": 415,
		"br": 415, "utf-8": 415, "identity": 202} {
		f := &fake{}
		w := serveReceive(f, func(r *http.Request) { r.Header.Set("Content-Encoding", coding) })
		if w.Code != status ||
			status == 415 && (!strings.Contains(w.Body.String(), coding[:2]) ||
				f.message.Body != nil) {
			t.Errorf("%s: got %d %s, filed %q; want %d with the coding's name", coding, w.Code,
				w.Body, f.message.Body, status)
		}
	}
}

// A packed body is filed unpacked.
func TestFunction_UnpacksGzip(t *testing.T) {
	t.Parallel()
	f := &fake{}
	w := serveReceive(f, packedBody(ziptest.Gzip("<a>unpacked</a>")))
	if w.Code != 202 || string(f.message.Body) != "<a>unpacked</a>" {
		t.Errorf("got %d %s, filed %q; want the unpacked body", w.Code, w.Body, f.message.Body)
	}
}

func packedBody(packed []byte) func(*http.Request) {
	return func(r *http.Request) {
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(packed)), -1
		r.Header.Set("Content-Encoding", "gzip")
	}
}

// A body is bounded before and after it is unpacked. A bomb needs more than 100 bytes.
func TestFunction_RefusesWhatUnpacksToTooMuch(t *testing.T) {
	t.Parallel()
	for name, packed := range map[string][]byte{
		"over maxBody": ziptest.Gzip("<a>" + strings.Repeat(" ", 200) + "</a>"),
		"bomb":         ziptest.Bomb(),
	} {
		f := &fake{}
		w := serveReceive(f, packedBody(packed))
		if w.Code != 413 || f.message.Body != nil || weir.KindOf(f.refused) != weir.TooLarge {
			t.Errorf("%s: got %d %s, filed %q; want 413 and nothing filed", name, w.Code, w.Body,
				f.message.Body)
		}
	}
}

func TestFunction_Callback(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []string
		code   int
	}{{[]string{"https://hooks.example.com/1"}, 202},
		{[]string{"https://elsewhere.example.com/"}, 422},
		{[]string{""}, 422}, {[]string{"https://hooks.example.com/1",
			"https://hooks.example.com/1"}, 400}} {
		f := &fake{}
		w := serveReceive(f, func(r *http.Request) { r.Header["Weir-Callback"] = c.values })
		if filed := f.message.Callback; w.Code != c.code || c.code == 202 && filed != c.values[0] ||
			c.code != 202 && filed != "" {
			t.Errorf("%q: got %d and the stored callback %q; want %d, and the value stored only with 202", c.values,
				w.Code,
				f.message.Callback, c.code)
		}
	}
}

func TestFunction_BadIdempotencyKeys(t *testing.T) {
	t.Parallel()
	for _, values := range [][]string{{""}, {"a b"}, {"ä"}, {strings.Repeat("x", 256)},
		{"a", "b"}} {
		if w := serveReceive(&fake{}, func(r *http.Request) { r.Header["Idempotency-Key"] = values }); w.Code != 400 {
			t.Errorf("%q: got %d, want 400", values, w.Code)
		}
	}
}

func TestFunction_AnInvalidTraceParentIsDropped(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"x", "01" + parent[2:],
		strings.Replace(parent, "0af7651916cd43dd8448eb211c80319c", strings.Repeat("0", 32), 1),
		strings.ToUpper(parent)} {
		f := &fake{}
		serveReceive(f, func(r *http.Request) { r.Header.Set("Traceparent", value) })
		if f.message.TraceParent != "" {
			t.Errorf("the trace parent %q was stored, want none", value)
		}
	}
}

func TestFunction_TraceState(t *testing.T) {
	t.Parallel()
	entry := func(key string) string { return key + "=" + strings.Repeat("v", 200) }
	for _, c := range []struct {
		parent string
		states []string
		want   string
	}{
		{parent, []string{"vendor=a1, other=b2"}, "vendor=a1,other=b2"},
		// one list in two headers
		{parent, []string{"vendor=a1", "other=b2"}, "vendor=a1,other=b2"},
		{parent, []string{entry("new"), entry("newer"), entry("old")},
			entry("new") + "," + entry("newer")},
		{parent, []string{"no entry"}, ""},
		{parent, []string{"twice=1,twice=2"}, ""},
		{"", []string{"vendor=a1"}, ""},
	} {
		f := &fake{}
		serveReceive(f, func(r *http.Request) {
			r.Header.Set("Traceparent", c.parent)
			r.Header["Tracestate"] = c.states
		})

		if f.message.TraceState != c.want || f.message.TraceParent != c.parent {
			t.Errorf("tracestate %q with traceparent %q: got %q, want TraceState %v and TraceParent %v", c.states,
				c.parent,
				f.message.TraceState, c.want, c.parent)
		}
	}
}

func TestFunction_IgnoresAnInvalidForwardedHost(t *testing.T) {
	t.Parallel()
	w := serveReceive(&fake{},
		func(r *http.Request) { r.Header.Set("X-Forwarded-Host", "evil.example/x?") })
	if !strings.HasPrefix(w.Header().Get("Location"), "http://weir.example/") {
		t.Errorf("got %v, want it to begin with \"http://weir.example/\"",
			w.Header().Get("Location"))
	}
}

func TestFunction_Due(t *testing.T) {
	t.Parallel()
	embargo := time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		header, value, query string
		embargo              time.Time
		status               int
		at, from             string
	}{
		"header": {header: "Weir-Deliver-At", value: "2030-01-31T08:00:00+01:00", status: 202,
			at: "2030-01-31T07:00:00Z", from: "header"},
		"query": {query: "deliverAt=2030-01-31T08:00:00%2B01:00", status: 202,
			at: "2030-01-31T07:00:00Z", from: "query"},
		"both": {header: "Weir-Deliver-At", value: "2030-01-31T08:00:00Z",
			query: "deliverAt=2031-01-01T00:00:00Z", status: 202, at: "2030-01-31T08:00:00Z",
			from: "header"},
		"message": {embargo: embargo, status: 202, at: "2040-01-01T00:00:00Z", from: "message"},
		"header first": {header: "Weir-Deliver-At", value: "2030-01-31T08:00:00Z", embargo: embargo,
			status: 202, at: "2030-01-31T08:00:00Z", from: "header"},
		"after":         {header: "Weir-Deliver-After", value: "P1D", status: 202, from: "header"},
		"after, query":  {query: "deliverAfter=90s", status: 202, from: "query"},
		"bad":           {header: "Weir-Deliver-At", value: "tomorrow", status: 400},
		"no offset":     {header: "Weir-Deliver-At", value: "2030-01-31T08:00:00", status: 400},
		"bad query":     {query: "deliverAfter=soon", status: 400},
		"both in query": {query: "deliverAfter=1s&deliverAt=2030-01-31T08:00:00Z", status: 400},
		"negative":      {header: "Weir-Deliver-After", value: "-1s", status: 400},
		"too far":       {header: "Weir-Deliver-After", value: "P9000Y", status: 400},
		"year 1": {header: "Weir-Deliver-At", value: "0001-01-01T00:00:00Z", embargo: embargo,
			status: 202, at: "1970-01-01T00:00:00Z", from: "header"},
		"none": {status: 202},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fake{embargo: c.embargo}
			w := serveReceive(f, func(r *http.Request) {
				if c.header != "" {
					r.Header.Set(c.header, c.value)
				}
				r.URL.RawQuery += "&" + c.query
			})

			var got struct {
				Stage         weir.Stage
				DeliverAt     time.Time
				DeliverAtFrom string
			}
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != c.status {
				t.Fatalf("got %d %s, %v, want status %v and no error", w.Code, w.Body,
					err, c.status)
			}

			if got.DeliverAtFrom != c.from ||
				(c.at != "" && got.DeliverAt.Format(time.RFC3339) != c.at) ||
				got.DeliverAt.IsZero() != (c.from == "") {
				t.Errorf("got %+v, want the due time %q from %q", got, c.at, c.from)
			}
		})
	}
}

// A cancelled append can still become durable. So the function finishes the append after a
// disconnect, and wakes the lane.
func TestFunction_ClientGone(t *testing.T) {
	t.Parallel()
	f := &fake{}
	serveReceive(f, func(r *http.Request) {
		gone, cancel := context.WithCancel(r.Context())
		cancel()
		*r = *r.WithContext(gone)
	})

	if f.message.Key != "/a" || len(f.rung) != 1 || f.refused != nil {
		t.Errorf("filed %+v, %d wakes, refused %v; want the message /a, one wake and no refusal",
			f.message, len(f.rung), f.refused)
	}
}
