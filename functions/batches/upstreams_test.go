package batches_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/functions/batches"
	"weir/internal/upstream"
)

const (
	newsroomKey   = "newsroom-0123456789abcdef"
	signingSecret = "0123456789abcdef0123456789" // the secret of the upstreams forge and shop
)

// postBatch posts the batch <a/> to a function that knows the upstreams newsroom, forge and shop.
func (f *runner) postBatch(query string, header http.Header) *httptest.ResponseRecorder {
	set := upstream.NewSet([]upstream.Definition{{Name: "newsroom", Keys: []string{newsroomKey}},
		{Name: "forge", Scheme: upstream.GitHub, Secrets: [][]byte{[]byte(signingSecret)}},
		{Name: "shop", Scheme: upstream.StandardWebhooks, Secrets: [][]byte{[]byte(signingSecret)},
			Tolerance: time.Minute},
	}, nil, time.Now, nil)

	function := &batches.Function{Batches: f, Upstreams: set, Memory: f, Observer: f,
		Logger: slog.New(slog.DiscardHandler)}
	r := httptest.NewRequest(http.MethodPost, "/api/batches"+query, strings.NewReader("<a/>"))
	r.Header = header
	w := httptest.NewRecorder()
	function.Post().ServeHTTP(w, r)

	return w
}

// signPost returns the headers of a post with this body. The upstream signs the post at the present
// time.
func signPost(name string, scheme upstream.Scheme, body string) http.Header {
	h := http.Header{}
	sender := upstream.Sender{Name: name, Scheme: scheme, Secret: []byte(signingSecret)}
	sender.AddTo(h, "id-1", time.Now(), []byte(body))
	return h
}

// Each upstream has one upload at a time. An upload of another upstream goes on beside it.
func TestPost_OneUploadOfEachUpstream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &runner{}
		set := upstream.NewSet(
			[]upstream.Definition{{Name: "newsroom", Keys: []string{newsroomKey}},
				{Name: "shop", Keys: []string{"shop-" + newsroomKey}}}, nil, time.Now, nil)
		post := (&batches.Function{Batches: f, Upstreams: set, Memory: f, Observer: f,
			Logger: slog.New(slog.DiscardHandler)}).Post()
		body := make(slowBody)
		send := func(key string, body io.Reader) int {
			r := httptest.NewRequest(http.MethodPost, "/api/batches", body)
			r.Header.Set("Weir-Upstream-Key", key)
			w := httptest.NewRecorder()
			post.ServeHTTP(w, r)
			return w.Code
		}

		var slow sync.WaitGroup
		slow.Go(func() { send(newsroomKey, body) })
		synctest.Wait()

		if code := send(newsroomKey, strings.NewReader("<a/>")); code !=
			http.StatusServiceUnavailable {
			t.Errorf("a second upload of the upstream: got %d, want 503", code)
		}

		if code := send("shop-"+newsroomKey, strings.NewReader("<a/>")); code !=
			http.StatusAccepted {
			t.Errorf("an upload of another upstream: got %d, want 202", code)
		}

		close(body)
		slow.Wait()
		if code := send(newsroomKey, strings.NewReader("<a/>")); code != http.StatusAccepted {
			t.Errorf("an upload afterwards: got %d, want 202", code)
		}
	})
}

func TestPost_OfUpstreams(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		query  string
		header http.Header
		name   string
		key    string
	}{{"?upstream=newsroom", http.Header{"Weir-Upstream-Key": {newsroomKey}}, "newsroom", ""},
		{"", signPost("forge", upstream.GitHub, "<a/>"), "forge", ""},
		{"", signPost("shop", upstream.StandardWebhooks, "<a/>"), "shop", "id-1"}} {
		f := &runner{}
		if w := f.postBatch(c.query, c.header); w.Code != http.StatusAccepted ||
			f.specs[0].Upstream != c.name ||
			f.specs[0].IdempotencyKey != c.key || f.bodies[0] != "<a/>" {
			t.Errorf("got %d %+v, want 202, the upstream %q and the idempotency key %q", w.Code,
				f.specs, c.name, c.key)
		}
	}
}

func TestPost_RefusesOtherSenders(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		query  string
		header http.Header
		status int
	}{"nothing": {"", http.Header{}, 401},
		"wrong key":      {"", http.Header{"Weir-Upstream-Key": {"x"}}, 401},
		"another body":   {"", signPost("forge", upstream.GitHub, "<b/>"), 401},
		"webhook's body": {"", signPost("shop", upstream.StandardWebhooks, "<b/>"), 401},
		"two names":      {"?upstream=forge", signPost("forge", upstream.GitHub, "<a/>"), 400},
		"due time": {"",
			http.Header{"Weir-Upstream-Key": {newsroomKey}, "Weir-Deliver-After": {"1h"}}, 400},
	} {
		f := &runner{}
		if w := f.postBatch(c.query, c.header); w.Code != c.status || len(f.specs) != 0 ||
			f.refused != 1 {
			t.Errorf("%s: got %d, accepted %+v; want %d and none", name, w.Code, f.specs, c.status)
		}
	}

	// the function in sendRequest has no upstreams, and does not know the header below
	f := &runner{}
	w := f.sendRequest("POST", "/api/batches", strings.NewReader("<a/>"), "Weir-Upstream-Key",
		newsroomKey)
	if w.Code != 400 {
		t.Errorf("without upstreams: got %d, want 400", w.Code)
	}
}
