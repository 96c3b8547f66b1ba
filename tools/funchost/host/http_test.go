package host_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"weir/tools/funchost/host"
)

func newHTTPRig(t *testing.T, cfg host.Config) *rig {
	t.Helper()
	return newRig(t, rigOptions{cfg: cfg, functions: map[string]string{
		"receive": httpFunction(`,"methods":["post"],"route":"messages"`),
		"status":  httpFunction(`,"methods":["get"],"route":"messages/{id}"`),
		"open":    httpFunction(`,"authLevel":"anonymous"`),
		"admin1":  httpFunction(`,"authLevel":"admin"`),
	}}).startHost()
}

func TestHost_Forwarding(t *testing.T) {
	t.Parallel()
	r := newHTTPRig(t, host.Config{})
	r.decide = func(handlerCall) handlerOrder {
		return handlerOrder{Status: 202, Type: "application/problem+json", Body: "the answer",
			Header: http.Header{"Location": {"/there"}}}
	}

	got := r.sendRequest("POST", "/api/messages?a=1&A=2&flag&code=x", "<a/>",
		func(q *http.Request) {
			q.Host = "weir.example"
			q.Header.Set("Content-Type", "application/xml")
			q.Header.Set("Content-Encoding", "gzip")
			q.Header.Set("Cookie", "c=1")
			q.Header.Set("User-Agent", "curl")
			q.Header.Set("X-Azure-Functions-InvocationId", "mine")
		})
	if got.StatusCode != 202 || got.body != "the answer" ||
		got.Header.Get("Location") != "/there" ||
		got.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("answered %d %v %q, want status 202, body \"the answer\", Location /there and Content-Type "+
			"application/problem+json", got.StatusCode, got.Header, got.body)
	}

	c := r.nextCall()
	if c.Method != "POST" || c.URI != "/api/messages?A=1,2&flag=&code=x" || c.Body != "<a/>" ||
		c.Host != "weir.example" || c.Chunked {
		t.Errorf("the handler got %+v, want Method POST, URI /api/messages?A=1,2&flag=&code=x, Body <a/>, Host "+
			"weir.example and Chunked false", c)
	}

	if c.Header.Get("Content-Encoding") != "" ||
		c.Header.Get("Content-Type") != "application/xml" ||
		c.Header.Get("Cookie") != "c=1" {
		t.Errorf("headers: %v, want no Content-Encoding, Content-Type application/xml and Cookie c=1", c.Header)
	}

	if ids := c.Header["X-Azure-Functions-Invocationid"]; len(ids) != 1 ||
		!strings.HasPrefix(ids[0], "mine, ") ||
		len(ids[0]) != 6+36 {
		t.Errorf("invocation ids: %v, want one, \"mine, \" and 36 characters", ids)
	}

	if ua := c.Header.Get("User-Agent"); !strings.HasPrefix(ua, "curl Azure-Functions-Host/4.") {
		t.Errorf("user agent: %q, want it to begin with \"curl Azure-Functions-Host/4.\"", ua)
	}

	if c.Dir != r.root {
		t.Errorf("working directory %q; want %q", c.Dir, r.root)
	}
}

func TestHost_Forwarding_RelaysErrorsAndRedirects(t *testing.T) {
	t.Parallel()
	r := newHTTPRig(t, host.Config{})
	for _, status := range []int{204, 302, 404, 422, 500, 503} {
		r.mu.Lock()
		r.decide = func(handlerCall) handlerOrder {
			return handlerOrder{Status: status, NoBody: true,
				Header: http.Header{"Location": {"/elsewhere"}}}
		}

		r.mu.Unlock()

		if got := r.sendRequest("GET", "/api/messages/7", ""); got.StatusCode != status ||
			got.body != "" {
			t.Errorf("answered %d %q; want %d", got.StatusCode, got.body, status)
		}
	}
}

