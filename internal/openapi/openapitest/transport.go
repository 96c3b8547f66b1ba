package openapitest

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// Transport is an http.RoundTripper that checks each exchange against Document, if the path of the
// request begins with /api/. Transport is safe for concurrent use.
type Transport struct {
	Document *Document
	Base     http.RoundTripper

	mu      sync.Mutex
	reports map[string]func(string) // by host and port: the function that gets the differences
	other   []string                // differences for which reports had no entry
	done    map[string]bool         // operations that had a 2xx answer
}

// Watch registers the function "report" for a host. Until the caller calls stop, the Transport
// passes each difference in an exchange with this host to "report". The argument "host" has the
// form host:port. The function "report" must not call methods of the Transport.
func (t *Transport) Watch(host string, report func(string)) (stop func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reports == nil {
		t.reports = map[string]func(string){}
	}

	t.reports[host] = report

	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.reports, host)
	}
}

// Others returns the differences in exchanges with a host that was not watched at the time of the
// exchange.
func (t *Transport) Others() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.other
}

// Missing returns the operations that have had no 2xx answer yet.
func (t *Transport) Missing() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(t.Document.Operations(), func(o string) bool { return t.done[o] })
}

// RoundTrip implements http.RoundTripper. It does not check an answer whose body it cannot read
// completely.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasPrefix(r.URL.Path, "/api/") {
		return t.Base.RoundTrip(r)
	}

	r, sent, err := readSent(r)
	if err != nil {
		return nil, err
	}

	resp, err := t.Base.RoundTrip(r)
	if err != nil {
		return nil, err
	}

	received, err := io.ReadAll(resp.Body)
	if closed := resp.Body.Close(); err != nil || closed != nil {
		resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(received), broken{err}))
		return resp, nil
	}

	resp.Body = io.NopCloser(bytes.NewReader(received))
	t.recordAnswer(r, resp.StatusCode)

	for _, text := range t.Document.Check(Exchange{Request: r, Sent: sent, Status: resp.StatusCode,
		Header: resp.Header, Received: received}) {
		t.reportProblem(r.URL.Host, describeExchange(r.Method, r.URL, resp.StatusCode)+": "+text)
	}

	return resp, nil
}

func (t *Transport) recordAnswer(r *http.Request, status int) {
	o, known := t.Document.findOperation(r.Method, r.URL.EscapedPath())
	if !known || status >= http.StatusMultipleChoices {
		return
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done == nil {
		t.done = map[string]bool{}
	}

	t.done[o.fullName()] = true
}

func (t *Transport) reportProblem(host, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if report := t.reports[host]; report != nil {
		report(text)
		return
	}

	t.other = append(t.other, text)
}

// readSent reads the body of a request. It returns a request with an unread copy of the body, and
// the body.
func readSent(r *http.Request) (*http.Request, []byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return r, nil, nil
	}

	sent, err := io.ReadAll(r.Body)
	r.Body.Close()
	copied := r.Clone(r.Context())
	copied.Body = io.NopCloser(bytes.NewReader(sent))

	return copied, sent, err
}

// broken is a reader that returns err, or io.EOF if err is nil. RoundTrip puts it behind the part
// of a body that could be read.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	return 0, io.EOF
}
