package fleet

import (
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
)

// forwardingHeaders are the headers that httputil.ReverseProxy removes. The front restores them, so
// that the app gets the headers that the client sent.
var forwardingHeaders = []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host",
	"X-Forwarded-Proto"}

// newFront returns a proxy that sends each request to the next host in turn. If that host refuses
// the connection, the proxy uses a later host.
func (f *Fleet) newFront() http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", "fleet"
			r.Out.Host = r.In.Host
			for _, name := range forwardingHeaders {
				if values := r.In.Header.Values(name); len(values) > 0 {
					r.Out.Header[name] = values
				}
			}
		},
		// Each connection serves one request. Otherwise many requests would go to the same host, on
		// one connection.
		Transport: &http.Transport{DialContext: f.dialNextHost, DisableKeepAlives: true,
			DisableCompression: true},
		FlushInterval: -1,
		ErrorLog:      log.New(f.options.Out, "front: ", 0),
	}
}

var errNoHost = errors.New("no host serves HTTP")

// dialNextHost connects to the next host in turn. If it cannot connect to a host, it tries the next
// one. A further try is safe, because no byte of the request was sent.
func (f *Fleet) dialNextHost(ctx context.Context, _, _ string) (net.Conn, error) {
	err := errNoHost
	for _, address := range f.nextAddresses() {
		var conn net.Conn
		var dialer net.Dialer
		if conn, err = dialer.DialContext(ctx, "tcp", address); err == nil {
			return conn, nil
		}
	}

	return nil, err
}

// nextAddresses returns the addresses of all hosts that serve HTTP. The first address is that of
// the next host in turn.
func (f *Fleet) nextAddresses() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for _, h := range f.hosts {
		if h.url != "" && h.servesHTTP {
			all = append(all, strings.TrimPrefix(h.url, "http://"))
		}
	}

	if len(all) == 0 {
		return nil
	}

	f.nextTurn++
	first := f.nextTurn % len(all)

	return append(all[first:], all[:first]...)
}
