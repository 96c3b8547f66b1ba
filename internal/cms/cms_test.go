package cms_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/cms"
	"weir/internal/steps"
	"weir/internal/weir"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 8, 12, 0, 0, 0, time.UTC)
	ok := regexp.MustCompile("<ok/>")
	for _, c := range []struct {
		status     int
		header     http.Header
		body       string
		want       weir.Outcome
		unanswered bool
		refused    bool
		retryAfter time.Duration
	}{
		{status: 200, body: "<ok/>", want: weir.OutcomeDelivered},
		{status: 201, body: "<ok/>", want: weir.OutcomeDelivered},
		{status: 204, body: "<ok/>", want: weir.OutcomeDelivered},
		{status: 200, body: "<error/>", want: weir.OutcomeRetry},
		{status: 301, want: weir.OutcomeUnavailable, refused: true},
		{status: 302, header: http.Header{"Location": {"/login"}}, want: weir.OutcomeUnavailable,
			refused: true},
		{status: 304, want: weir.OutcomeUnavailable, refused: true},
		{status: 400, body: "no title", want: weir.OutcomeRejected},
		{status: 400, body: " \r\n", want: weir.OutcomeUnavailable, refused: true},
		{status: 401, want: weir.OutcomeUnavailable},
		{status: 403, want: weir.OutcomeUnavailable, refused: true},
		{status: 404, want: weir.OutcomeUnavailable, refused: true},
		{status: 407, want: weir.OutcomeUnavailable},
		{status: 408, want: weir.OutcomeRetry, unanswered: true},
		{status: 409, want: weir.OutcomeRetry},
		{status: 413, body: "too large", want: weir.OutcomeRejected},
		{status: 413, body: "<html><h1>413</h1>", want: weir.OutcomeUnavailable, refused: true},
		{status: 499, want: weir.OutcomeRetry, unanswered: true},
		{status: 524, want: weir.OutcomeUnavailable, unanswered: true},
		{status: 422, body: `{"title":"is missing"}`, want: weir.OutcomeRejected},
		{status: 422, want: weir.OutcomeUnavailable, refused: true},
		{status: 414, want: weir.OutcomeRejected},
		{status: 423, want: weir.OutcomeRetry},
		{status: 425, want: weir.OutcomeRetry},
		{status: 429, header: http.Header{"Retry-After": {"7"}}, want: weir.OutcomeUnavailable,
			retryAfter: 7 * time.Second},
		{status: 500, want: weir.OutcomeRetry},
		{status: 501, want: weir.OutcomeRetry},
		{status: 502, want: weir.OutcomeUnavailable},
		{status: 503, header: http.Header{"Retry-After": {now.Add(90 * time.Second).Format(http.TimeFormat)}},
			want: weir.OutcomeUnavailable, retryAfter: 90 * time.Second},
		{status: 503, header: http.Header{"Retry-After": {"999999"}}, want: weir.OutcomeUnavailable,
			retryAfter: time.Hour},
		{status: 503, header: http.Header{"Retry-After": {"soon"}}, want: weir.OutcomeUnavailable},
		{status: 504, want: weir.OutcomeUnavailable, unanswered: true},
		{status: 507, want: weir.OutcomeRetry},
		{status: 500, header: http.Header{"Weir-Retry": {"never"}}, want: weir.OutcomeRejected},
	} {
		header := c.header
		if header == nil {
			header = http.Header{}
		}

		got := cms.Classify(cms.Answer{Status: c.status, Header: header, Body: []byte(c.body)},
			cms.Rules{Success: ok}, now)
		if got.Outcome != c.want || got.Unanswered != c.unanswered ||
			got.RetryAfter != c.retryAfter ||
			got.Reason == "" || got.Refused != c.refused {
			t.Errorf("%d %v: got %+v, want Outcome %v, Unanswered %v, RetryAfter %v, a Reason and Refused %v",
				c.status, c.header, got, c.want, c.unanswered, c.retryAfter, c.refused)
		}
	}
}

func newClient(t *testing.T, url string, change ...func(*steps.Config)) *steps.Sender {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	cfg := steps.Config{URL: url, Method: http.MethodPost, Timeout: 5 * time.Second,
		Now: time.Now, Transport: transport}
	for _, f := range change {
		f(&cfg)
	}

	c, err := steps.New(cfg)
	if err != nil {
		t.Fatal(err)
	}

	return c
}

func newDelivery() weir.Delivery {
	return weir.Delivery{Fence: 7, Attempt: 2, Message: &weir.Message{
		ID:       weir.ID{Epoch: 1, Lane: 0, Seq: 12, Nonce: "00112233445566778899"},
		Contract: "article", Key: "/news/ä b?", ContentType: "application/xml; charset=utf-8",
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		TraceState:  "vendor=a1",
		Body:        []byte("<a>\r\n</a>"),
	}}
}

