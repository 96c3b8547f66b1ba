package upstream_test

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"weir/internal/storage"
	"weir/internal/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limits is an Observer that counts its calls.
type limits struct {
	mu    sync.Mutex
	count map[string]int // the key is name and limit, such as "newsroom rate"
}

// Limited implements upstream.Observer.
func (l *limits) Limited(name, limit string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count == nil {
		l.count = map[string]int{}
	}
	l.count[name+" "+limit]++
}

const (
	newsroomKey = "newsroom-0123456789abcdef"
	oldKey      = "newsroom-old-89abcdef0123"
	// gitHubSecret and webhookSecret are from the examples that GitHub and Standard Webhooks
	// publish.
	gitHubSecret  = "It's a Secret to Everybody"
	webhookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	nextSecret    = "whsec_bmV4dC1uZXh0LW5leHQtbmV4dC1uZXh0LW5leHQ="
)

func parseSecret(t *testing.T, scheme upstream.Scheme, text string) []byte {
	t.Helper()
	secret, err := upstream.ParseSecret(scheme, text)
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

// newSet returns a set with an upstream for each kind of credentials, and the upstream "queue",
// which has no credentials.
func newSet(t *testing.T, table storage.Table, now func() time.Time) *upstream.Set {
	t.Helper()
	return upstream.NewSet([]upstream.Definition{
		{Name: "newsroom", Keys: []string{newsroomKey, oldKey},
			Contracts: []string{"article", "picture"}},
		{Name: "forge", Scheme: upstream.GitHub,
			Secrets: [][]byte{parseSecret(t, upstream.GitHub, gitHubSecret)}},
		{Name: "shop", Scheme: upstream.StandardWebhooks, Tolerance: 5 * time.Minute,
			Secrets: [][]byte{
				parseSecret(t, upstream.StandardWebhooks, webhookSecret),
				parseSecret(t, upstream.StandardWebhooks, nextSecret)}},
		{Name: "queue"},
	}, table, now, &limits{})
}

// headersOf returns headers from alternating names and values.
func headersOf(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

// verifyRequest verifies a request as functions/receive does.
func verifyRequest(s *upstream.Set, h http.Header, parameter []string, body string) (name string,
	err error) {
	c, err := upstream.ReadCredentials(h, parameter)
	if err != nil {
		return "", err
	}

	v, err := s.Verify(c)
	if err != nil {
		return "", err
	}

	for i := range len(body) { // byte by byte, because the document of a batch arrives in pieces
		_, _ = v.Write([]byte(body[i : i+1]))
	}

	return v.Finish()
}
