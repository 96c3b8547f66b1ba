package validate_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weir/functions/validate"
	"weir/internal/contract"
	"weir/internal/filing"
	"weir/internal/httpio"
	"weir/internal/testkit/ziptest"
)

func newFunction(set *contract.Set) *validate.Function {
	return &validate.Function{Contracts: set, Headers: &filing.Filer{},
		Intake:  httpio.NewIntake(1<<20, 200),
		MaxBody: 200, Now: func() time.Time { return time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC) },
		Logger: slog.New(slog.DiscardHandler)}
}

// A body is valid only if a post with the same headers would be accepted.
func TestFunction_ChecksTheHeadersOfAPost(t *testing.T) {
	t.Parallel()
	set, err := contract.New([]contract.Definition{{Name: "a", Root: "a"}},
		contract.Limits{MaxBody: 100})
	if err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		name, value string
		status      int
		want        string
	}{
		{"Content-Encoding", "gzip", 400, "not compressed by gzip"},
		{"Content-Encoding", "br", 415, "br"},
		{"Content-Encoding", "identity", 200, `"valid":true`},
		{"Idempotency_Key", "k", 400, "did you mean Idempotency-Key?"},
		{"Weir-Deliver-At", "noon", 400, "Weir-Deliver-At"},
		{"Weir-Deliver-After", "PT1H", 200, `"deliverAt":"2030-01-01T01:00:00Z"`},
		{"Weir-Upstream-Key", "k", 200, `"valid":true`},
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/api/validate", strings.NewReader("<a/>"))
		r.Header.Set(c.name, c.value)
		newFunction(set).ServeHTTP(w, r)

		if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s: %s: got %d %s, want %d with %q", c.name, c.value, w.Code, w.Body,
				c.status, c.want)
		}
	}
}

// A packed body is checked as a post would be: unpacked, and within maxBody.
func TestFunction_UnpacksGzip(t *testing.T) {
	t.Parallel()
	set, err := contract.New([]contract.Definition{{Name: "a", Root: "a"}},
		contract.Limits{MaxBody: 100})
	if err != nil {
		t.Fatal(err)
	}

	for name, c := range map[string]struct {
		body   []byte
		status int
	}{"good": {ziptest.Gzip("<a/>"), 200}, "bomb": {ziptest.Bomb(), 413},
		"over maxBody": {ziptest.Gzip("<a>" + strings.Repeat(" ", 200) + "</a>"), 413}} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/api/validate", bytes.NewReader(c.body))
		r.Header.Set("Content-Encoding", "gzip")
		newFunction(set).ServeHTTP(w, r)

		if w.Code != c.status {
			t.Errorf("%s: got %d %s, want %d", name, w.Code, w.Body, c.status)
		}
	}
}

func TestFunction(t *testing.T) {
	t.Parallel()
	set, err := contract.New([]contract.Definition{{Name: "article", Root: "article",
		Key: contract.KeyPaths{"./@id"}, Version: "./@v",
		DeliverAt: "./due", Fields: []contract.Field{{Path: "./title", Rule: "required"}}}},
		contract.Limits{MaxBody: 200})
	if err != nil {
		t.Fatal(err)
	}

	for name, c := range map[string]struct {
		kind, body string
		status     int
		want       string
	}{
		"Valid": {"application/xml",
			`<article id="/a" v="3"><title>T</title><due>2030-01-31T08:00:00+01:00</due></article>`,
			200, `{"valid":true,"contract":"article","key":"/a","version":"3","deliverAt":"2030-01-31T07:00:00Z"}`},
		"NoType": {"", `<article id="/a" v="3"><title>T</title></article>`, 200,
			`{"valid":true,"contract":"article","key":"/a","version":"3"}`},
		"Problems": {"text/xml", "<article v='3'>\n<due>noon</due></article>", 200,
			`{"valid":false,"contract":"article",` +
				`"version":"3","problems":[{"path":"./@id","rule":"required",` +
				`"message":"the ordering key is missing","line":1,"column":1},`},
		"NoContract": {"text/xml", "<note/>", 200,
			`{"valid":false,"problems":[{"path":"/","rule":"contract",` +
				`"message":"no contract accepts the root element note","line":1,"column":1}]}`},
		"NotXML": {"text/xml", "<article>", 200, `{"valid":false,"problems":[{"rule":"xml",` +
			`"message":"element <article> is not closed","line":1,"column":10}]}`},
		"Empty": {"text/xml", "", 200,
			`{"valid":false,"problems":[{"message":"the body is empty"}]}`},
		"Type": {"text/plain", "<article/>", 415, `"status":415`},
		"TooLarge": {"text/xml", strings.Repeat(" ", 201), 413,
			"the body is over 200 bytes (maxBody in weir.yaml)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFunction(set)
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodPost, "/api/validate", strings.NewReader(c.body))
			r.Header.Set("Content-Type", c.kind)
			f.ServeHTTP(w, r)
			if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
				t.Errorf("got %d %s\nwant %d with %s", w.Code, w.Body, c.status, c.want)
			}
		})
	}
}

func TestFunction_ClientIsGone(t *testing.T) {
	t.Parallel()
	set, err := contract.New([]contract.Definition{{Name: "a", Root: "a"}},
		contract.Limits{MaxBody: 100})
	if err != nil {
		t.Fatal(err)
	}

	f := newFunction(set)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	f.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/api/validate", strings.NewReader("<a/>")).WithContext(ctx))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("got %d %s, want 503", w.Code, w.Body)
	}
}