func TestHost_Forwarding_RefusesChunks(t *testing.T) {
	t.Parallel()
	r := newHTTPRig(t, host.Config{})
	got := r.sendRequest("POST", "/api/messages", "", func(q *http.Request) {
		q.Body, q.ContentLength = io.NopCloser(strings.NewReader("<a/>")), -1
	})
	if got.StatusCode != http.StatusInternalServerError || got.body != "" {
		t.Errorf("answered %d %q; want an empty 500", got.StatusCode, got.body)
	}

	if len(r.calls) != 0 {
		t.Errorf("the handler got %d calls, want none", len(r.calls))
	}
}

func TestHost_Routes(t *testing.T) {
	t.Parallel()
	r := newHTTPRig(t, host.Config{})
	for _, c := range []struct {
		method, path string
		want         int
	}{
		{"POST", "/api/messages", 200},
		{"POST", "/API/Messages/", 200},
		{"GET", "/api/messages/a%2Fb", 200},
		{"GET", "/api/messages", 404},
		{"DELETE", "/api/messages/1", 404},
		{"GET", "/api/messages/1/2", 404},
		{"POST", "/messages", 404},
		{"PUT", "/api/open", 200},
		{"GET", "/", 200},
		{"GET", "/api//open", 404},
		{"GET", "/nothing", 404},
	} {
		if got := r.sendRequest(c.method, c.path, ""); got.StatusCode != c.want {
			t.Errorf("%s %s: %d; want %d", c.method, c.path, got.StatusCode, c.want)
		}
	}
}

func TestHost_Auth(t *testing.T) {
	t.Parallel()
	r := newHTTPRig(t, host.Config{EnableAuth: true, Key: "k", MasterKey: "m"})
	key := func(k string) func(*http.Request) {
		return func(q *http.Request) { q.Header.Set("x-functions-key", k) }
	}
	none := func(*http.Request) {}
	for _, c := range []struct {
		path   string
		change func(*http.Request)
		want   int
	}{
		{"/api/messages/1", none, 401},
		{"/api/messages/1", key("wrong"), 401},
		{"/api/messages/1", key("k"), 200},
		{"/api/messages/1", key("m"), 200},
		{"/api/messages/1?code=k", none, 200},
		{"/api/messages/1?CODE=k", none, 200},
		{"/api/messages/1?a=1&C%6fde=k&code=wrong", none, 200},
		{"/api/messages/1?code=wrong&CODE=k", none, 401},
		{"/api/messages/1?code=k", key("wrong"), 401},
		{"/api/open", none, 200},
		{"/api/admin1", key("k"), 401},
		{"/api/admin1", key("m"), 200},
		{"/admin/host/status", key("k"), 401},
		{"/admin/host/status", key("m"), 200},
	} {
		got := r.sendRequest("GET", c.path, "", c.change)
		if got.StatusCode != c.want || got.StatusCode == 401 && got.body != "" {
			t.Errorf("%s: %d %q; want %d", c.path, got.StatusCode, got.body, c.want)
		}
	}
}

func TestHost_AuthIsOffByDefault(t *testing.T) {
	t.Parallel()
	r := newHTTPRig(t, host.Config{Key: "k"})
	if got := r.sendRequest("GET", "/api/admin1", ""); got.StatusCode != 200 {
		t.Errorf("answered %d; want 200", got.StatusCode)
	}
}

