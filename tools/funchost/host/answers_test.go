package host_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"weir/tools/funchost/host"
)

// proxyRig returns a rig whose app enables both forwarding and proxying. The mode decides which of
// the two the host does.
func proxyRig(t *testing.T, mode host.Mode) *rig {
	t.Helper()
	return newRig(t, rigOptions{cfg: host.Config{HTTP: mode}, functions: map[string]string{
		"receive": httpFunction(`,"methods":["post"],"route":"messages"`),
		"status":  httpFunction(`,"methods":["get"],"route":"messages/{id}"`),
		"health":  httpFunction(`,"methods":["get","head"]`),
	}, env: []string{"AzureFunctionsJobHost__customHandler__enableProxyingHttpRequest=true"}}).startHost()
}

func (r *rig) setOrder(o handlerOrder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.decide = func(handlerCall) handlerOrder { return o }
}

// exchangeRaw sends a request over a connection, reads the head of the answer, and leaves the
// connection open.
func exchangeRaw(t *testing.T, conn net.Conn, reader *bufio.Reader,
	request string) (*http.Response, error) {
	t.Helper()
	if _, err := io.WriteString(conn, request); err != nil {
		return nil, err
	}
	method, _, _ := strings.Cut(request, " ")
	return http.ReadResponse(reader, &http.Request{Method: method})
}

func TestHost_Forwarding_StatusWithoutBodyEndsTheConnection(t *testing.T) {
	t.Parallel()
	r := proxyRig(t, host.Forwarding)
	for status, length := range map[int]string{204: "", 205: "0", 304: "0"} {
		r.setOrder(handlerOrder{Status: status, NoBody: true, Header: http.Header{"Etag": {`"e"`}}})
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.host.URL(), "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		reader := bufio.NewReader(conn)
		res, err := exchangeRaw(t, conn, reader, "GET /api/messages/7 HTTP/1.1\r\nHost: h\r\n\r\n")
		if err != nil {
			t.Fatalf("request with answer %d: %v", status, err)
		}

		head := res.Header
		if res.StatusCode != status || head.Get("Etag") != `"e"` ||
			head.Get("Content-Length") != length || res.Close {
			t.Errorf("answered %d %v; want %d, the handler's headers, length %q, and no Connection: close",
				res.StatusCode, res.Header, status, length)
		}

		if rest, err := io.ReadAll(reader); len(rest) != 0 || err != nil {
			t.Errorf("after %d came %q, %v; want the connection's end", status, rest, err)
		}
	}

	if want := "An unhandled host error has occurred"; strings.Count(r.out.String(), want) != 3 {
		t.Errorf("the host does not log %q three times: %s", want, r.out)
	}
}

func TestHost_Proxying_StatusWithoutBodyKeepsTheConnection(t *testing.T) {
	t.Parallel()
	r := proxyRig(t, host.Proxying)
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.host.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	reader := bufio.NewReader(conn)
	for _, status := range []int{304, 204, 304, 205} {
		r.setOrder(handlerOrder{Status: status, NoBody: true, Header: http.Header{"Etag": {`"e"`}}})
		res, err := exchangeRaw(t, conn, reader, "GET /api/messages/7 HTTP/1.1\r\nHost: h\r\n\r\n")
		if err != nil {
			t.Fatalf("request with answer %d: %v", status, err)
		}

		_ = res.Body.Close()
		if res.StatusCode != status || res.Header.Get("Etag") != `"e"` {
			t.Errorf("answered %d %v; want %d", res.StatusCode, res.Header, status)
		}
	}
}

func TestHost_Forwarding_AnswerThatBreaks(t *testing.T) {
	t.Parallel()
	r := proxyRig(t, host.Forwarding)
	exit := 3
	for name, o := range map[string]handlerOrder{"reset": {Break: -1}, "cut short": {Break: 10},
		"death": {Exit: &exit}} {
		r.setOrder(o)
		if got := r.sendRequest("GET", "/api/messages/7", ""); got.StatusCode != 500 ||
			got.body != "" {
			t.Errorf("%s: answered %d %q; want an empty 500", name, got.StatusCode, got.body)
		}
	}
}

