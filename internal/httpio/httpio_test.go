package httpio_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weir/internal/httpio"
	"weir/internal/weir"
)

// answerTo calls WriteError with err. It returns the answer, the decoded JSON of the answer, and
// the log.
func answerTo(t *testing.T, err error) (w *httptest.ResponseRecorder, body map[string]any,
	log string) {
	t.Helper()
	var logged bytes.Buffer
	w = httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Add(httpio.InvocationHeader, "spoofed")
	r.Header.Add(httpio.InvocationHeader, "inv-1")
	httpio.WriteError(w, r, slog.New(slog.NewJSONHandler(&logged, nil)), err)
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatal(err)
	}

	return w, body, logged.String()
}

func TestWriteError(t *testing.T) {
	t.Parallel()
	t.Run("AForeignErrorIsNotShown", func(t *testing.T) {
		t.Parallel()
		w, body, logged := answerTo(t, errors.New("password=hunter2 refused"))
		if w.Code != 500 || strings.Contains(w.Body.String(), "hunter2") ||
			!strings.Contains(logged, "hunter2") ||
			body["invocationId"] != "inv-1" {
			t.Errorf("got %d %s and the log %s; want 500 without the cause, and the cause in the log", w.Code, w.Body,
				logged)
		}
	})

	t.Run("UnavailableHasARetryAfter", func(t *testing.T) {
		t.Parallel()
		w, body, _ := answerTo(t, fmt.Errorf("append: %w",
			&weir.Error{Kind: weir.Unavailable, Message: "storage is away",
				RetryAfter: 1500 * time.Millisecond, Err: errors.New("dial 10.0.0.1")}))
		if w.Code != 503 || w.Header().Get("Retry-After") != "2" ||
			body["detail"] != "storage is away" ||
			strings.Contains(w.Body.String(), "10.0.0.1") {
			t.Errorf("got %d %v %s; want 503, Retry-After 2 and only the safe message", w.Code,
				w.Header(), w.Body)
		}
	})

	t.Run("ProblemsAreListed", func(t *testing.T) {
		t.Parallel()
		w, body, logged := answerTo(t, &weir.Error{Kind: weir.Invalid, Message: "two problems",
			Problems: []weir.Problem{{Path: "./a", Rule: "required", Message: "is missing"},
				{Path: "./b", Message: "x"}}})
		if list, _ := body["problems"].([]any); w.Code != 422 || len(list) != 2 ||
			w.Header().Get("Content-Type") != "application/problem+json" || logged != "" {
			t.Errorf("got %d %s and the log %q; want 422 with two problems and an empty log",
				w.Code, w.Body, logged)
		}
	})
}

func TestNotModified(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]bool{"": false, `"12"`: true, `W/"12"`: true,
		`"11", "12"`: true, "*": true, `"1"`: false} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("If-None-Match", given)

		if got := httpio.NotModified(w, r, `W/"12"`); got != want ||
			w.Header().Get("ETag") != `"12"` {
			t.Errorf("%q: got %v and the ETag %s, want %v and the ETag \"12\"", given, got,
				w.Header().Get("ETag"), want)
		}
	}
}

func TestMiddleware_LogsTheStackOfAPanic(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	h := httpio.Middleware("receive", slog.New(slog.NewJSONHandler(&logged, nil)), time.Now,
		http.HandlerFunc(servePanic))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	if !strings.Contains(logged.String(), "httpio_test.servePanic") {
		t.Errorf("got the log %s\nwant the name of the function that panicked in it", &logged)
	}
}

// The line of a refused post must lead to the rule and to the sender, also through handlers that
// wrap the writer.
func TestMiddleware_LogsTheRuleAndTheKey(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&logged, nil))
	h := httpio.Middleware("receive", log, time.Now,
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			wrapped := wrappedWriter{w}
			httpio.NoteKeyID(wrapped, "3fa9c2d1")
			httpio.WriteError(wrapped, r, log, &weir.Error{Kind: weir.Invalid,
				Problems: []weir.Problem{{Path: "./@path", Rule: "max=200", Message: "secret"},
					{Path: "/", Rule: "xml"}}})
		}))

	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil))

	for _, want := range []string{`"status":422`, `"reason":"./@path max"`, `"key_id":"3fa9c2d1"`} {
		if !strings.Contains(logged.String(), want) || strings.Contains(logged.String(), "secret") {
			t.Errorf("got the log %s, want %s in it, and no message of a problem", &logged, want)
		}
	}
}

type wrappedWriter struct{ http.ResponseWriter }

func (w wrappedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func TestWriteJSON_LogsAnEncodingError(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	h := httpio.Middleware("status", slog.New(slog.NewJSONHandler(&logged, nil)), time.Now,
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			httpio.WriteJSON(w, http.StatusOK, time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))
		}))

	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))

	if w.Code != 500 || w.Header().Get("Content-Type") != "application/problem+json" ||
		strings.Contains(w.Body.String(), "year") ||
		!strings.Contains(logged.String(), "year outside of range") {
		t.Errorf("got %d %s and the log %s; want 500 without the cause, and the cause in the log",
			w.Code, w.Body, &logged)
	}
}

func servePanic(http.ResponseWriter, *http.Request) { panic("boom") }

func TestMiddleware_HidesPanicsAndKeys(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&logged, nil))
	h := httpio.Middleware("receive", log, time.Now,
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("boom") }))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/?code=s3cret", nil))

	if w.Code != 500 || strings.Contains(w.Body.String(), "boom") ||
		!strings.Contains(logged.String(), "boom") ||
		strings.Contains(logged.String(), "s3cret") {
		t.Errorf("got %d %s and the log %s; want 500 without the cause, and the cause without the key in the log",
			w.Code, w.Body, &logged)
	}
}

func TestAllowMethods(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	httpio.AllowMethods(http.NotFoundHandler(), "POST").ServeHTTP(w,
		httptest.NewRequest(http.MethodGet, "/", nil))
	if w.Code != 405 || w.Header().Get("Allow") != "POST" {
		t.Errorf("got %d %v, want 405 with Allow: POST", w.Code, w.Header())
	}
}

func TestReadBody(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("12345"))
	if _, err := httpio.ReadBody(httptest.NewRecorder(), r, 4); weir.KindOf(err) != weir.TooLarge {
		t.Errorf("got %v, want TooLarge", err)
	}

	r = httptest.NewRequest(http.MethodPost, "/", strings.NewReader("1234"))
	if body, err := httpio.ReadBody(httptest.NewRecorder(), r, 4); err != nil ||
		string(body) != "1234" {
		t.Errorf("got %q, %v; want the body 1234 and no error", body, err)
	}

	r = httptest.NewRequest(http.MethodPost, "/", strings.NewReader("1234"))
	r.Header.Set("Content-Encoding", "gzip")

	if body, err := httpio.ReadBody(httptest.NewRecorder(), r, 4); weir.KindOf(err) !=
		weir.Unsupported {
		t.Errorf("a body with a Content-Encoding: got %q, %v; want Unsupported", body, err)
	}
}
