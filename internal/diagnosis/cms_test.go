package diagnosis

import (
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"weir/internal/settings"
	"weir/internal/signin"
)

func TestResolveProxyAndTestConnection(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	through, target, err := resolveProxy("http://" + listener.Addr().String() +
		"/content/{key}?id={id}")
	if err != nil || through.Host != listener.Addr().String() {
		t.Fatalf("got %v for %v (%v), want %s", through, target, err, listener.Addr())
	}

	var s settings.Settings
	if err := testConnection(t.Context(), &s, through, target); err != nil {
		t.Error(err)
	}

	listener.Close()
	if err := testConnection(t.Context(), &s, through, target); err == nil {
		t.Error("port without a listener: got no error, want one")
	}
}

// The CMS can have a certificate from an authority that only delivery.tls names.
func TestTestConnection_OwnAuthority(t *testing.T) {
	t.Parallel()
	cms := httptest.NewUnstartedServer(http.NotFoundHandler())
	cms.Config.ErrorLog = log.New(io.Discard, "", 0) // the first handshake fails on purpose
	cms.StartTLS()
	defer cms.Close()
	through, target, err := resolveProxy(cms.URL)
	if err != nil {
		t.Fatal(err)
	}

	var s settings.Settings
	if err := testConnection(t.Context(), &s, through, target); err == nil {
		t.Error("without delivery.tls: got no error, want one of the certificate")
	}

	s.Delivery.TLS.CA = signin.Secret(
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cms.Certificate().Raw}))
	if err := testConnection(t.Context(), &s, through, target); err != nil {
		t.Errorf("with the authority in delivery.tls: got %v, want no error", err)
	}
}
