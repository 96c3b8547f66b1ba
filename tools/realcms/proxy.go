package realcms

import (
	"bytes"
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

// In all of these ways, the request has reached the CMS, and the CMS has answered.
const (
	SpoilNone Spoil = iota // the answer is passed on unchanged
	SpoilLose              // the connection ends without an answer
	SpoilHTML              // 200 with a page of HTML instead of the answer
	SpoilCut               // half of the answer's body, then the connection ends
)

// Fault says how the proxy treats one request.
type Fault struct {
	Spoil Spoil
	Then  func() // called when the CMS has answered, before the answer is spoiled or passed on; nil = nothing
}

// Proxy stands between a client and a CMS. It counts requests, and spoils answers. Safe for concurrent use.
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

// StartProxy listens on a free port of loopback, in front of target. The function "choose" returns the treatment of
// each request; nil = no faults. The proxy calls it concurrently.
func StartProxy(target string, choose func(r *http.Request, body []byte) Fault) (*Proxy, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	if choose == nil {
		choose = func(*http.Request, []byte) Fault { return Fault{} }
	}
	p := &Proxy{URL: "http://" + listener.Addr().String(), target: target, choose: choose, counts: map[string]int{},
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: webWorkers},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	p.server = &http.Server{Handler: p}
	p.served.Go(func() { _ = p.server.Serve(listener) })
	return p, nil
}

// Count returns the number of requests with one of the methods, or of all requests if methods is empty.
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

// Close stops listening and closes the connections of clients. Requests that the CMS is working on go on.
func (p *Proxy) Close() error {
	err := p.server.Close()
	p.served.Wait()
	p.client.CloseIdleConnections()
	return err
}

// ServeHTTP passes a request on. If the client disconnects, the request to the CMS goes on, because the CMS itself
// would not notice the disconnect either.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	p.mu.Lock()
	p.counts[r.Method]++
	p.mu.Unlock()
	fault := p.choose(r, body)
	resp, answer, err := p.passOn(r, body)
	if err != nil {
		panic(http.ErrAbortHandler) // the CMS is away, so the client loses its connection, too
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

// passOn sends the request to the CMS, and returns the answer and the answer's body.
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