func TestHost_Proxying_AnswerThatBreaks(t *testing.T) {
	t.Parallel()
	r := proxyRig(t, host.Proxying)
	r.setOrder(handlerOrder{Break: -1})
	if got := r.sendRequest("GET", "/api/messages/7", ""); got.StatusCode != 500 || got.body != "" {
		t.Errorf("reset: answered %d %q; want an empty 500", got.StatusCode, got.body)
	}

	r.setOrder(handlerOrder{Break: 10})
	res, err := http.Get(r.host.URL() + "/api/messages/7")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()

	if body, err := io.ReadAll(res.Body); err == nil || res.StatusCode != 200 {
		t.Errorf("cut short: answered %d %q without an error; want 200 that breaks off",
			res.StatusCode, body)
	}
}

// A forwarding host sends no byte to the client before the handler has sent its whole answer. A
// proxying host sends the first half to the client before the handler has sent the second half.
func TestHost_Answer_BufferedOrStreamed(t *testing.T) {
	t.Parallel()
	for mode, isStreamed := range map[host.Mode]bool{host.Forwarding: false, host.Proxying: true} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			r := proxyRig(t, mode)
			const body = "the first half; the second one"
			half, want := make(chan struct{}), body
			r.decide = func(c handlerCall) handlerOrder {
				if c.URI == "/again" && isStreamed {
					<-half
				}
				return handlerOrder{Flush: true, Body: body}
			}

			res, err := http.Get(r.host.URL() + "/api/messages/7")
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()

			if isStreamed {
				if _, err := io.ReadFull(res.Body, make([]byte, len(body)/2)); err != nil {
					t.Fatal(err)
				}
				close(half)
				want = body[len(body)/2:]
			}

			got, err := io.ReadAll(res.Body)
			wantLength := int64(-1)
			if !isStreamed {
				wantLength = int64(len(body))
			}

			if err != nil || string(got) != want || res.ContentLength != wantLength {
				t.Errorf("%q, length %d, %v; want %q, length %d", got, res.ContentLength, err, want,
					wantLength)
			}
		})
	}
}

func TestHost_ClientGoesAway(t *testing.T) {
	t.Parallel()
	leave := func(t *testing.T, r *rig) {
		ctx, cancel := context.WithCancel(t.Context())
		q, err := http.NewRequestWithContext(ctx, "POST", r.host.URL()+"/api/messages",
			strings.NewReader("<a/>"))
		if err != nil {
			t.Fatal(err)
		}

		go func() { r.nextCall(); cancel() }()
		if _, err := http.DefaultClient.Do(q); err == nil {
			t.Error("Do = no error, want one for the cancelled request")
		}
	}

	t.Run("proxying: the handler learns of it", func(t *testing.T) {
		t.Parallel()
		r := proxyRig(t, host.Proxying)
		r.setOrder(handlerOrder{Watch: true})
		leave(t, r)
		if c := r.nextCall(); c.URI != "/gone" {
			t.Errorf("the handler got %+v; want it to see that the client has gone", c)
		}

		awaitCondition(t, "the host logs it",
			func() bool { return strings.Contains(r.out.String(), "The client disconnected") })
	})

	t.Run("forwarding: the handler answers all the same", func(t *testing.T) {
		t.Parallel()
		r := proxyRig(t, host.Forwarding)
		release := make(chan struct{})
		r.decide = func(c handlerCall) handlerOrder {
			if c.URI == "/api/messages" {
				<-release
			}
			return handlerOrder{Flush: true, Body: "late"}
		}

		leave(t, r)
		close(release)
		if c := r.nextCall(); c.URI != "/again" {
			t.Errorf("the handler got %+v; want it to go on with its answer", c)
		}

		awaitCondition(t, "the invocation succeeds",
			func() bool { return strings.Contains(r.out.String(), "(Succeeded") })
	})
}