func TestHost_BodyTooLarge(t *testing.T) {
	t.Parallel()
	r := newHTTPRig(t, host.Config{})
	got := r.sendRequest("POST", "/api/messages", "", func(q *http.Request) {
		q.Body, q.ContentLength = io.NopCloser(io.LimitReader(zeros{}, 100<<20+1)), 100<<20+1
		q.Header.Set("Expect", "100-continue")
	})
	if got.StatusCode != http.StatusInternalServerError || got.body != "" {
		t.Errorf("answered %d %q; want an empty 500", got.StatusCode, got.body)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func TestHost_SpreadsOverInstances(t *testing.T) {
	t.Parallel()
	r := newHTTPRig(t, host.Config{Instances: 3})
	seen := map[string]int{}
	for range 6 {
		r.sendRequest("POST", "/api/messages", "x")
		seen[r.nextCall().WorkerID]++
	}

	if len(seen) != 3 {
		t.Errorf("workers: %v; want three", seen)
	}

	if s := r.host.Status(); len(s.Instances) != 3 || s.State != "Running" {
		t.Errorf("status: %+v, want 3 Instances and State Running", s)
	}
}

func TestHost_PayloadMode(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{
		hostJSON: map[string]any{
			"extensions": map[string]any{"http": map[string]any{"routePrefix": ""}}},
		env:       []string{"AzureFunctionsJobHost__customHandler__enableForwardingHttpRequest=false"},
		functions: map[string]string{"fn": httpFunction(`,"route":"items/{id:int?}"`)},
		decide: func(handlerCall) handlerOrder {
			return handlerOrder{
				Body: `{"Outputs":{"res":{"statusCode":"201","headers":{"X-A":1},"body":{"a":1}}},` +
					`"Logs":["a log line"]}`}
		},
	}).startHost()

	got := r.sendRequest("POST", "/items/7?x=1&x=2", "hello")
	if got.StatusCode != 201 || got.body != "{\n  \"a\": 1\n}" || got.Header.Get("X-A") != "1" ||
		!strings.HasPrefix(got.Header.Get("Content-Type"), "text/plain") {
		t.Errorf("answered %d %v %q, want 201, X-A, text/plain and the indented body",
			got.StatusCode, got.Header, got.body)
	}

	c := r.nextCall()
	if c.Method != "POST" || c.URI != "/fn" || !c.Chunked {
		t.Errorf("the handler got %+v, want Method POST, URI /fn and Chunked true", c)
	}

	for _, want := range []string{`"Params":{"id":"7"}`, `"Query":{"x":"1,2"}`, `"Body":"hello"`,
		`"Method":"POST"`} {
		if !strings.Contains(c.Body, want) {
			t.Errorf("%s is not in %s", want, c.Body)
		}
	}

	if !strings.Contains(r.out.String(), "a log line") {
		t.Errorf("got the output %s\nwant the handler's log in it", r.out.String())
	}

	if got := r.sendRequest("GET", "/items/seven", ""); got.StatusCode != 404 {
		t.Errorf("answered %d; want 404 for a text that is no int", got.StatusCode)
	}

	r.mu.Lock()
	r.decide = func(handlerCall) handlerOrder { return handlerOrder{Status: 422} }
	r.mu.Unlock()
	if got := r.sendRequest("GET", "/items", ""); got.StatusCode != 500 || got.body != "" {
		t.Errorf("answered %d %q; want an empty 500", got.StatusCode, got.body)
	}
}

func TestHost_ListsFunctionsByName_ServesNoDisabledOne(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{functions: map[string]string{
		"a-all": httpFunction(`,"route":"{*rest}","methods":["get"]`),
		"b-one": httpFunction(`,"route":"one"`),
		"c-off": httpFunction(`,"route":"off","methods":["put"]`),
	}, env: []string{"AzureWebJobs_c-off_Disabled=1"}}).startHost()
	if got := r.sendRequest("PUT", "/api/off", ""); got.StatusCode != 404 {
		t.Errorf("a disabled function answered %d, want 404", got.StatusCode)
	}

	out := r.out.String()
	at := func(s string) int { return strings.Index(out, s) }
	if order := []int{at("a-all: [GET] " + r.host.URL() + "/api/{*rest}"), at("b-one: "),
		at("(disabled)")}; !slices.IsSorted(order) || order[0] < 0 {
		t.Errorf("functions are listed at %v, want them in order of name:\n%s", order, out)
	}
}
