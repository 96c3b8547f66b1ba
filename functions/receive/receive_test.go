package receive_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"weir/functions/receive"
	"weir/internal/lane"
	"weir/internal/weir"
)

// fake is contracts, log and bell at once.
type fake struct {
	message weir.Message // as appended
	idem    string
	err     error // of Append
	rung    bool
}

func (f *fake) Accept(_ context.Context, contentType string, body []byte) (weir.Message, error) {
	return weir.Message{Key: "/a", ContentType: contentType, Body: body}, nil
}

func (f *fake) Append(_ context.Context, m weir.Message, idem string) (lane.Receipt, error) {
	f.message, f.idem = m, idem
	m.ID = weir.ID{Epoch: 1, Lane: 2, Seq: 3, Nonce: "00112233445566778899"}
	return lane.Receipt{Message: m, Stage: weir.Queued}, f.err
}
func (f *fake) RingSoon(int) { f.rung = true }

func serve(f *fake, change func(*http.Request)) *httptest.ResponseRecorder {
	fn := &receive.Function{Contracts: f, Log: f, Bell: f, MaxBody: 100, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
	r := httptest.NewRequest(http.MethodPost, "http://weir.example/api/messages?code=s3cret", strings.NewReader("<a/>"))
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	fn.ServeHTTP(w, r)
	return w
}

func TestFunction(t *testing.T) {
	t.Parallel()
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	t.Run("Accepted", func(t *testing.T) {
		t.Parallel()
		f := &fake{}
		w := serve(f, func(r *http.Request) {
			r.Header.Set("Idempotency-Key", "k-1")
			r.Header.Set("Traceparent", parent)
			r.Header.Set("X-Forwarded-Proto", "https")
		})
		var got map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		for _, field := range []string{"id", "stage", "key", "lane", "sequence", "acceptedAt", "duplicate"} {
			if _, ok := got[field]; !ok {
				t.Errorf("%s is missing in %v", field, got)
			}
		}
		if want := "https://weir.example/api/messages/" + got["id"].(string); w.Code != 202 || w.Header().Get("Location") != want {
			t.Errorf("%d %s, want %s", w.Code, w.Header().Get("Location"), want)
		}
		if f.idem != "k-1" || f.message.TraceParent != parent || !f.rung || strings.Contains(w.Header().Get("Location"), "s3cret") {
			t.Errorf("%+v", f)
		}
	})
	t.Run("StorageDown", func(t *testing.T) {
		t.Parallel()
		f := &fake{err: &weir.Error{Kind: weir.Unavailable, Message: "away"}}
		if w := serve(f, nil); w.Code != 503 || w.Header().Get("Retry-After") == "" || f.rung {
			t.Errorf("%d %v", w.Code, w.Header())
		}
	})
	t.Run("TooLarge", func(t *testing.T) {
		t.Parallel()
		if w := serve(&fake{}, func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(strings.Repeat("x", 101))) }); w.Code != 413 {
			t.Errorf("%d", w.Code)
		}
	})
	t.Run("BadIdempotencyKeys", func(t *testing.T) {
		t.Parallel()
		for _, values := range [][]string{{""}, {"a b"}, {"ä"}, {strings.Repeat("x", 256)}, {"a", "b"}} {
			if w := serve(&fake{}, func(r *http.Request) { r.Header["Idempotency-Key"] = values }); w.Code != 400 {
				t.Errorf("%q: %d", values, w.Code)
			}
		}
	})
	t.Run("AnInvalidTraceParentIsDropped", func(t *testing.T) {
		t.Parallel()
		for _, value := range []string{"x", "01" + parent[2:], strings.Replace(parent, "0af7651916cd43dd8448eb211c80319c", strings.Repeat("0", 32), 1), strings.ToUpper(parent)} {
			f := &fake{}
			serve(f, func(r *http.Request) { r.Header.Set("Traceparent", value) })
			if f.message.TraceParent != "" {
				t.Errorf("%q was kept", value)
			}
		}
	})
	t.Run("AForwardedHostThatIsNoneIsIgnored", func(t *testing.T) {
		t.Parallel()
		w := serve(&fake{}, func(r *http.Request) { r.Header.Set("X-Forwarded-Host", "evil.example/x?") })
		if !strings.HasPrefix(w.Header().Get("Location"), "http://weir.example/") {
			t.Error(w.Header().Get("Location"))
		}
	})
}
