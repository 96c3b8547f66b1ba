package upstream_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/internal/upstream"
	"weir/internal/weir"
)

// webhookTime is the timestamp of the example that Standard Webhooks publishes.
var webhookTime = time.Unix(1614265330, 0)

const (
	webhookBody      = `{"test": 2432232314}`
	webhookID        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	webhookSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	gitHubSignature  = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
)

// The cases are the examples that GitHub and Standard Webhooks publish, and requests with a key.
func TestVerify_PublishedExamples(t *testing.T) {
	t.Parallel()
	s := newSet(t, nil, func() time.Time { return webhookTime })
	webhook := []string{"Webhook-Id", webhookID, "Webhook-Timestamp", "1614265330",
		"Webhook-Signature"}
	for name, c := range map[string]struct {
		headers   http.Header
		parameter []string
		body      string
		want      string
	}{
		"key":        {headersOf("Weir-Upstream-Key", newsroomKey), nil, "<a/>", "newsroom"},
		"second key": {headersOf("Weir-Upstream-Key", oldKey), nil, "<a/>", "newsroom"},
		"key with name": {headersOf("Weir-Upstream-Key", newsroomKey), []string{"newsroom"}, "",
			"newsroom"},
		"GitHub": {headersOf("X-Hub-Signature-256", gitHubSignature), []string{"forge"},
			"Hello, World!", "forge"},
		"name in header": {headersOf("X-Hub-Signature-256", gitHubSignature, "Weir-Upstream",
			"forge"), nil, "Hello, World!", "forge"},
		"webhook": {headersOf(append(webhook, webhookSignature)...), []string{"shop"},
			webhookBody, "shop"},
		"Svix": {headersOf("Svix-Id", webhookID, "Svix-Timestamp", "1614265330", "Svix-Signature",
			webhookSignature), []string{"shop"}, webhookBody, "shop"},
		"both names": {headersOf(append(webhook, webhookSignature, "Svix-Id", webhookID, "Svix-Timestamp", "1614265330",
			"Svix-Signature", webhookSignature)...), []string{"shop"}, webhookBody, "shop"},
		"several signatures": {headersOf(append(webhook, "v1,AAAA v1a,other "+webhookSignature)...),
			[]string{"shop"}, webhookBody,
			"shop"},
	} {
		got, err := verifyRequest(s, c.headers, c.parameter, c.body)
		if got != c.want || err != nil {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, c.want)
		}
	}
}

func TestVerify_AcceptsRequestsOfSender(t *testing.T) {
	t.Parallel()
	s := newSet(t, nil, func() time.Time { return webhookTime })
	for _, sender := range []upstream.Sender{{Key: newsroomKey},
		{Name: "forge", Scheme: upstream.GitHub, Secret: []byte(gitHubSecret)},
		{Name: "shop", Scheme: upstream.StandardWebhooks,
			Secret: parseSecret(t, upstream.StandardWebhooks, nextSecret)}} {
		h := http.Header{}
		sender.AddTo(h, "id-1", webhookTime, []byte("<a/>"))
		if got, err := verifyRequest(s, h, nil, "<a/>"); err != nil ||
			sender.Name != "" && got != sender.Name {
			t.Errorf("%s: got %q, %v; want the sender's name and no error", sender.Name, got, err)
		}
	}
}

