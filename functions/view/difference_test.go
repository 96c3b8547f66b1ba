package view_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weir/functions/view"
	"weir/internal/httpio"
	"weir/internal/weir"
)

// bodies has the bodies of one message. If the field "edited" is empty, the message was not edited.
type bodies struct{ accepted, edited string }

func (b bodies) LoadMessage(context.Context, weir.ID) (weir.Message, error) {
	return weir.Message{ContentType: "application/xml", Body: []byte(b.accepted)}, nil
}

func (b bodies) LoadEditedMessage(context.Context, weir.ID) (weir.Message, error) {
	if b.edited == "" {
		return weir.Message{},
			&weir.Error{Kind: weir.NotFound, Op: "load", Message: "the message was not edited"}
	}
	return weir.Message{ContentType: "application/xml", Body: []byte(b.edited)}, nil
}

// sizedBody returns a body of n bytes, which is one element.
func sizedBody(name string, n int) string {
	return "<" + name + ">" + strings.Repeat("x", n-5-2*len(name)) + "</" + name + ">"
}

// Comparisons wait for a turn. If none becomes free in time, the answer is 503, and no body is
// read.
func TestDifference_WaitsForATurn(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.Handle("/api/messages/{id}/difference",
		&view.Difference{Turns: noTurns{}, Logger: slog.New(slog.DiscardHandler)})
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet,
		"/api/messages/"+weir.ID{Epoch: 1, Seq: 3, Nonce: "00112233445566778899"}.String()+
			"/difference", nil))

	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "5" {
		t.Errorf("got %d with Retry-After %q, want 503 with 5", w.Code,
			w.Header().Get("Retry-After"))
	}
}

// noTurns has no turn.
type noTurns struct{}

func (noTurns) Take(context.Context, int64) (func(), error) {
	return func() {}, &weir.Error{Kind: weir.Unavailable, Op: "turns", Message: "busy",
		RetryAfter: 5 * time.Second}
}

func TestDifference(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		bodies
		status int
		want   string
	}{
		"one line": {bodies{`<a path="/x"><title>Helo</title><text>long</text></a>`,
			`<a path="/x"><title>Hello</title><text>long</text></a>`}, 200,
			"--- accepted\n+++ edited\n@@ -1,4 +1,4 @@\n <a path=\"/x\">\n-  <title>Helo</title>\n+  <title>Hello</title>\n   <text>long</text>\n </a>\n"},
		"layout alone": {bodies{"<a><b/></a>", "<a>\n<b/></a>"}, 200,
			"--- accepted\n+++ edited\n@@ -1 +1,2 @@\n-<a><b/></a>\n\\ No newline at end of file\n+<a>\n+<b/></a>\n\\ No newline at end of file\n"},
		"nothing": {bodies{"<a/>", "<a/>"}, 200, ""},
		"Latin-1": {bodies{"<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><a>\xe4</a>",
			"<a>ö</a>"}, 200, "--- accepted\n+++ edited\n@@ -1 +1 @@\n-<a>ä</a>\n+<a>ö</a>\n"},
		"deep": {bodies{strings.Repeat("<a>", 40) + strings.Repeat("</a>", 40),
			strings.Repeat("<a>", 39) + "<b/>" + strings.Repeat("</a>", 39)}, 200,
			"--- accepted\n+++ edited\n@@ -37,7 +37,7 @@\n <a>\n <a>\n <a>\n-<a/>\n+<b/>\n </a>\n </a>\n </a>"},
		"1 MiB": {bodies{sizedBody("a", 512<<10), sizedBody("b", 512<<10)}, 200,
			"--- accepted\n+++ edited\n@@ -1 +1 @@\n-" + sizedBody("a", 512<<10) + "\n+" +
				sizedBody("b", 512<<10)},
		"over 1 MiB": {bodies{sizedBody("a", 512<<10), sizedBody("b", 512<<10+1)}, 413, ""},
		"not edited": {bodies{"<a/>", ""}, 404, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mux := http.NewServeMux()
			mux.Handle("/api/messages/{id}/difference",
				&view.Difference{Bodies: c.bodies, Turns: httpio.NewTurns(1 << 20),
					Logger: slog.New(slog.DiscardHandler)})
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet,
				"/api/messages/"+weir.ID{Epoch: 1, Seq: 3, Nonce: "00112233445566778899"}.String()+
					"/difference", nil))
			var got struct{ Difference string }
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != c.status ||
				strings.TrimSpace(got.Difference) != strings.TrimSpace(c.want) {
				t.Errorf("got %d %v:\n%s\nwant\n%s", w.Code, err, got.Difference, c.want)
			}
		})
	}
}
