package realcms

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
)

// Spoil is a way to spoil an answer of the CMS.
type Spoil int

// The proxy spoils an answer only after the CMS has received and answered the request.
const (
	SpoilNone Spoil = iota // the answer is passed on unchanged
	SpoilLose              // the connection to the client ends without an answer
	SpoilHTML              // the client gets the status 200 and a page of HTML
	SpoilCut               // the client gets half of the body, then the connection ends
)

// Fault says how the proxy treats one request.
type Fault struct {
	// status of a page of HTML that the client gets, while the CMS gets nothing; 0 = no page
	Page  int
	Spoil Spoil
	// called after the answer of the CMS and before the answer to the client; nil = no call
	Then func()
}

// Proxy is an HTTP proxy between clients and a CMS. It counts requests and can spoil answers. It is
// safe for concurrent use.
type Proxy struct {
	URL string // address of the proxy

	target string // address of the CMS
	choose func(r *http.Request, body []byte) Fault
	client *http.Client
	server *http.Server
	served sync.WaitGroup

	mu     sync.Mutex
	counts map[string]int // requests by method
}

const spoiltPage = "<!DOCTYPE html><html><head><title>One moment</title></head><body>Please wait…</body></html>"

// StartProxy starts a proxy on a free loopback port, for the CMS at the address "target". For each
// request the proxy calls "choose", which returns the fault of the request. These calls are
// concurrent. If "choose" is nil, the proxy spoils no answer.
func StartProxy(target string, choose func(r *http.Request, body []byte) Fault) (*Proxy, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}

	if choose == nil {
		choose = func(*http.Request, []byte) Fault { return Fault{} }
	}

	p := &Proxy{URL: "http://" + listener.Addr().String(), target: target, choose: choose,
		counts: map[string]int{},
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: webWorkers},
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse
			}}}

	p.server = &http.Server{Handler: p}
	p.served.Go(func() { _ = p.server.Serve(listener) })

	return p, nil
}

// Count returns the number of requests that had one of the methods. Without methods, it counts all
// requests.
func (p *Proxy) Count(methods ...string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(methods) == 0 {
		methods = slices.Collect(maps.Keys(p.counts))
	}

	total := 0
	for _, m := range methods {
		total += p.counts[m]
	}

	return total
}

// Close stops listening, and closes the connections of clients. It does not cancel requests that
// the proxy has passed on to the CMS.
func (p *Proxy) Close() error {
	err := p.server.Close()
	p.served.Wait()
	p.client.CloseIdleConnections()
	return err
}

// ServeHTTP passes a request on to the CMS. If the client disconnects, the request to the CMS goes
// on, as it would without the proxy: a CMS does not notice the disconnect.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}

	p.mu.Lock()
	p.counts[r.Method]++
	p.mu.Unlock()
	fault := p.choose(r, body)
	if fault.Page != 0 {
		writePage(w, fault.Page)
		return
	}

	resp, answer, err := p.passOn(r, body)
	if err != nil {
		panic(http.ErrAbortHandler) // the CMS did not answer, so the client gets no answer either
	}

	if fault.Then != nil {
		fault.Then()
	}

	switch fault.Spoil {
	case SpoilLose:
		panic(http.ErrAbortHandler)
	case SpoilHTML:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, spoiltPage)
		return
	}

	maps.Copy(w.Header(), resp.Header)
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	w.WriteHeader(resp.StatusCode)

	if fault.Spoil == SpoilCut {
		_, _ = w.Write(answer[:len(answer)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}

	_, _ = w.Write(answer)
}

// writePage answers as a web server does while the CMS behind it is replaced, or refuses the
// request by itself.
func writePage(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	reason := http.StatusText(status)
	_, _ = fmt.Fprintf(w, "<!DOCTYPE html><html><head><title>%d %s</title><style>body { margin: 0 }</style></head>"+
		"<body><h1>%s</h1><hr><p>A web server</p></body></html>", status, reason, reason)
}

func (p *Proxy) passOn(r *http.Request, body []byte) (*http.Response, []byte, error) {
	req, err := http.NewRequest(r.Method, p.target+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}

	req.Header = r.Header.Clone()
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)

	return resp, answer, err
}
