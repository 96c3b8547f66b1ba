package diagnosis

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/door"
	"weir/internal/settings"
)

// writePair writes a certificate that expires at a time, and its key.
func writePair(t *testing.T, expiresAt time.Time) settings.TLSFiles {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	template := &x509.Certificate{SerialNumber: big.NewInt(1),
		NotBefore: expiresAt.Add(-90 * 24 * time.Hour), NotAfter: expiresAt}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}

	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	files := settings.TLSFiles{Certificate: filepath.Join(dir, "tls.crt"),
		Key: filepath.Join(dir, "tls.key")}
	for name, block := range map[string]*pem.Block{files.Certificate: {Type: "CERTIFICATE",
		Bytes: cert}, files.Key: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	return files
}

func TestCheckDoor_Certificate(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 8, 12, 0, 0, 0, time.UTC)
	good := writePair(t, now.Add(60*24*time.Hour))
	other := writePair(t, now.Add(60*24*time.Hour))
	noText := filepath.Join(t.TempDir(), "no.pem")
	if err := os.WriteFile(noText, []byte("half a certifi"), 0o600); err != nil {
		t.Fatal(err)
	}

	for name, c := range map[string]struct {
		files          settings.TLSFiles
		wrong, warning string
	}{
		"None": {settings.TLSFiles{}, "", ""},
		"Good": {good, "", ""},
		"NoCertificate": {settings.TLSFiles{Certificate: "/nowhere/tls.crt", Key: good.Key},
			"tls: certificate: open /nowhere/tls.crt", ""},
		"NoKey": {settings.TLSFiles{Certificate: good.Certificate, Key: "/nowhere/tls.key"},
			"tls: key: open /nowhere/tls.key", ""},
		"Unreadable": {settings.TLSFiles{Certificate: t.TempDir(), Key: good.Key}, "tls: certificate: read ", ""},
		"NoPEM":      {settings.TLSFiles{Certificate: noText, Key: good.Key}, "failed to find any PEM data", ""},
		"KeyOfAnother": {settings.TLSFiles{Certificate: good.Certificate, Key: other.Key},
			"private key does not match", ""},
		"Swapped": {settings.TLSFiles{Certificate: good.Key, Key: good.Certificate},
			"are not a certificate and its private key", ""},
		"Expired": {writePair(t, now.Add(-time.Hour)), "",
			"expired at 2026-01-08T11:00:00Z"},
		"ExpiresSoon": {writePair(t, now.Add(24*time.Hour)), "",
			"expires at 2026-01-09T12:00:00Z"},
		"ValidOnlyLater": {writePair(t, now.Add(100*24*time.Hour)), "",
			"valid from 2026-01-18T12:00:00Z"},
		"ExpiresInAMonth": {writePair(t, now.Add(30*24*time.Hour)), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &System{Settings: &settings.Settings{TLS: c.files}}
			f := s.checkDoor(now)

			wrong := ""
			if f.Wrong != nil {
				wrong = f.Wrong.Error()
			}

			if !strings.Contains(wrong, c.wrong) || (wrong == "") != (c.wrong == "") {
				t.Errorf("got the problem %q, want %q in it", wrong, c.wrong)
			}

			warning := strings.Join(f.Warnings, "\n")
			if !strings.Contains(warning, c.warning) || (warning == "") != (c.warning == "") {
				t.Errorf("got the warnings %q, want %q in them", warning, c.warning)
			}
		})
	}
}

func TestCheckDoor_Keys(t *testing.T) {
	t.Parallel()
	a, b, c := door.HashKey("a").String(), door.HashKey("b").String(), door.HashKey("c").String()
	closedOf := func(open string) string {
		var closed []string
		for _, name := range door.Functions {
			if !strings.Contains(open, name) {
				closed = append(closed, name)
			}
		}
		return "no key opens " + strings.Join(closed, ", ") + ": "
	}
	for name, one := range map[string]struct {
		keys map[string][]string
		want []string // beginnings of the warnings
	}{
		"None":      {nil, nil},
		"All":       {map[string][]string{"all": {a, b}}, nil},
		"AllAndOne": {map[string][]string{"all": {a}, "view": {b}}, nil},
		"OneOfAll": {map[string][]string{"all": {a}, "view": {a}},
			[]string{"keys.view has a hash of keys.all"}},
		"Twice": {map[string][]string{"all": {a, a}},
			[]string{"keys.all has the same hash twice"}},
		"Closed": {map[string][]string{"receive": {a}, "view": {b, c}},
			[]string{closedOf("receive view")}},
		"ViewAndWrite": {map[string][]string{"view": {a}, "write": {a}},
			[]string{closedOf("view write")}},
		"Shared": {map[string][]string{"receive": {a}, "view": {b, a}},
			[]string{"keys.receive and keys.view have the same hash", closedOf("receive view")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &System{Settings: &settings.Settings{Keys: one.keys}}
			got := s.checkDoor(time.Now()).Warnings
			isAsWanted := len(got) == len(one.want)
			for i := range min(len(got), len(one.want)) {
				isAsWanted = isAsWanted && strings.HasPrefix(got[i], one.want[i])
			}

			if !isAsWanted {
				t.Errorf("got %q, want the beginnings %q", got, one.want)
			}
		})
	}
}
