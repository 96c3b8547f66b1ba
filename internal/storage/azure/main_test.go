package azure_test

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"weir/internal/storage/azure"
	"weir/internal/testkit/azurite"
)

func TestMain(m *testing.M) { azurite.Main(m) }

// newPrefix returns a random prefix for table, queues and containers, so that no two tests share
// them.
func newPrefix() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return "t" + hex.EncodeToString(b[:])
}

func openAccount(t *testing.T, c azure.Config) *azure.Account {
	t.Helper()
	if c.Prefix == "" {
		c.Prefix = newPrefix()
	}

	a, err := azure.Open(c)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(a.Close)

	return a
}

// onAzurite returns an account of the emulator. The account's table, queues and containers exist.
func onAzurite(t *testing.T, c azure.Config) *azure.Account {
	t.Helper()
	c.ConnectionString = azurite.Shared(t)
	a := openAccount(t, c)
	if err := a.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	return a
}

// onServer returns an account for which h serves blobs, queues and tables.
func onServer(t *testing.T, h http.HandlerFunc) *azure.Account {
	t.Helper()
	s := httptest.NewServer(h)
	a := openAccount(t, azure.Config{ConnectionString: connectTo(s.URL)})
	t.Cleanup(func() { a.Close(); s.Close() })
	return a
}

func connectTo(url string) string {
	return strings.ReplaceAll(
		"AccountName=acct;AccountKey=a2V5;BlobEndpoint=URL/acct;QueueEndpoint=URL/acct;TableEndpoint=URL/acct", "URL",
		url)
}

// answerError answers with an error in the form that the table service uses.
func answerError(w http.ResponseWriter, status int, code string) {
	w.Header().Set("X-Ms-Error-Code", code)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"odata.error":{"code":%q,"message":{"lang":"en-US","value":"no"}}}`,
		code)
}
