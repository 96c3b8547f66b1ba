package receive_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weir/internal/filing"
	"weir/internal/storage/memory"
	"weir/internal/testkit/ziptest"
	"weir/internal/upstream"
)

const (
	newsroomKey   = "newsroom-0123456789abcdef"
	pictureKey    = "pictures-0123456789abcdef"
	signingSecret = "0123456789abcdef0123456789" // the secret of the upstreams forge and shop
)

// ignoreLimited is an upstream.Observer that ignores refused messages.
type ignoreLimited struct{}

func (ignoreLimited) Limited(string, string) {}

// newUpstreams returns a set of five upstreams. newsroom has a daily quota of two messages, and
// slow has a rate of one message a minute. pictures may send only messages of the contract picture.
func newUpstreams() *upstream.Set {
	secret := []byte(signingSecret)
	return upstream.NewSet([]upstream.Definition{{Name: "newsroom", Keys: []string{newsroomKey}, DailyQuota: 2},
		{Name: "pictures", Keys: []string{pictureKey}, Contracts: []string{"picture"}},
		{Name: "forge", Scheme: upstream.GitHub, Secrets: [][]byte{secret}},
		{Name: "shop", Scheme: upstream.StandardWebhooks, Secrets: [][]byte{secret},
			Tolerance: 5 * time.Minute},
		{Name: "slow", Keys: []string{"slow-0123456789abcdefgh"},
			Rate: upstream.Rate{Count: 1, Per: time.Minute}},
	}, memory.New(time.Now).Table(), time.Now, ignoreLimited{})
}

// serveUpstreams posts the body <a/> to a function that knows the upstreams of s. The strings in
// pairs are names and values of headers, alternately.
func serveUpstreams(f *fake, s *upstream.Set, query string,
	pairs ...string) *httptest.ResponseRecorder {
	return serveUpstreamsBody(f, s, query, "<a/>", pairs...)
}

// serveUpstreamsBody is serveUpstreams for another body.
func serveUpstreamsBody(f *fake, s *upstream.Set, query, body string,
	pairs ...string) *httptest.ResponseRecorder {
	fn := f.newFunction()
	fn.Filer, fn.Upstreams = &filing.Filer{Contracts: f, Callbacks: f, Log: f, Limits: s}, s
	r := httptest.NewRequest(http.MethodPost, "/api/messages?"+query, strings.NewReader(body))
	for i := 0; i < len(pairs); i += 2 {
		r.Header.Add(pairs[i], pairs[i+1])
	}

	w := httptest.NewRecorder()
	fn.ServeHTTP(w, r)

	return w
}

// signPost returns the headers of a post that was signed at the time "at". The strings in pairs are
// the headers' names and values, alternately.
func signPost(name string, scheme upstream.Scheme, at time.Time, body string) (pairs []string) {
	h := http.Header{}
	sender := upstream.Sender{Name: name, Scheme: scheme, Secret: []byte(signingSecret)}
	sender.AddTo(h, "id-1", at, []byte(body))
	for name := range h {
		pairs = append(pairs, name, h.Get(name))
	}
	return pairs
}

func TestFunction_FilesWithTheUpstreamsName(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		query      string
		pairs      []string
		name, idem string
	}{
		{"", []string{"Weir-Upstream-Key", newsroomKey, "Idempotency-Key", "k"}, "newsroom", "k"},
		{"upstream=newsroom", []string{"Weir-Upstream-Key", newsroomKey}, "newsroom", ""},
		{"", signPost("forge", upstream.GitHub, now, "<a/>"), "forge", ""},
		{"", signPost("shop", upstream.StandardWebhooks, now, "<a/>"), "shop", "id-1"},
		{"deliverAfter=90s", append(signPost("shop", upstream.StandardWebhooks, now, "<a/>"),
			"Idempotency-Key", "id-1"),
			"shop", "id-1"},
	} {
		f := &fake{}
		w := serveUpstreams(f, newUpstreams(), c.query, c.pairs...)
		if w.Code != http.StatusAccepted || f.message.Upstream != c.name || f.idem != c.idem {
			t.Errorf("%q %v: got %d, the upstream %q and the idempotency key %q; want 202, %q and %q", c.query, c.pairs,
				w.Code, f.message.Upstream, f.idem, c.name, c.idem)
		}
	}
}

// A signature covers the body as it was sent: the packed bytes of a packed body. Weir checks it
// before it unpacks anything.
func TestFunction_ChecksTheSignatureOfThePackedBody(t *testing.T) {
	t.Parallel()
	const text = "<a>unpacked</a>"
	packed, bomb := string(ziptest.Gzip(text)), string(ziptest.Bomb())
	damaged := packed[:len(packed)-9] + "x" + packed[len(packed)-8:]
	now := time.Now()
	for _, scheme := range []upstream.Scheme{upstream.GitHub, upstream.StandardWebhooks} {
		name := map[upstream.Scheme]string{upstream.GitHub: "forge"}[scheme]
		if name == "" {
			name = "shop"
		}

		for what, c := range map[string]struct {
			signed, sent string
			status       int
		}{
			"packed":             {packed, packed, 202},
			"unpacked":           {text, packed, 401},
			"another packing":    {packed, string(ziptest.Gzip("<b>unpacked</b>")), 401},
			"damaged":            {packed, damaged, 401},
			"damaged and signed": {damaged, damaged, 400},
			"bomb of a stranger": {packed, bomb[:90], 401},
		} {
			f := &fake{}
			w := serveUpstreamsBody(f, newUpstreams(), "", c.sent,
				append(signPost(name, scheme, now, c.signed), "Content-Encoding", "gzip")...)
			if w.Code != c.status || (c.status == 202) != (string(f.message.Body) == text) {
				t.Errorf("%s, %s: got %d %s, filed %q; want %d, and the unpacked body only if 202",
					name, what, w.Code, w.Body, f.message.Body, c.status)
			}
		}
	}
}

