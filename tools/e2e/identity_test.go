package e2e_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/testkit/azurite"
)

// TestIdentity_WithoutKeys runs the handler with the addresses of storage, but without a storage
// key. The handler asks a test server for the tokens of its managed identity. On Azure it would ask
// App Service.
func TestIdentity_WithoutKeys(t *testing.T) {
	s := newBareSystem(t)
	cert, key := newCertificate(t)
	guarded, err := azurite.Start(t.Context(), azurite.Options{Cert: cert, Key: key})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { guarded.Stop() })
	identity := startIdentity(t)
	address := func(port int) string {
		return fmt.Sprintf("https://127.0.0.1:%d/%s", port,
			azurite.Account)
	}

	port := freePort(t)
	env := []string{
		"AzureWebJobsStorage=", "SSL_CERT_FILE=" + cert,
		"IDENTITY_ENDPOINT=" + identity.URL + "/token",
		"IDENTITY_HEADER=let-me",
		"AzureWebJobsStorage__blobServiceUri=" + address(guarded.Ports().Blob),
		"AzureWebJobsStorage__queueServiceUri=" + address(guarded.Ports().Queue),
		"AzureWebJobsStorage__tableServiceUri=" + address(guarded.Ports().Table),
		"AzureWebJobsStorage__credential=managedidentity",
		"AzureWebJobsStorage__clientId=11111111-2222-3333-4444-555555555555",
		"FUNCTIONS_CUSTOMHANDLER_PORT=" + port,
	}

	app := s.stageApp()
	s.runHandler(t.Context(), app, append(env, "IDENTITY_HEADER=wrong"), "check").checkOutput(t,
		1, `(?s)table +wrong: .*the identity has the roles.*queues +wrong.*blobs +wrong`, "")
	s.startProgram("handler", append(append(s.handlerEnv(), "WEIR_CONFIG="+filepath.Join(app, "weir.yaml")), env...))
	s.weir = "http://127.0.0.1:" + port
	s.awaitCondition("the handler is ready", startLimit,
		func() bool { return s.getStatus(s.weir+"/api/health") == http.StatusOK })
	noise := make([]byte, 60<<10) // makes the body too large for a row, so Weir stores it in a blob
	rand.Read(noise)
	large := `<article path="/large" version="1"><title>Large</title><text>` +
		hex.EncodeToString(noise) +
		`</text></article>`
	var posted []postedMessage
	for _, body := range []string{articleXML("/small", 1), large} {
		code, _, said := s.requestJSON("POST", s.weir+"/api/messages", body)
		if code != http.StatusAccepted {
			t.Fatalf("got %d %v, want 202", code, said)
		}
		posted = append(posted, postedMessage{ID: said["id"].(string)})
	}

	s.awaitStages(posted, "delivered", time.Minute)
	s.runHandler(t.Context(), app, env, "check").checkOutput(t, 0,
		`(?s)table +ok.*queues +ok.*blobs +ok.*clock +ok`, "")

	if got := identity.lastRequest(); got !=
		"https://storage.azure.com for 11111111-2222-3333-4444-555555555555" {
		t.Errorf("tokens were asked for %s, want \"https://storage.azure.com for "+
			"11111111-2222-3333-4444-555555555555\"", got)
	}
}

// managedIdentity is a test server that issues tokens in place of App Service.
type managedIdentity struct {
	*httptest.Server

	mu   sync.Mutex
	last string // resource and client id of the last accepted request
}

func startIdentity(t *testing.T) *managedIdentity {
	p := &managedIdentity{}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

// ServeHTTP answers a request for a token.
func (p *managedIdentity) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/token" || r.Header.Get("X-Identity-Header") != "let-me" {
		http.Error(w, `{"error":"unauthorized"}`, http.StatusUnauthorized)
		return
	}

	q := r.URL.Query()
	p.mu.Lock()
	p.last = strings.TrimSuffix(q.Get("resource"), "/") + " for " + q.Get("client_id")
	p.mu.Unlock()
	until := time.Now().Add(time.Hour).Unix()
	json.NewEncoder(w).Encode(map[string]string{"access_token": newToken(q.Get("resource"), until),
		"expires_on": fmt.Sprint(until), "resource": q.Get("resource"), "token_type": "Bearer"})
}

func (p *managedIdentity) lastRequest() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// newToken returns a token for the storage emulator, which does not check the signature.
func newToken(audience string, until int64) string {
	part := func(v any) string {
		text, _ := json.Marshal(v)
		return base64.RawURLEncoding.EncodeToString(text)
	}

	past := time.Now().Add(-time.Minute).Unix()
	return part(map[string]string{"alg": "RS256", "typ": "JWT"}) + "." + part(map[string]any{
		"aud": audience, "iss": "https://sts.windows.net/00000000-0000-0000-0000-000000000000/",
		"iat": past,
		"nbf": past, "exp": until}) + "." + part("signature")
}

// newCertificate writes a self-signed certificate for 127.0.0.1 and its private key to two files,
// and returns their paths.
func newCertificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour),
		NotAfter:    time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	signed, err := x509.CreateCertificate(rand.Reader, about, about, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}

	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writeFile(t, cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed})),
		0o600)
	writeFile(t, key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})),
		0o600)

	return cert, key
}