func TestHost_Proxying_Request(t *testing.T) {
	t.Parallel()
	r := proxyRig(t, host.Proxying)
	got := r.sendRequest("POST", "/api/messages?a=1&A=2&flag&b=%2f+", "", func(q *http.Request) {
		q.Host = "weir.example"
		q.Body, q.ContentLength = io.NopCloser(strings.NewReader("<a/>")), -1
		q.Header = http.Header{
			"Content-Encoding": {"gzip"}, "User-Agent": {"curl"},
			"X-Azure-Functions-Invocationid": {"mine"},
			"X-Forwarded-For":                {"192.0.2.1"}, "X-Forwarded-Host": {"evil"},
			"X-Forwarded-Proto":  {"https"},
			"X-Forwarded-Prefix": {"/evil"},
			"X-Functions-Key":    {"k"}, "X-Ms-Client-Principal-Name": {"me"},
		}
	})

	c := r.nextCall()
	if got.StatusCode != 200 || c.URI != "/api/messages?a=1&A=2&flag&b=%2f+" || c.Body != "<a/>" ||
		!c.Chunked {
		t.Errorf("answered %d; the handler got %+v; want the chunked body and the query as sent",
			got.StatusCode, c)
	}

	if want := fmt.Sprintf("127.0.0.1:%d", r.host.Status().Instances[0].Port); c.Host != want {
		t.Errorf("Host: %q; want %q", c.Host, want)
	}

	for name, want := range map[string]string{
		"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": "weir.example",
		"X-Forwarded-Proto":  "http",
		"X-Forwarded-Prefix": "",
		"Content-Encoding":   "gzip", "User-Agent": "curl", "X-Functions-Key": "k",
		"X-Ms-Client-Principal-Name": "me",
	} {
		if got := strings.Join(c.Header[name], "|"); got != want {
			t.Errorf("%s: %q; want %q", name, got, want)
		}
	}

	if id := c.Header.Get("X-Azure-Functions-InvocationId"); len(id) != 36 ||
		c.Header.Get("X-Ms-Invocation-Id") != id {
		t.Errorf("invocation ids: %v; want the host's own, twice", c.Header)
	}
}

func TestHost_Forwarding_HeadersPassAsSent(t *testing.T) {
	t.Parallel()
	r := proxyRig(t, host.Forwarding)
	sent := map[string][]string{
		"X-Forwarded-For": {"192.0.2.1", "192.0.2.2"}, "X-Forwarded-Host": {"evil"},
		"X-Forwarded-Proto": {"https"},
		"Forwarded":         {"for=x"}, "Authorization": {"Bearer b"},
		"X-Ms-Client-Principal-Name": {"me"},
		"X-Functions-Key":            {"k"}, "Cookie": {"c=1"}, "Expect": {"100-continue"},
		"X-Azure-Functions-Hostversion": {"9"}, "X-Twice": {"a", "b,c"},
	}

	r.sendRequest("POST", "/api/messages", "x", func(q *http.Request) { q.Header = sent })
	c := r.nextCall()
	for name, values := range sent {
		want := strings.Join(values, ", ")
		if name == "X-Azure-Functions-Hostversion" {
			want += ", " + r.host.Status().Version
		}

		if got := c.Header[name]; !slices.Equal(got, []string{want}) {
			t.Errorf("%s: %q; want %q", name, got, want)
		}
	}
}

func TestHost_HeadAndOptions(t *testing.T) {
	t.Parallel()
	for _, mode := range []host.Mode{host.Forwarding, host.Proxying} {
		r := proxyRig(t, mode)
		r.setOrder(handlerOrder{Body: "12345"})

		for _, c := range []struct {
			method, path string
			want         int
		}{
			{"HEAD", "/api/health", 200}, {"HEAD", "/api/messages/7", 404},
			{"OPTIONS", "/api/messages/7", 404}, {"OPTIONS", "/api/health", 404},
		} {
			if got := r.sendRequest(c.method, c.path, ""); got.StatusCode != c.want ||
				got.body != "" {
				t.Errorf("%s: %s %s: %d %q; want %d without a body",
					mode, c.method, c.path, got.StatusCode, got.body, c.want)
			}
		}

		if got := r.sendTarget("OPTIONS", "*"); got.status != "404" {
			t.Errorf("%s: OPTIONS *: %+v; want 404", mode, got)
		}
	}
}

