package delay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Services of a storage account.
const (
	blob  = "blob"
	queue = "queue"
	table = "table"
)

// endpoints maps the name of an endpoint in a connection string to the service.
var endpoints = map[string]string{"BlobEndpoint": blob, "QueueEndpoint": queue,
	"TableEndpoint": table}

// These are measured values of a storage account in the caller's region, for the fields of Config
// with the same names.
const (
	Median    = 10 * time.Millisecond
	Sigma     = 0.45
	BusyShare = 0.002
)

// Config has the account behind the proxy, and the delays and refusals that the proxy adds. If only
// Target is set, the proxy adds no delay and refuses no request.
type Config struct {
	// connection string of the account behind the proxy; the endpoints must be http with a port
	Target    string
	Median    time.Duration // median of the log-normal delay; 0 = no delay
	Sigma     float64       // standard deviation of the delay's logarithm
	BusyShare float64       // share of requests that get 503 ServerBusy, 0 to 1
	// true = storage executes refused requests; false = storage does not get them
	BusyAfter bool
	Seed      uint64 // seed of the random delays and refusals
}

// Far returns a Config with the delays and refusals of a storage account in the caller's region.
// The target is the connection string of the account behind the proxy.
func Far(target string) Config {
	return Config{Target: target, Median: Median, Sigma: Sigma, BusyShare: BusyShare}
}

func (c Config) checkLimits() error {
	switch {
	case c.Median < 0:
		return fmt.Errorf("median %s is negative", c.Median)
	case c.Sigma < 0:
		return fmt.Errorf("sigma %g is negative", c.Sigma)
	case c.BusyShare < 0 || c.BusyShare > 1:
		return fmt.Errorf("busy share %g is not between 0 and 1", c.BusyShare)
	}

	return nil
}

// Proxy is a reverse proxy in front of a storage account. Safe for concurrent use.
type Proxy struct {
	config    Config
	transport *http.Transport // connects to the account
	// host:port of the proxy, by host:port of the account's endpoint
	addresses     map[string]string
	servers       []*http.Server
	serving       errgroup.Group
	cancelServing context.CancelFunc // ends the requests in flight

	requests atomic.Uint64 // number of requests so far; the next request gets this number
	refused  atomic.Int64
	hanging  atomic.Int64
	hang     atomic.Pointer[hangRule] // nil = no request hangs
}

// Start listens on loopback, on a port for each of the target's endpoints. When ctx ends, the proxy
// answers no more requests. The caller must call Close.
func Start(ctx context.Context, c Config) (*Proxy, error) {
	if err := c.checkLimits(); err != nil {
		return nil, fmt.Errorf("start proxy: %w", err)
	}

	targets, err := readTargets(c.Target)
	if err != nil {
		return nil, fmt.Errorf("start proxy: %w", err)
	}

	p := &Proxy{config: c, transport: newTransport(), addresses: map[string]string{}}
	ctx, p.cancelServing = context.WithCancel(ctx)
	for service, target := range targets {
		if err := p.listenFor(ctx, service, target); err != nil {
			return nil, errors.Join(fmt.Errorf("start proxy: %w", err), p.Close())
		}
	}

	return p, nil
}

// readTargets returns the host:port of each service in a connection string.
func readTargets(connection string) (map[string]string, error) {
	targets := map[string]string{}
	for _, part := range strings.Split(connection, ";") {
		name, value, _ := strings.Cut(part, "=")
		service, ok := endpoints[name]
		if !ok {
			continue
		}

		u, err := url.Parse(value)
		if err != nil || u.Scheme != "http" || u.Port() == "" {
			return nil, fmt.Errorf("%s: want http and a port", name)
		}

		targets[service] = u.Host
	}

	if len(targets) < len(endpoints) {
		return nil, fmt.Errorf("the connection string has %d of %d endpoints", len(targets),
			len(endpoints))
	}

	return targets, nil
}

// newTransport returns a transport that adds no header to requests. It closes an idle connection
// before Azurite does.
func newTransport() *http.Transport {
	return &http.Transport{MaxIdleConnsPerHost: 1024, IdleConnTimeout: time.Minute,
		DisableCompression: true, DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext}
}