func TestVerify_RefusesOthers(t *testing.T) {
	t.Parallel()
	now := webhookTime
	s := newSet(t, nil, func() time.Time { return now })
	at := func(away time.Duration) string { return strconv.FormatInt(now.Add(away).Unix(), 10) }
	signed := func(away time.Duration, secret string) http.Header {
		h := http.Header{}
		sender := upstream.Sender{Name: "shop", Scheme: upstream.StandardWebhooks,
			Secret: parseSecret(t, upstream.StandardWebhooks, secret)}
		sender.AddTo(h, "id-1", now.Add(away), []byte("<a/>"))
		return h
	}

	changed := func(name, value string) http.Header {
		h := signed(0, webhookSecret)
		h.Set(name, value)
		return h
	}

	const unknownSecret = "whsec_dW5rbm93bi11bmtub3duLXVua25vd24tdW5r"
	refused := map[string]http.Header{
		"nothing":             {},
		"name alone":          headersOf("Weir-Upstream", "newsroom"),
		"wrong key":           headersOf("Weir-Upstream-Key", newsroomKey+"x"),
		"key of another case": headersOf("Weir-Upstream-Key", strings.ToUpper(newsroomKey)),
		"key of another name": headersOf("Weir-Upstream-Key", newsroomKey, "Weir-Upstream", "shop"),
		"key of no name": headersOf("Weir-Upstream-Key", newsroomKey,
			"Weir-Upstream", "nobody"),
		"signature, no name": headersOf("X-Hub-Signature-256", gitHubSignature),
		"unknown name": headersOf("X-Hub-Signature-256", gitHubSignature,
			"Weir-Upstream", "nobody"),
		"long unknown name": headersOf("X-Hub-Signature-256", gitHubSignature, "Weir-Upstream",
			strings.Repeat("n", 5000)),
		"GitHub, another body": headersOf("X-Hub-Signature-256", gitHubSignature,
			"Weir-Upstream", "forge"),
		"GitHub, SHA-1": headersOf("X-Hub-Signature-256", "sha1="+strings.Repeat("0", 40),
			"Weir-Upstream", "forge"),
		"GitHub, no prefix": headersOf("X-Hub-Signature-256", gitHubSignature[7:],
			"Weir-Upstream", "forge"),
		"GitHub, short": headersOf("X-Hub-Signature-256", "sha256=00",
			"Weir-Upstream", "forge"),
		"GitHub, not hex": headersOf("X-Hub-Signature-256", "sha256="+strings.Repeat("z", 64),
			"Weir-Upstream", "forge"),
		"GitHub for a webhook": headersOf("X-Hub-Signature-256", gitHubSignature,
			"Weir-Upstream", "shop"),
		"GitHub for a key": headersOf("X-Hub-Signature-256", gitHubSignature, "Weir-Upstream",
			"newsroom"),
		"signature for a queue": headersOf("X-Hub-Signature-256", gitHubSignature,
			"Weir-Upstream", "queue"),
		"webhook for GitHub":   changed("Weir-Upstream", "forge"),
		"too old":              signed(-301*time.Second, webhookSecret),
		"from the future":      signed(301*time.Second, webhookSecret),
		"unknown secret":       signed(0, unknownSecret),
		"timestamp not signed": changed("Webhook-Timestamp", at(time.Second)),
		"timestamp no number":  changed("Webhook-Timestamp", "now"),
		"timestamp too large":  changed("Webhook-Timestamp", "9223372036854775807"),
		"timestamp too small":  changed("Webhook-Timestamp", "-9223372036854775808"),
		"id not signed":        changed("Webhook-Id", "id-2"),
		"another version":      changed("Webhook-Signature", "v2,AAAA"),
		"not base64":           changed("Webhook-Signature", "v1,%%%"),
		"no signature":         changed("Webhook-Signature", " "),
		"too many signatures":  changed("Webhook-Signature", strings.Repeat("v1,AAAA ", 11)),
	}
	for name, h := range refused {
		got, err := verifyRequest(s, h, nil, "<a/>")
		if got != "" || weir.KindOf(err) != weir.Unauthenticated || len(err.Error()) > 300 ||
			strings.Contains(err.Error(), newsroomKey) {
			t.Errorf("%s: got %q, %v; want Unauthenticated with a text of 300 bytes at most",
				name, got, err)
		}
	}

	for _, away := range []time.Duration{-300 * time.Second, 300 * time.Second} {
		if got, err := verifyRequest(s, signed(away, webhookSecret), nil, "<a/>"); got != "shop" ||
			err != nil {
			t.Errorf("a timestamp %s from now: got %q, %v; want shop", away, got, err)
		}
	}
}

// A caller without the secret must not learn from the answers which upstreams exist, how an
// upstream signs, or which timestamps are valid.
func TestVerify_ShowsNoNames(t *testing.T) {
	t.Parallel()
	s := newSet(t, nil, func() time.Time { return webhookTime })
	signed := func(name string, scheme upstream.Scheme, away time.Duration) http.Header {
		h := http.Header{}
		sender := upstream.Sender{Name: name, Scheme: scheme,
			Secret: []byte("guessed-0123456789abcdef")}
		sender.AddTo(h, "id-1", webhookTime.Add(away), []byte("<a/>"))
		return h
	}

	ask := func(h http.Header) string {
		t.Helper()
		c, err := upstream.ReadCredentials(h, nil)
		if err != nil {
			t.Fatal(err)
		}

		v, err := s.Verify(c)
		if err != nil {
			return "before the body: " + err.Error()
		}

		v.Write([]byte("<a/>"))
		_, err = v.Finish()
		if weir.KindOf(err) != weir.Unauthenticated {
			t.Errorf("%v: got %v, want Unauthenticated", h, err)
			return ""
		}

		return "after the body: " + err.Error()
	}

	for _, scheme := range []upstream.Scheme{upstream.GitHub, upstream.StandardWebhooks} {
		want := ask(signed("nobody", scheme, 0))
		for _, name := range []string{"newsroom", "forge", "shop", "queue"} {
			for _, away := range []time.Duration{0, 4 * time.Minute, 24 * time.Hour} {
				if got := ask(signed(name, scheme, away)); got != want {
					t.Errorf("%s with the scheme %s and a timestamp %s from now: got %q, want %q, which is the "+
						"answer for a name that does not exist", name, scheme, away,
						got, want)
				}
			}
		}
	}
}