func TestSender_Send_Request(t *testing.T) {
	t.Parallel()
	var got *http.Request
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
	}))
	defer server.Close()
	d := newDelivery()
	c := newClient(t, server.URL+"/content/{key}?v={version}&k={key}",
		func(c *steps.Config) { c.Headers = map[string]string{"X-Api-Key": "s3cret"} })
	if r := c.Send(t.Context(), d); r.Outcome != weir.OutcomeDelivered {
		t.Fatalf("got %+v, want Outcome delivered", r)
	}

	if got.URL.EscapedPath() != "/content/%2Fnews%2F%C3%A4%20b%3F" ||
		got.URL.Query().Get("k") != d.Message.Key {
		t.Errorf("got the address %s, want EscapedPath /content/%%2Fnews%%2F%%C3%%A4%%20b%%3F and k %v", got.URL,
			d.Message.Key)
	}

	if string(body) != string(d.Message.Body) {
		t.Errorf("got the body %q, want %v", body, string(d.Message.Body))
	}

	for name, want := range map[string]string{
		"Content-Type": d.Message.ContentType, "Idempotency-Key": d.Message.ID.String(),
		"Weir-Key":      "%2Fnews%2F%C3%A4%20b%3F",
		"Weir-Sequence": "12", "Weir-Fence": "7", "Weir-Attempt": "2",
		"Traceparent": d.Message.TraceParent,
		"Tracestate":  "vendor=a1", "X-Api-Key": "s3cret",
	} {
		if v := got.Header.Get(name); v != want {
			t.Errorf("%s: got %q, want %q", name, v, want)
		}
	}
}

func TestSender_Send_AReplayIsNoRepeat(t *testing.T) {
	t.Parallel()
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter,
		r *http.Request) {
		got = r.Header.Get("Idempotency-Key")
	}))
	defer server.Close()
	d := newDelivery()
	d.Message.Replays, d.Message.Edition = 2, 1
	newClient(t, server.URL).Send(t.Context(), d)
	if want := d.Message.ID.String() + ".2"; got != want {
		t.Errorf("got the Idempotency-Key %q, want %q", got, want)
	}
}

func TestSender_Send_ARedirectToALoginPageIsNotFollowed(t *testing.T) {
	t.Parallel()
	var logins atomic.Int32
	mux := http.NewServeMux()
	mux.HandleFunc("/login", func(http.ResponseWriter, *http.Request) { logins.Add(1) })
	mux.HandleFunc("/", func(w http.ResponseWriter,
		r *http.Request) {
		http.Redirect(w, r, "/login", http.StatusFound)
	})

	server := httptest.NewServer(mux)
	defer server.Close()

	if r := newClient(t, server.URL).Send(t.Context(), newDelivery()); r.Outcome !=
		weir.OutcomeUnavailable ||
		logins.Load() != 0 {
		t.Errorf("got %+v and %d logins, want Outcome unavailable and logins 0", r, logins.Load())
	}
}

func TestSender_Send_AnAnswerAfterTheTimeoutIsARetryThatSettles(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	server := httptest.NewServer(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer server.Close()
	defer close(release)
	c := newClient(t, server.URL, func(c *steps.Config) { c.Timeout = 100 * time.Millisecond })
	if r := c.Send(t.Context(), newDelivery()); r.Outcome != weir.OutcomeRetry || !r.Unanswered {
		t.Errorf("got %+v, want Outcome retry and Unanswered true", r)
	}
}

func TestSender_Send_CutOffIsNone(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter,
		*http.Request) {
		close(arrived)
		<-release
	}))
	defer server.Close()
	defer close(release)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()

	if r := newClient(t, server.URL).Send(ctx, newDelivery()); r.Outcome != weir.OutcomeNone ||
		!r.Unanswered {
		t.Errorf("got %+v, want Outcome none and Unanswered true", r)
	}
}

func TestSender_Send_RefusedIsUnavailable(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	l.Close()

	if r := newClient(t, "http://"+l.Addr().String()).Send(t.Context(),
		newDelivery()); r.Outcome != weir.OutcomeUnavailable || r.Unanswered {
		t.Errorf("got %+v, want Outcome unavailable and Unanswered false", r)
	}
}

func TestSender_Send_LostAfterItWasSentIsARetryThatSettles(t *testing.T) {
	t.Parallel()
	address, connections := rawServer(t,
		func(n int, conn net.Conn, r *bufio.Reader) { http.ReadRequest(r) })
	if r := newClient(t, address).Send(t.Context(), newDelivery()); r.Outcome !=
		weir.OutcomeRetry || !r.Unanswered ||
		connections.Load() != 1 {
		t.Errorf("got %+v and %d connections, want Outcome retry, Unanswered true and 1 connection",
			r, connections.Load())
	}
}