func (p *Proxy) listenFor(ctx context.Context, service, target string) error {
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}

	quiet := log.New(io.Discard, "", 0)
	server := &http.Server{ErrorLog: quiet, ReadHeaderTimeout: time.Minute,
		BaseContext: func(net.Listener) context.Context { return ctx },
		Handler: &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) {
				r.Out.URL.Scheme, r.Out.URL.Host, r.Out.URL.RawQuery = "http", target,
					r.In.URL.RawQuery
			},
			Transport: &delayedTransport{p, service, p.transport},
			ErrorLog:  quiet,
			ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
				panic(http.ErrAbortHandler)
			},
		}}

	p.addresses[target] = socket.Addr().String()
	p.servers = append(p.servers, server)
	p.serving.Go(func() error { return server.Serve(socket) })

	return nil
}

// ConnectionString returns the connection string cs with the proxy's addresses in place of the
// target's addresses.
func (p *Proxy) ConnectionString(cs string) string {
	parts := strings.Split(cs, ";")
	for i, part := range parts {
		name, value, _ := strings.Cut(part, "=")
		u, err := url.Parse(value)
		if endpoints[name] == "" || err != nil {
			continue
		}

		if ours, ok := p.addresses[u.Host]; ok {
			u.Host = ours
			parts[i] = name + "=" + u.String()
		}
	}

	return strings.Join(parts, ";")
}

// Requests returns the number of requests so far.
func (p *Proxy) Requests() int { return int(p.requests.Load()) }

// Refused returns the number of requests so far that got 503 ServerBusy.
func (p *Proxy) Refused() int { return int(p.refused.Load()) }

// Close stops the proxy and cancels the requests in flight. A second call is allowed.
func (p *Proxy) Close() error {
	p.cancelServing()
	var errs []error
	for _, s := range p.servers {
		errs = append(errs, s.Close())
	}

	if err := p.serving.Wait(); !errors.Is(err, http.ErrServerClosed) {
		errs = append(errs, err)
	}

	p.transport.CloseIdleConnections()

	return errors.Join(errs...)
}

// delayedTransport sends requests to one service.
type delayedTransport struct {
	*Proxy
	service string
	storage http.RoundTripper
}

// RoundTrip implements http.RoundTripper. It gets storage's answer or makes a refusal, waits for
// the request's delay, and returns the answer or refusal.
func (f *delayedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	fate := f.config.drawFate(f.requests.Add(1) - 1)
	rule := f.hangingRule(req)
	if rule != nil && !rule.isAnswer {
		if _, err := readBody(req); err != nil {
			return nil, err
		}
		if err := f.awaitRelease(req, rule); err != nil {
			return nil, err
		}
	}

	resp, err := f.forwardRequest(req, fate.busy)
	if err != nil {
		return nil, err
	}

	if rule != nil && rule.isAnswer {
		if err := f.awaitRelease(req, rule); err != nil {
			return nil, errors.Join(err, resp.Body.Close())
		}
	}

	if err := sleepFor(req.Context(), fate.delay); err != nil {
		return nil, errors.Join(err, resp.Body.Close())
	}

	return resp, nil
}

func (f *delayedTransport) forwardRequest(req *http.Request, busy bool) (*http.Response, error) {
	if !busy {
		return f.storage.RoundTrip(req)
	}

	f.refused.Add(1)
	if err := f.consumeRefused(req); err != nil {
		return nil, err
	}

	return newBusyResponse(f.service, req), nil
}

// consumeRefused reads a refused request to its end, so that the client's connection stays open.
// With BusyAfter, it passes the request to storage and drops the answer.
func (f *delayedTransport) consumeRefused(req *http.Request) error {
	if f.config.BusyAfter {
		resp, err := f.storage.RoundTrip(req)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return errors.Join(err, resp.Body.Close())
	}

	if req.Body == nil {
		return nil
	}

	_, err := io.Copy(io.Discard, req.Body)
	return errors.Join(err, req.Body.Close())
}

// sleepFor waits for d. If ctx ends earlier, sleepFor returns ctx's error.
func sleepFor(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}

	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