func TestReadCredentials_RefusesMixturesAndGaps(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		headers   http.Header
		parameter []string
	}{
		"key and GitHub": {headersOf("Weir-Upstream-Key", newsroomKey, "X-Hub-Signature-256",
			gitHubSignature), nil},
		"key and webhook": {headersOf("Weir-Upstream-Key", newsroomKey, "Webhook-Id", "1"),
			nil},
		"GitHub and webhook": {headersOf("X-Hub-Signature-256", gitHubSignature, "Webhook-Id",
			"1"), nil},
		"no webhook-id": {headersOf("Webhook-Timestamp", "1", "Webhook-Signature",
			"v1,AA=="), nil},
		"no webhook-timestamp": {headersOf("Webhook-Id", "1", "Webhook-Signature", "v1,AA=="), nil},
		"no webhook-signature": {headersOf("Webhook-Id", "1", "Webhook-Timestamp", "1"), nil},
		"no svix-id": {headersOf("Svix-Timestamp", "1", "Svix-Signature", "v1,AA=="),
			nil},
		"key and Svix": {headersOf("Weir-Upstream-Key", newsroomKey, "Svix-Id", "1"), nil},
		"two svix-ids": {headersOf("Svix-Id", "1", "Svix-Id", "1"), nil},
		"two ids": {headersOf("Webhook-Id", "1", "Svix-Id", "2", "Webhook-Timestamp", "1",
			"Webhook-Signature", "v1,AA=="), nil},
		"id with a space": {headersOf("Webhook-Id", "a b", "Webhook-Timestamp", "1",
			"Webhook-Signature", "v1,AA=="), nil},
		"long id": {headersOf("Webhook-Id", strings.Repeat("i", 256), "Webhook-Timestamp", "1",
			"Webhook-Signature", "v1,AA=="), nil},
		"two keys": {headersOf("Weir-Upstream-Key", newsroomKey, "Weir-Upstream-Key",
			newsroomKey), nil},
		"two signatures": {headersOf("X-Hub-Signature-256", "a", "X-Hub-Signature-256", "b"),
			nil},
		"two names":            {headersOf("Weir-Upstream", "a", "Weir-Upstream", "b"), nil},
		"empty key":            {headersOf("Weir-Upstream-Key", ""), nil},
		"empty signature":      {headersOf("X-Hub-Signature-256", ""), nil},
		"empty parameter":      {headersOf("Weir-Upstream-Key", newsroomKey), []string{""}},
		"two parameters":       {http.Header{}, []string{"a", "b"}},
		"header and parameter": {headersOf("Weir-Upstream", "a"), []string{"a"}},
	} {
		if _, err := upstream.ReadCredentials(c.headers, c.parameter); weir.KindOf(err) !=
			weir.Malformed {
			t.Errorf("%s: got %v, want Malformed", name, err)
		}
	}
}

func TestCredentials_IdempotencyKey(t *testing.T) {
	t.Parallel()
	webhook := headersOf("Webhook-Id", "id-1", "Webhook-Timestamp", "1",
		"Webhook-Signature", "v1,AA==")
	for _, c := range []struct {
		headers    http.Header
		sent, want string
		kind       weir.Kind
	}{{http.Header{}, "k", "k", 0}, {http.Header{}, "", "", 0}, {webhook, "", "id-1", 0},
		{webhook, "id-1", "id-1", 0},
		{webhook, "k", "", weir.Malformed}} {
		credentials, err := upstream.ReadCredentials(c.headers, nil)
		if err != nil {
			t.Fatal(err)
		}

		got, err := credentials.IdempotencyKey(c.sent)
		if got != c.want || c.kind != 0 && weir.KindOf(err) != c.kind || c.kind == 0 && err != nil {
			t.Errorf("%v with the key %q: got %q, %v; want %q", c.headers, c.sent, got, err, c.want)
		}
	}
}

func TestParseSecret_RefusesWeakAndMalformedOnes(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "short", "whsec_", "whsec_c2hvcnQ=",
		"whsec_" + strings.Repeat("A", 200), "whsec_***"} {
		if _, err := upstream.ParseSecret(upstream.StandardWebhooks, text); err == nil {
			t.Errorf("%q: got no error, want one", text)
		}
	}

	if _, err := upstream.ParseSecret(upstream.GitHub, "short"); err == nil {
		t.Error("a GitHub secret of 5 characters: got no error, want one")
	}
}
