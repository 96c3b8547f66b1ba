package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"time"
)

const (
	hostVersion = "4.1052.200.0"
	userAgent   = "Azure-Functions-Host/" + hostVersion

	headerID      = "X-Azure-Functions-InvocationId"
	headerVersion = "X-Azure-Functions-HostVersion"
)

// timeoutGrace is the time between the end of functionTimeout and the kill of a handler that still
// runs the call.
const timeoutGrace = 2 * time.Second

// maxAnswer is the greatest number of bytes that the host reads from the answer to an invocation.
const maxAnswer = 100 << 20

var errEnded = errors.New("the handler process has ended")

// newHandlerClient returns a client that can reach only the process p. After p has ended, the next
// handler process listens on the same port. net/http repeats a GET if a reused connection closes
// before the answer. So a plain client could repeat a timed-out call in the next process, without a
// time limit.
func newHandlerClient(p *handlerProcess, forwarding bool) *http.Client {
	c := &http.Client{Transport: &http.Transport{
		DialContext:         p.dialHandler,
		DisableCompression:  true,
		MaxIdleConnsPerHost: 256,
		IdleConnTimeout:     time.Minute,
	}}

	if forwarding {
		c.CheckRedirect = func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}
	}

	return c
}

// dialHandler connects to the process p, or returns errEnded if p has ended. The host starts the
// next process on this port only after p has ended. Therefore, if p has not ended after the dial,
// the connection leads to p.
func (p *handlerProcess) dialHandler(ctx context.Context, network,
	address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}

	select {
	case <-p.ended:
		return nil, errors.Join(errEnded, conn.Close())
	default:
		return conn, nil
	}
}

// caller sends invocations to the handler of an instance, as JSON payloads or as HTTP requests.
type caller struct{ *instance }

// invokeFunction sends an invocation to the handler as a JSON payload. It returns an error if the
// invocation fails.
func (c caller) invokeFunction(id string, f *function, body []byte) (*invocationResult, error) {
	var out *invocationResult
	start := c.host.console.now()
	c.reportStart(f, id)
	err := c.callWithTimeout(func(ctx context.Context, client *http.Client) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.handlerURL("/"+f.name),
			unsized{bytes.NewReader(body)})
		if err != nil {
			return err
		}

		r.Header.Set("Content-Type", "application/json; charset=utf-8")
		r.Header.Set("User-Agent", userAgent)
		r.Header.Set(headerVersion, hostVersion)
		r.Header.Set(headerID, id)
		c.host.addTraceparent(r.Header)
		res, err := client.Do(r)
		if err != nil {
			return err
		}
		defer func() { _ = res.Body.Close() }()
		out, err = judgeAnswer(res)

		return err
	})

	c.reportEnd(f.name, id, start, err)

	if err == nil {
		for _, line := range out.Logs {
			c.host.console.logEvent(categoryOf(f.name)+".User", levelInformation, "%s", line)
		}
	}

	return out, err
}

// unsized hides the length of a body, so that the client sends the body in chunks, as the real host
// does.
type unsized struct{ io.Reader }

// callWithTimeout runs a call, and returns errTimeout if the call takes longer than
// functionTimeout. If the call still runs timeoutGrace later, callWithTimeout kills the handler
// process, and all other calls in flight fail, too. The call's context ends with the instance, and
// after this kill, so that a proxy does not send the request again.
func (c caller) callWithTimeout(call func(context.Context, *http.Client) error) error {
	p, client, err := c.awaitCallable()
	if err != nil {
		return err
	}

	ctx, cancel := context.WithCancel(c.lifetime)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- call(ctx, client) }()
	var deadline <-chan time.Time
	if c.host.app.timeout > 0 {
		t := time.NewTimer(c.host.app.timeout)
		defer t.Stop()
		deadline = t.C
	}

	select {
	case err := <-done:
		return err
	case <-deadline:
	}

	grace := time.NewTimer(timeoutGrace)
	defer grace.Stop()

	select {
	case <-done:
	case <-grace.C:
		cancel()
		p.killHandler()
		<-done
	}

	return errTimeout
}

// awaitCallable waits until the instance's handler process is ready, and returns the process and
// its client. A process that has exited with 0 counts as ready, although all calls to it fail. If
// the instance is gone, awaitCallable returns errGone. If the process does not become ready in
// time, awaitCallable returns an error and makes the host give up.
func (c caller) awaitCallable() (*handlerProcess, *http.Client, error) {
	limit := time.NewTimer(4 * c.host.app.initTimeout)
	defer limit.Stop()

	for {
		s, p, client, changed := c.readState()
		switch s {
		case running, exited:
			return p, client, nil
		case gone:
			return nil, nil, errGone
		}

		select {
		case <-changed:
		case <-limit.C:
			err := fmt.Errorf("the handler of instance %d did not become ready", c.number)
			c.host.reportFatal(err)
			return nil, nil, err
		}
	}
}

// invocationResult is the handler's answer to an invocation that was sent as a JSON payload.
type invocationResult struct {
	Outputs     map[string]json.RawMessage
	Logs        []string
	ReturnValue json.RawMessage
}

// judgeAnswer decodes the handler's answer. It returns an error unless the answer is 2xx with a
// JSON object.
func judgeAnswer(res *http.Response) (*invocationResult, error) {
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the handler's answer: %w", err)
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return nil, fmt.Errorf("the handler answered %d", res.StatusCode)
	}

	if len(bytes.TrimSpace(body)) == 0 || string(bytes.TrimSpace(body)) == "null" {
		return nil, fmt.Errorf(
			"the handler answered %d without a body: the real host would hang here until "+
				"functionTimeout and then kill the handler", res.StatusCode)
	}

	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); kind !=
		"application/json" &&
		kind != "text/json" {
		return nil, fmt.Errorf("the handler answered with content type %q: want application/json",
			res.Header.Get("Content-Type"))
	}

	var out *invocationResult
	if err := json.Unmarshal(body, &out); err != nil {
		return nil, errors.Join(
			errors.New("the handler's answer is not the JSON object that a host expects"), err)
	}

	return out, nil
}
