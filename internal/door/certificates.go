package door

import (
	"crypto/tls"
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
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return err
	}
	c.current = &pair
	return nil
}