func TestHost_HeaderTooLarge(t *testing.T) {
	t.Parallel()
	r := proxyRig(t, host.Forwarding)
	for size, want := range map[int]int{20 << 10: 200, 40 << 10: 431} {
		large := func(q *http.Request) { q.Header.Set("X-Large", strings.Repeat("x", size)) }
		got := r.sendRequest("GET", "/api/messages/7", "", large)
		if got.StatusCode != want {
			t.Errorf("a header of %d bytes is answered %d; want %d", size, got.StatusCode, want)
		}
	}
}

// An old host (host.Forwarding) does not know proxying. If host.json enables only proxying, an old
// host sends JSON payloads to the function's own address, /status.
func TestHost_ModeByAgeAndHostJSON(t *testing.T) {
	t.Parallel()
	const function = "/status"
	for _, c := range []struct {
		mode                  host.Mode
		forwarding, proxying  string
		wantURI, wantHostName string
	}{
		{host.Forwarding, "true", "false", "/api/messages/a+b", "weir.example"},
		{host.Forwarding, "true", "true", "/api/messages/a+b", "weir.example"},
		{host.Forwarding, "false", "true", function, "127.0.0.1"},
		{host.Proxying, "true", "false", "/api/messages/a+b", "weir.example"},
		{host.Proxying, "true", "true", "/api/messages/a+b", "127.0.0.1"},
		{host.Proxying, "false", "true", "/api/messages/a+b", "127.0.0.1"},
		{host.Proxying, "false", "false", function, "127.0.0.1"},
		{"", "true", "true", "/api/messages/a+b", "127.0.0.1"},
	} {
		r := newRig(t, rigOptions{cfg: host.Config{HTTP: c.mode},
			functions: map[string]string{"status": httpFunction(`,"route":"messages/{id}"`)},
			env: []string{
				"AzureFunctionsJobHost__customHandler__enableForwardingHttpRequest=" + c.forwarding,
				"AzureFunctionsJobHost__customHandler__enableProxyingHttpRequest=" + c.proxying,
			}}).startHost()

		r.sendRequest("GET", "/api/messages/a%2bb", "",
			func(q *http.Request) { q.Host = "weir.example" })
		got := r.nextCall()
		if name, _, _ := strings.Cut(got.Host, ":"); got.URI != c.wantURI ||
			name != c.wantHostName {
			t.Errorf("%q, forwarding %s, proxying %s: %s at %s; want %s at %s",
				c.mode, c.forwarding, c.proxying, got.URI, got.Host, c.wantURI, c.wantHostName)
		}
	}
}

func TestMode_Set(t *testing.T) {
	t.Parallel()
	var m host.Mode
	if err := m.Set("http"); err == nil || m != "" {
		t.Errorf("Set(http) = %v, %q; want an error and no change", err, m)
	}

	if err := m.Set("forwarding"); err != nil || m != host.Forwarding {
		t.Errorf("Set(forwarding) = %v, %q, want %v and no error", err, m, host.Forwarding)
	}
}

