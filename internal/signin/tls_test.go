package signin_test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"weir/internal/signin"
)

// A client must accept a certificate of an authority that only the settings name. Errors must not
// quote the settings.
func TestTLS(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	config, err := signin.TLS{CA: signin.Secret(ca)}.NewConfig()
	if err != nil {
		t.Fatal(err)
	}

	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()

	if status, err := sendThrough(t, transportTo{transport, server.URL}, ""); status != 404 ||
		err != nil {
		t.Errorf("got %d, %v; want 404 and no error", status, err)
	}

	for want, settings := range map[string]signin.TLS{
		"no certificate in PEM":           {CA: "-----BEGIN CERTIFICATE-----\ns3cret"},
		"neither PEM nor the name":        {CA: "/no/such/file"},
		"cert and key belong together":    {Cert: signin.Secret(ca)},
		"not a certificate and its priva": {Cert: signin.Secret(ca), Key: signin.Secret(ca)},
	} {
		if _, err := settings.NewConfig(); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "s3cret") {
			t.Errorf("got the error %v, want %q without the secret", err, want)
		}
	}

	if config, err := (signin.TLS{}).NewConfig(); config != nil || err != nil {
		t.Errorf("got %v, %v; want the defaults", config, err)
	}
}

// transportTo sends each request to url.
type transportTo struct {
	next http.RoundTripper
	url  string
}

func (tr transportTo) RoundTrip(req *http.Request) (*http.Response, error) {
	u, err := url.Parse(tr.url)
	if err != nil {
		return nil, err
	}
	req.URL = u
	return tr.next.RoundTrip(req)
}
