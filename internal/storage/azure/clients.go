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

// developmentStorage is the connection string of the emulator's well-known account. Weir uses this
// string in place of "UseDevelopmentStorage=true".
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
		// The SDK's own error could show a part of the connection string, which has a secret.
		return clients{}, errors.New("connection string is malformed")
	}

	return clients{table, queue, blobs}, nil
}

// clientOptions returns options without retries. For a call that can be repeated without harm,
// withRetries enables retries.
func clientOptions(c Config, service string) policy.ClientOptions {
	o := policy.ClientOptions{
		Retry:            policy.RetryOptions{MaxRetries: -1},
		Transport:        roundTrip{c.Transport},
		Telemetry:        policy.TelemetryOptions{ApplicationID: "weir"},
		PerRetryPolicies: []policy.Policy{&requestPolicy{service: service, counter: c.Counter}},
	}

	switch service {
	case "table":
		o.PerCallPolicies = []policy.Policy{batchPolicy{}, answerPolicy{}}
	case "blob":
		o.PerCallPolicies = []policy.Policy{encodingPolicy{}}
	}

	return o
}

// roundTrip sends requests without http.Client, because http.Client would follow redirects.
type roundTrip struct{ http.RoundTripper }

func (r roundTrip) Do(req *http.Request) (*http.Response, error) { return r.RoundTrip(req) }

// newTransport returns a transport that keeps connections open for concurrent requests. Under load,
// a new connection costs more than a request. The transport uses HTTP/1.1 only; see the package
// comment.
func newTransport() *http.Transport {
	t := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout: 5 * time.Second,
		// This limit is for the requests of Account.Ensure and Account.Skew. Package timelimit
		// limits all other calls.
		ResponseHeaderTimeout: 10 * time.Second,
		// Azure reserves 128 ports for the connections of an instance to one address. Weir opens at
		// most 64 connections; a further request waits until one of them is free.
		MaxConnsPerHost:     64,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     time.Minute,
		Protocols:           new(http.Protocols),
	}

	t.Protocols.SetHTTP1(true)
	return t
}
