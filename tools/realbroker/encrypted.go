package realbroker

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"weir/tools/freeport"
)

// EncryptedBroker is a Broker that also accepts TLS connections. A client needs a certificate that
// the broker's authority (CA) issued.
type EncryptedBroker struct {
	*Broker
	// CA, ClientCert and ClientKey are paths of PEM files: the certificate of the authority, a
	// client's certificate, and the key of the client's certificate. The certificates are valid for
	// a day.
	CA, ClientCert, ClientKey string

	port int // the port for TLS
}

// StartEncrypted makes the certificates in dir, and starts a broker as Start does.
func StartEncrypted(ctx context.Context, dir string, log io.Writer) (*EncryptedBroker, error) {
	authority, err := newAuthority(dir)
	if err != nil {
		return nil, fmt.Errorf("make certificates: %w", err)
	}

	cert, key, err := authority.issueCertificate("broker", x509.ExtKeyUsageServerAuth)
	if err != nil {
		return nil, fmt.Errorf("make certificates: %w", err)
	}

	b := &EncryptedBroker{CA: authority.path}
	if b.ClientCert, b.ClientKey, err = authority.issueCertificate("client", x509.ExtKeyUsageClientAuth); err != nil {
		return nil, fmt.Errorf("make certificates: %w", err)
	}

	if b.port, err = freeport.Pick(); err != nil {
		return nil, err
	}

	b.Broker, err = startNode(ctx, dir, log, fmt.Sprintf("listeners.ssl.local = 127.0.0.1:%d\n"+
		"ssl_options.cacertfile = %s\nssl_options.certfile = %s\nssl_options.keyfile = %s\n"+
		"ssl_options.verify = verify_peer\nssl_options.fail_if_no_peer_cert = true\n", b.port, b.CA,
		cert, key))

	return b, err
}

// EncryptedURL returns the broker's address for AMQP over TLS, with the user guest.
func (b *EncryptedBroker) EncryptedURL() string {
	return "amqps://guest:guest@" + net.JoinHostPort("127.0.0.1", strconv.Itoa(b.port)) + "/"
}

// authority issues certificates for 127.0.0.1 into a folder.
type authority struct {
	dir, path string // the folder, and the path of the authority's own certificate
	cert      *x509.Certificate
	key       *ecdsa.PrivateKey
	issued    int64 // the last serial number
}

func newAuthority(dir string) (*authority, error) {
	a := &authority{dir: dir, path: filepath.Join(dir, "ca.pem")}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}

	template := a.newTemplate("authority")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	signed, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}

	if a.cert, err = x509.ParseCertificate(signed); err != nil {
		return nil, err
	}

	return a, writePEM(a.path, "CERTIFICATE", signed)
}

// newTemplate returns an unsigned certificate with the next serial number.
func (a *authority) newTemplate(name string) *x509.Certificate {
	a.issued++
	return &x509.Certificate{SerialNumber: big.NewInt(a.issued),
		Subject:   pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
}

// issueCertificate makes a certificate and its key, and returns the paths of their files.
func (a *authority) issueCertificate(name string, usage x509.ExtKeyUsage) (certFile, keyFile string,
	err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}

	template := a.newTemplate(name)
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageDigitalSignature,
		[]x509.ExtKeyUsage{usage}
	signed, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	if err != nil {
		return "", "", err
	}

	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return "", "", err
	}

	certFile, keyFile = filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key")
	if err := writePEM(certFile, "CERTIFICATE", signed); err != nil {
		return "", "", err
	}

	return certFile, keyFile, writePEM(keyFile, "PRIVATE KEY", secret)
}

func writePEM(path, kind string, content []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600)
}