func TestFunction_RefusesOtherSenders(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		query  string
		pairs  []string
		status int
	}{
		"nothing":        {"", nil, 401},
		"name alone":     {"upstream=newsroom", nil, 401},
		"wrong key":      {"", []string{"Weir-Upstream-Key", newsroomKey[1:]}, 401},
		"key of another": {"upstream=forge", []string{"Weir-Upstream-Key", newsroomKey}, 401},
		"unknown name":   {"", signPost("unknown", upstream.GitHub, now, "<a/>"), 401},
		"another body":   {"", signPost("forge", upstream.GitHub, now, "<b/>"), 401},
		"another scheme": {"", signPost("shop", upstream.GitHub, now, "<a/>"), 401},
		"old": {"",
			signPost("shop", upstream.StandardWebhooks, now.Add(-6*time.Minute), "<a/>"), 401},
		"webhook, other body": {"", signPost("shop", upstream.StandardWebhooks, now, "<a />"), 401},
		"key and signature": {"",
			append(signPost("forge", upstream.GitHub, now, "<a/>"), "Weir-Upstream-Key",
				newsroomKey), 400},
		"other idempotency": {"", append(signPost("shop", upstream.StandardWebhooks, now, "<a/>"),
			"Idempotency-Key", "k"), 400},
		"incomplete":           {"", []string{"Webhook-Id", "1"}, 400},
		"header and parameter": {"upstream=newsroom", []string{"Weir-Upstream", "newsroom"}, 400},
		"misspelt header":      {"", []string{"Weir-Upstream-Kye", newsroomKey}, 400},
		"misspelt parameter": {"upstraem=newsroom",
			[]string{"Weir-Upstream-Key", newsroomKey}, 400},
		"other contract": {"", []string{"Weir-Upstream-Key", pictureKey}, 403},
	} {
		f := &fake{}
		w := serveUpstreams(f, newUpstreams(), c.query, c.pairs...)
		if w.Code != c.status || f.message.Body != nil ||
			w.Header().Get("Content-Type") != "application/problem+json" ||
			(w.Header().Get("WWW-Authenticate") != "") != (c.status == 401) ||
			strings.Contains(w.Body.String(), newsroomKey) {
			t.Errorf("%s: got %d %s, filed %q; want %d and nothing filed", name, w.Code, w.Body,
				f.message.Body, c.status)
		}
	}
}

// A function without upstreams refuses the header and the query parameter for upstreams, because it
// knows neither.
func TestFunction_WithoutUpstreams(t *testing.T) {
	t.Parallel()
	for _, change := range []func(*http.Request){
		func(r *http.Request) { r.Header.Set("Weir-Upstream-Key", newsroomKey) },
		func(r *http.Request) { r.URL.RawQuery = "upstream=newsroom" },
	} {
		f := &fake{}
		if w := serveReceive(f, change); w.Code != http.StatusBadRequest || f.message.Body != nil {
			t.Errorf("got %d, filed %q; want 400 and nothing filed", w.Code, f.message.Body)
		}
	}

	f := &fake{}
	w := serveReceive(f, func(r *http.Request) { r.Header.Set("X-Hub-Signature-256", "sha256=00") })
	if w.Code != http.StatusAccepted || f.message.Upstream != "" {
		t.Errorf("a signature in a header that Weir does not read: got %d and the upstream %q, want 202 and none",
			w.Code, f.message.Upstream)
	}
}

func TestFunction_LimitsOfAnUpstream(t *testing.T) {
	t.Parallel()
	s := newUpstreams()
	post := func(f *fake, key string) *httptest.ResponseRecorder {
		return serveUpstreams(f, s, "", "Weir-Upstream-Key", key)
	}
	if w := post(&fake{}, newsroomKey); w.Code != http.StatusAccepted {
		t.Fatalf("the first message: got %d, want 202", w.Code)
	}

	for range 5 { // a repeated message does not count against the quota
		if w := post(&fake{duplicate: true}, newsroomKey); w.Code != http.StatusAccepted {
			t.Fatalf("a repeat: got %d, want 202", w.Code)
		}
	}

	if w := post(&fake{}, newsroomKey); w.Code != http.StatusAccepted {
		t.Fatalf("the second message: got %d, want 202", w.Code)
	}

	post(&fake{}, "slow-0123456789abcdefgh")

	for key, want := range map[string]string{newsroomKey: "dailyQuota",
		"slow-0123456789abcdefgh": "rate"} {
		f := &fake{}
		w := post(f, key)
		var p struct {
			Status   int
			Problems []struct{ Rule string }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil ||
			w.Code != http.StatusTooManyRequests ||
			p.Status != w.Code || len(p.Problems) != 1 || p.Problems[0].Rule != want ||
			f.message.Body != nil ||
			w.Header().Get("Retry-After") == "" || w.Header().Get("Retry-After") == "0" {
			t.Errorf("got %d %s with Retry-After %q, %v; want 429 with the limit %s and a Retry-After above 0", w.Code,
				w.Body,
				w.Header().Get("Retry-After"), err,
				want)
		}
	}
}
