package door_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"weir/internal/door"
)

// writeCertificate writes a certificate with a name, and its key.
func writeCertificate(t *testing.T, certFile, keyFile, name string, modifiedAt time.Time) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}

	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}

	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der},
		keyFile: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, modifiedAt, modifiedAt); err != nil {
			t.Fatal(err)
		}
	}
}

// nameOf returns the name in the certificate that a client would get.
func nameOf(t *testing.T, config *tls.Config) string {
	t.Helper()
	c, err := config.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}

	parsed, err := x509.ParseCertificate(c.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}

	return parsed.Subject.CommonName
}

func TestCertificates_AreReadAgain(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 8, 12, 0, 0, 0, time.UTC)
	certFile, keyFile := filepath.Join(
		t.TempDir(),
		"tls.crt",
	), filepath.Join(
		t.TempDir(),
		"tls.key",
	)

	writeCertificate(t, certFile, keyFile, "first", now)
	var log bytes.Buffer
	c, err := door.OpenCertificates(certFile, keyFile, func() time.Time { return now },
		slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}

	config := c.TLS()
	if got := nameOf(t, config); got != "first" {
		t.Errorf("got the certificate %q, want first", got)
	}

	writeCertificate(t, certFile, keyFile, "second", now.Add(time.Minute))
	now = now.Add(time.Minute)
	if got := nameOf(t, config); got != "second" {
		t.Errorf("got the certificate %q after a change, want second", got)
	}

	if err := os.WriteFile(certFile, []byte("half a certifi"), 0o600); err != nil {
		t.Fatal(err)
	}

	now = now.Add(time.Minute)
	log.Reset()

	if got := nameOf(t, config); got != "second" ||
		!bytes.Contains(log.Bytes(), []byte("former one stays")) {
		t.Errorf(
			"got the certificate %q and the log %q, want the former and a line",
			got,
			log.String(),
		)
	}

	writeCertificate(t, certFile, keyFile, "third", now)
	now = now.Add(time.Minute)
	if got := nameOf(t, config); got != "third" {
		t.Errorf("got the certificate %q after the repair, want third", got)
	}
}

func TestOpenCertificates_RefusesWrongFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := door.OpenCertificates(filepath.Join(dir, "a"), filepath.Join(dir, "b"), time.Now,
		slog.New(slog.DiscardHandler)); err == nil {
		t.Error("got no error for missing files")
	}
}