// If a percent sign in a request line begins no valid escape, the host escapes the percent sign.
// The host changes no byte of a body, even if the body looks like a request. All requests come on
// one connection.
func TestHost_LenientTargets_OnOneConnection(t *testing.T) {
	t.Parallel()
	r := proxyRig(t, host.Forwarding)
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.host.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const body = "GET /%zz HTTP/1.1\r\n\r\n"
	reader := bufio.NewReader(conn)
	sized := fmt.Sprintf("POST /api/messages?%%zz HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	get := "GET /api/messages/%zz HTTP/1.1\r\nHost: h\r\n\r\n"
	chunked := "POST /api/messages HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" +
		fmt.Sprintf("%x;x=y\r\n%s\r\n0\r\nT: 1\r\n\r\n", len(body), body)
	for _, c := range []struct {
		request      string
		status       int
		uri, content string
	}{
		{sized, 200, "/api/messages?%25zz=", body}, {get, 200, "/api/messages/%25zz", ""},
		// The second case of the next line sends nothing. It reads the answer to "get", which the
		// first case has sent.
		{sized + get, 200, "/api/messages?%25zz=", body}, {"", 200, "/api/messages/%25zz", ""},
		{chunked, 500, "", ""},
	} {
		res, err := exchangeRaw(t, conn, reader, c.request)
		if err != nil {
			t.Fatalf("exchange of %q = %v, want an answer", c.request, err)
		}

		_, _ = io.Copy(io.Discard, res.Body)
		if res.StatusCode != c.status {
			t.Errorf("%q: answered %d; want %d", c.request, res.StatusCode, c.status)
		}

		if c.uri == "" {
			continue
		}

		if got := r.nextCall(); got.URI != c.uri || got.Body != c.content {
			t.Errorf("%q: the handler got %s %q; want %s %q", c.request, got.URI, got.Body,
				c.uri, c.content)
		}
	}
}

func TestHost_LenientTargets_Chunks(t *testing.T) {
	t.Parallel()
	r := proxyRig(t, host.Proxying)
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.host.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const body = "GET /%zz HTTP/1.1\r\n\r\n"
	reader := bufio.NewReader(conn)
	chunk := fmt.Sprintf("%x;x=y\r\n%s\r\n", len(body), body)
	post := "POST /api/messages?%zz HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" +
		chunk + chunk +
		"0\r\nT: 1\r\n\r\n"
	get := "GET /api/messages/%zz HTTP/1.1\r\nHost: h\r\n\r\n"
	for _, c := range []struct{ request, uri, body string }{
		{post, "/api/messages?%25zz", body + body}, {get, "/api/messages/%25zz", ""},
		{post, "/api/messages?%25zz", body + body},
	} {
		res, err := exchangeRaw(t, conn, reader, c.request)
		if err != nil {
			t.Fatal(err)
		}

		_, _ = io.Copy(io.Discard, res.Body)
		if res.StatusCode != http.StatusOK {
			t.Fatalf("%q: answered %d; want 200", c.request, res.StatusCode)
		}

		if got := r.nextCall(); got.URI != c.uri || got.Body != c.body {
			t.Errorf("the handler got %s %q; want %s %q", got.URI, got.Body, c.uri, c.body)
		}
	}
}

func TestHost_Traceparent(t *testing.T) {
	t.Parallel()
	const own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, mode := range []host.Mode{host.Forwarding, host.Proxying} {
		for _, isOn := range []bool{false, true} {
			r := newRig(t, rigOptions{cfg: host.Config{HTTP: mode, Traceparent: isOn},
				functions: map[string]string{
					"open": httpFunction(""),
					"tick": `{"bindings":[{"type":"timerTrigger","direction":"in","name":"t",` +
						`"schedule":"0 0 0 1 1 *"}]}`,
				},
				env: []string{
					"AzureFunctionsJobHost__customHandler__enableProxyingHttpRequest=true"}}).startHost()

			r.sendRequest("GET", "/api/open", "")
			checkTraceparent(t, r.nextCall(), isOn)
			r.sendRequest("POST", "/admin/functions/tick", "{}")
			checkTraceparent(t, r.nextCall(), isOn)
			r.sendRequest("GET", "/api/open", "",
				func(q *http.Request) { q.Header.Set("traceparent", own) })
			if got := r.nextCall().Header["Traceparent"]; !slices.Equal(got, []string{own}) {
				t.Errorf("%s: a client's traceparent arrives as %q; want %q", mode, got, own)
			}
		}
	}
}

func checkTraceparent(t *testing.T, c handlerCall, isOn bool) {
	t.Helper()
	got := c.Header.Get("traceparent")
	isThere := len(got) == 55 && strings.HasPrefix(got, "00-") && strings.HasSuffix(got, "-00")
	if isThere != isOn || !isOn && got != "" {
		t.Errorf("%s: traceparent %q; want one that is not sampled: %t", c.URI, got, isOn)
	}
}