func TestSender_Send_TLSFailureIsUnavailable(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.StartTLS()
	defer server.Close()

	if r := newClient(t, server.URL).Send(t.Context(), newDelivery()); r.Outcome !=
		weir.OutcomeUnavailable {
		t.Errorf("got %+v, want Outcome unavailable", r)
	}
}

func TestSender_Send_AHugeAnswerIsNotReadWhole(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, strings.Repeat("no\x00\n", 1<<18))
	}))
	defer server.Close()

	if r := newClient(t, server.URL).Send(t.Context(), newDelivery()); r.Outcome !=
		weir.OutcomeRejected ||
		len(r.Body) > 2<<10 || len(r.Reason) > 310 || strings.ContainsAny(r.Reason, "\x00\n") {
		t.Errorf("got %v, %d stored bytes and the reason %q; want rejected, 2 KiB at most, and a reason of one line",
			r.Outcome,
			len(r.Body), r.Reason)
	}
}

// rawServer starts a TCP server that calls f for each connection, and then closes the connection.
// It returns the server's address and a counter of connections.
func rawServer(t *testing.T, f func(n int, conn net.Conn, r *bufio.Reader)) (string,
	*atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { l.Close() })
	var n atomic.Int32
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}

			go func() {
				defer conn.Close()
				f(int(n.Add(1)), conn, bufio.NewReader(conn))
			}()
		}
	}()

	return "http://" + l.Addr().String(), &n
}

func TestCheckTarget(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "cms", "ftp://x/?s3cret", "http://{key}.example/",
		"http://{key}@x/", "http://",
		"http://x/{Key}", "http://x/{key", "http://x/?a={path}&code=s3cret"} {
		if err := cms.CheckTarget(url, nil); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: got %v, want an error without \"s3cret\"", url, err)
		}
	}

	if err := cms.CheckTarget("https://x/{key}/{contract}?v={version}&id={id}",
		map[string]string{"authorization": "Bearer ä b\t"}); err != nil {
		t.Error(err)
	}

	err := cms.CheckTarget("https://x/",
		map[string]string{"bad name": "x", "": "x", "host": "x", "weir-key": "x",
			"Content-Type": "x", "X-Key": "s3cret\n"})
	if err == nil || strings.Count(err.Error(), "\n") != 5 ||
		strings.Contains(err.Error(), "s3cret") {
		t.Errorf("got %v, want an error of 6 lines without a value", err)
	}
}

// Reasons must not contain the address, because the query of an address can contain a key.
func TestSender_ReasonsDoNotNameTheAddress(t *testing.T) {
	t.Parallel()
	closed, _ := rawServer(t, func(_ int, conn net.Conn, r *bufio.Reader) {
		_,
			_ = http.ReadRequest(r)
	})
	for address, want := range map[string]weir.Outcome{
		"http://127.0.0.1:1/?code=s3cret": weir.OutcomeUnavailable,
		closed + "/?code=s3cret":          weir.OutcomeRetry,
	} {
		r := newClient(t, address).Send(t.Context(), newDelivery())
		if r.Outcome != want || r.Reason == "" || strings.Contains(r.Reason, "s3cret") {
			t.Errorf("%s: got %+v, want Outcome %v, a Reason and no \"s3cret\" in Reason",
				address, r, want)
		}
	}
}

// A contract can define the outcome of a status. The header Weir-Retry of the CMS's answer takes
// precedence over the contract.
func TestClassify_AsTheContractSays(t *testing.T) {
	t.Parallel()
	rules := cms.Rules{Means: map[int]weir.Outcome{403: weir.OutcomeRejected,
		404: weir.OutcomeRetry, 500: weir.OutcomeUnavailable, 504: weir.OutcomeRetry}}

	for status, want := range map[int]weir.Outcome{403: weir.OutcomeRejected,
		404: weir.OutcomeRetry,
		500: weir.OutcomeUnavailable, 504: weir.OutcomeRetry, 401: weir.OutcomeUnavailable,
		200: weir.OutcomeDelivered} {
		got := cms.Classify(cms.Answer{Status: status}, rules, time.Now())
		if got.Outcome != want || got.Refused || got.Unanswered != (status == 504) {
			t.Errorf("%d: got %+v, want %s", status, got, want)
		}
	}

	never := http.Header{"Weir-Retry": {"never"}}
	if got := cms.Classify(cms.Answer{Status: 404, Header: never}, rules,
		time.Now()); got.Outcome != weir.OutcomeRejected {
		t.Errorf("404 with Weir-Retry: never: got %s, want rejected", got.Outcome)
	}
}
