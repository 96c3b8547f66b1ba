package door

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// lookEvery is the time between two looks at the files of the certificate.
const lookEvery = time.Second

// Certificates has the certificate of TLS. It reads the files again when one of them has changed,
// at the next connection. If the new files cannot be used, it keeps the former certificate.
type Certificates struct {
	certFile, keyFile string
	now               func() time.Time
	log               *slog.Logger

	mu       sync.Mutex
	current  *tls.Certificate
	version  string // sizes and times of the files that were read last, usable or not
	lookedAt time.Time
}

// OpenCertificates reads a certificate and its key from files in PEM.
func OpenCertificates(
	certFile, keyFile string,
	now func() time.Time,
	log *slog.Logger,
) (*Certificates, error) {
	c := &Certificates{certFile: certFile, keyFile: keyFile, now: now, log: log, lookedAt: now()}
	var err error
	if c.version, err = c.describeFiles(); err == nil {
		err = c.readFiles()
	}

	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}

	return c, nil
}

// TLS returns the settings of a server.
func (c *Certificates) TLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.certificate}
}

// certificate implements tls.Config.GetCertificate.
func (c *Certificates) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if now := c.now(); now.Sub(c.lookedAt) >= lookEvery {
		c.lookedAt = now
		c.reload()
	}
	return c.current, nil
}

// reload reads the files if they have changed. The caller holds mu.
func (c *Certificates) reload() {
	version, err := c.describeFiles()
	if err == nil && version == c.version {
		return
	}

	if err == nil {
		c.version = version
		err = c.readFiles()
	}

	if err != nil {
		c.log.Error("door: certificate not read again, the former one stays", "err", err)
		return
	}

	c.log.Info("door: certificate read again", "detail", c.certFile)
}

func (c *Certificates) describeFiles() (string, error) {
	version := ""
	for _, name := range []string{c.certFile, c.keyFile} {
		info, err := os.Stat(name)
		if err != nil {
			return "", err
		}
		version += fmt.Sprint(info.Size(), " ", info.ModTime().UnixNano(), " ")
	}

	return version, nil
}

func (c *Certificates) readFiles() error {
	pair, err := readPair(c.certFile, c.keyFile)
	if err != nil {
		return err
	}

	c.current = &pair
	if weakness := describeValidity(pair.Leaf, c.now()); weakness != "" {
		c.log.Warn("door: certificate is used nevertheless", "detail", weakness)
	}

	return nil
}

// CheckCertificate reads a certificate and its key, as OpenCertificates does. It returns the time
// at which the certificate expires, and a warning if clients refuse the certificate at the time
// now, or will refuse it soon.
func CheckCertificate(
	certFile, keyFile string,
	now time.Time,
) (expiresAt time.Time, warning string, err error) {
	pair, err := readPair(certFile, keyFile)
	if err != nil {
		return time.Time{}, "", fmt.Errorf("tls: %w", err)
	}
	return pair.Leaf.NotAfter, describeValidity(pair.Leaf, now), nil
}

// readPair reads a certificate and its key. The error names the file and its setting.
func readPair(certFile, keyFile string) (tls.Certificate, error) {
	cert, err := os.ReadFile(certFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("certificate: %w", err)
	}

	key, err := os.ReadFile(keyFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("key: %w", err)
	}

	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf(
			"%s and %s are not a certificate and its private key in PEM: %w",
			certFile,
			keyFile,
			err,
		)
	}

	return pair, nil
}

// expiresSoon is the time before the end of a certificate from which on a warning names it. Issuers
// with automatic renewal replace certificates earlier.
const expiresSoon = 7 * 24 * time.Hour

// describeValidity returns a warning if a certificate is not valid at the time now, or not for
// long.
func describeValidity(leaf *x509.Certificate, now time.Time) string {
	format := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	switch {
	case now.After(leaf.NotAfter):
		return fmt.Sprintf("the certificate of tls expired at %s, and clients refuse it: renew it; Weir reads "+
			"the files again without a restart", format(leaf.NotAfter))
	case now.Before(leaf.NotBefore):
		return fmt.Sprintf("the certificate of tls is valid from %s on, and clients refuse it until then: look at "+
			"the clock of this machine", format(leaf.NotBefore))
	case now.Add(expiresSoon).After(leaf.NotAfter):
		return fmt.Sprintf("the certificate of tls expires at %s: renew it; Weir reads the files again without a "+
			"restart", format(leaf.NotAfter))
	}

	return ""
}
