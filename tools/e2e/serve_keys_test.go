package e2e_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/internal/testkit/settings"
)

// newServeKey runs weir key new, and returns a key and its hash.
func (s *system) newServeKey(config string) (key, hash string) {
	s.t.Helper()
	out, err := s.serveCommand(config, "key", "new", "--json").Output()
	var made struct{ Key, SHA256 string }
	if err == nil {
		err = json.Unmarshal(out, &made)
	}

	if err != nil {
		s.t.Fatalf("weir key new: %v\n%s", err, out)
	}

	return made.Key, made.SHA256
}

// writeServeCertificate writes a certificate for 127.0.0.1, and its key.
func writeServeCertificate(t *testing.T, certFile, keyFile, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}

	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}

	writeFile(t, keyFile, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})), 0o600)
	writeFile(t, certFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		0o600)
}

// newTLSClient returns a client that takes each certificate, and keeps cookies. It opens a
// connection for each request.
func newTLSClient(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}

	return &http.Client{Jar: jar, Timeout: plainClient.Timeout,
		CheckRedirect: plainClient.CheckRedirect,
		Transport: &http.Transport{DisableKeepAlives: true,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
}

// An address that other machines can reach needs keys and TLS, or a proxy in front.
func TestServe_RefusesToBeReachedWithoutKeys(t *testing.T) {
	s, config, data := newServeSystem(t)
	_, hash := s.newServeKey(config)
	keyed := config + ".keyed"
	writeFile(
		t,
		keyed,
		strings.Replace(readFile(t, config), "contracts:",
			"keys: { all: ["+hash+"] }\ncontracts:", 1),
		0o600,
	)

	for _, c := range []struct {
		config, want string
		args         []string
	}{
		{config, "needs keys", []string{"--listen", "0.0.0.0:0"}},
		{config, "--behind-proxy needs keys", []string{"--behind-proxy"}},
		{keyed, "unencrypted", []string{"--listen", "0.0.0.0:0"}},
	} {
		p := s.startServe(c.config, append([]string{"--data", data}, c.args...)...)
		if code := p.wait(); code != 1 || !strings.Contains(p.log(), c.want) {
			t.Errorf("%v: got the exit code %d and the log %s, want 1 and %q", c.args, code,
				p.log(), c.want)
		}
	}

	p := s.startServe(keyed, "--data", data, "--listen", "0.0.0.0:0", "--behind-proxy")
	if status, _ := p.post("/a", 1); status != http.StatusUnauthorized {
		t.Errorf("got %d behind a proxy without a key, want 401", status)
	}
}

// A key opens its functions alone, also while it is changed for another. A person signs in to the
// page with a key. A new certificate is used without a restart.
func TestServe_KeysAndTLS(t *testing.T) {
	s, config, data := newServeSystem(t)
	former, formerHash := s.newServeKey(config)
	next, nextHash := s.newServeKey(config)
	view, viewHash := s.newServeKey(config)
	certFile, keyFile := filepath.Join(t.TempDir(), "tls.crt"),
		filepath.Join(t.TempDir(), "tls.key")
	writeServeCertificate(t, certFile, keyFile, "first")
	write := func(receive ...string) {
		writeFile(t, config, strings.Replace(settings.YAML, "contracts:", fmt.Sprintf(
			"keys: { receive: [%s], view: [%s] }\ntls: { certificate: %q, key: %q }\ncontracts:",
			strings.Join(receive, ", "), viewHash, certFile, keyFile), 1), 0o600)
	}

	client := newTLSClient(t)
	postWith := func(p *serveProcess, key string) int {
		status, _ := p.send(client, http.MethodPost, "/api/messages",
			`<article path="/a" version="1"><title>T</title></article>`, "Content-Type",
			"application/xml",
			"x-functions-key", key)
		return status
	}

	start := func(receive ...string) *serveProcess {
		write(receive...)
		return s.startServe(config, "--data", data, "--listen", "0.0.0.0:0")
	}

	for _, c := range []struct {
		hashes []string
		want   [4]int // former, next, view, none
	}{
		{[]string{formerHash}, [4]int{202, 401, 401, 401}},
		{[]string{formerHash, nextHash}, [4]int{202, 202, 401, 401}},
		{[]string{nextHash}, [4]int{401, 202, 401, 401}},
	} {
		p := start(c.hashes...)
		p.address = strings.Replace(p.address, "localhost", "127.0.0.1", 1)
		for i, key := range []string{former, next, view, ""} {
			if got := postWith(p, key); got != c.want[i] {
				t.Errorf("%d hashes, key %d: got %d, want %d", len(c.hashes), i, got, c.want[i])
			}
		}

		if len(c.hashes) == 1 && c.hashes[0] == nextHash {
			checkSignIn(t, p, client, view)
			checkNewCertificate(t, p, certFile, keyFile)
		}

		if code := p.stop(syscall.SIGTERM); code != 0 {
			t.Errorf("got the exit code %d, want 0", code)
		}

		if log := p.log(); strings.Contains(log, former) || strings.Contains(log, next) ||
			strings.Contains(log, view) {
			t.Error("the log has a key, want none")
		}
	}
}

func checkSignIn(t *testing.T, p *serveProcess, client *http.Client, view string) {
	t.Helper()
	open := func() (int, []byte) {
		return p.send(client, http.MethodGet, "/api/dashboard", "", "Accept", "text/html")
	}
	signIn := func(key, origin string) int {
		status, _ := p.send(client, http.MethodPost, "/api/dashboard/sign-in",
			url.Values{"key": {key}}.Encode(), "Content-Type", "application/x-www-form-urlencoded",
			"Origin", origin)
		return status
	}

	if status, _ := open(); status != http.StatusSeeOther {
		t.Errorf("got %d for the page without a key, want 303 to the sign-in", status)
	}

	if status := signIn("wrong", p.address); status != http.StatusUnauthorized {
		t.Errorf("got %d for a sign-in with a wrong key, want 401", status)
	}

	if status := signIn(view, "https://evil.example"); status != http.StatusForbidden {
		t.Errorf("got %d for a sign-in from another site, want 403", status)
	}

	if status := signIn(view, p.address); status != http.StatusSeeOther {
		t.Errorf("got %d for a sign-in with the key, want 303 to the page", status)
	}

	if status, body := open(); status != http.StatusOK ||
		!bytes.Contains(body, []byte("Overview")) {
		t.Errorf("got %d for the page after the sign-in, want 200 with the overview", status)
	}

	_, body := open()
	if !bytes.Contains(body, []byte(`action="/api/dashboard/sign-out"`)) {
		t.Error("the page has no sign-out")
	}

	if status, _ := p.send(client, http.MethodPost, "/api/pause", `{"all":true}`, "Content-Type",
		"application/json", "Origin", p.address); status != http.StatusUnauthorized {
		t.Errorf("got %d for a change with the key of view, want 401", status)
	}

	p.send(client, http.MethodPost, "/api/dashboard/sign-out", "", "Origin", p.address)
	if status, _ := open(); status != http.StatusSeeOther {
		t.Errorf("got %d for the page after the sign-out, want 303 to the sign-in", status)
	}
}

func checkNewCertificate(t *testing.T, p *serveProcess, certFile, keyFile string) {
	t.Helper()
	writeServeCertificate(t, certFile, keyFile, "second")
	p.s.awaitCondition("the new certificate is used", 20*time.Second, func() bool {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(p.address, "https://"),
			&tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return false
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].Subject.CommonName == "second"
	})
}
