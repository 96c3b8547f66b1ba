package azure

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
)

// developmentStorage is the connection string of the emulator's well-known account. It replaces
// "UseDevelopmentStorage=true".
const developmentStorage = "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;" +
	"AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==;" +
	"BlobEndpoint=http://127.0.0.1:10000/devstoreaccount1;QueueEndpoint=http://127.0.0.1:10001/devstoreaccount1;" +
	"TableEndpoint=http://127.0.0.1:10002/devstoreaccount1;"

type clients struct {
	table *aztables.ServiceClient
	queue *azqueue.ServiceClient
	blob  *service.Client
}

func newClients(c Config) (clients, error) {
	switch {
	case c.ConnectionString != "":
		return clientsByString(c)
	case !c.Identity.IsZero():
		return clientsByIdentity(c)
	}
	return clients{}, errors.New("neither a connection string nor an identity is set")
}

func clientsByString(c Config) (clients, error) {
	s := strings.TrimSpace(c.ConnectionString)
	if strings.TrimRight(s, ";") == "UseDevelopmentStorage=true" {
		s = developmentStorage
	}
	table, err1 := aztables.NewServiceClientFromConnectionString(s,
		&aztables.ClientOptions{ClientOptions: clientOptions(c, "table")})
	queue, err2 := azqueue.NewServiceClientFromConnectionString(s,
		&azqueue.ClientOptions{ClientOptions: clientOptions(c, "queue")})
	blobs, err3 := service.NewClientFromConnectionString(s,
		&service.ClientOptions{ClientOptions: clientOptions(c, "blob")})
	if errors.Join(err1, err2, err3) != nil {
		// The SDK's own error might show a part of the string.
		return clients{}, errors.New("connection string is malformed")
	}
	return clients{table, queue, blobs}, nil
}

// clientOptions turn retries off; withRetries enables them for calls that may be repeated.
func clientOptions(c Config, service string) policy.ClientOptions {
	o := policy.ClientOptions{
		Retry:            policy.RetryOptions{MaxRetries: -1},
		Transport:        roundTrip{c.Transport},
		Telemetry:        policy.TelemetryOptions{ApplicationID: "weir"},
		PerRetryPolicies: []policy.Policy{&requestPolicy{service: service, counter: c.Counter}},
	}
	if service == "table" {
		o.PerCallPolicies = []policy.Policy{batchPolicy{}, answerPolicy{}}
	}
	return o
}

// roundTrip sends without http.Client, because that would follow redirects.
type roundTrip struct{ http.RoundTripper }

func (r roundTrip) Do(req *http.Request) (*http.Response, error) { return r.RoundTrip(req) }

// newTransport keeps a connection for each concurrent request, because new connections under load cost
// more than the requests. It uses HTTP/1.1 only; see the package comment.
func newTransport() *http.Transport {
	t := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout: 5 * time.Second,
		// This limit is for Ensure and Skew; the ports have time limits of their own.
		ResponseHeaderTimeout: 10 * time.Second,
		// An instance has 128 ports for connections to one address. Further calls wait.
		MaxConnsPerHost:     64,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     time.Minute,
		Protocols:           new(http.Protocols),
	}
	t.Protocols.SetHTTP1(true)
	return t
}
