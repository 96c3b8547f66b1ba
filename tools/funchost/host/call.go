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

// timeoutGrace is how long a timed-out call may continue before the host kills the handler.
const timeoutGrace = 2 * time.Second

// maxAnswer is how many bytes of an answer to a payload are read at most.
const maxAnswer = 100 << 20

var errEnded = errors.New("the handler process has ended")

// newHandlerClient returns the client for the calls of one handler process. Its calls reach no other process, although
// the next handler listens on the same port. This matters because net/http repeats a GET if a reused connection closes
// before the answer: a call that timed out would otherwise go to the next handler again, without a time limit.
func newHandlerClient(p *handlerProcess, forwarding bool) *http.Client {
	c := &http.Client{Transport: &http.Transport{
		DialContext:         p.dialHandler,
		DisableCompression:  true,
		MaxIdleConnsPerHost: 256,
		IdleConnTimeout:     time.Minute,
	}}
	if forwarding {
		c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	return c
}

// dialHandler connects to the process, and returns errEnded if the process has ended. The host starts the next process
// only after this one has ended, so a connection made before the end leads to this one.
func (p *handlerProcess) dialHandler(ctx context.Context, network, address string) (net.Conn, error) {
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

// caller sends invocations to the handler of an instance, as payloads or as HTTP requests.
type caller struct{ *instance }

// invokeFunction sends one invocation's payload. It returns an error if the invocation failed.
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

// unsized hides the length of a body, so that the client sends it in chunks, as the host on Azure does.
type unsized struct{ io.Reader }

// callWithTimeout runs one call under functionTimeout, and returns errTimeout if the call exceeds it. If the call runs
// on for timeoutGrace after that, the host kills the handler process, which ends all other calls in flight, too. The
// context of the call ends only with the instance.
func (c caller) callWithTimeout(call func(context.Context, *http.Client) error) error {
	p, client, err := c.awaitCallable()
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- call(c.lifetime, client) }()
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
		p.killHandler()
		<-done
	}
	return errTimeout
}

// awaitCallable waits until the instance's handler process is ready. If the process has exited with 0, awaitCallable
// also returns it, but all its calls fail. It returns an error if the instance is gone. If the process is not ready in
// time, it also returns an error, and the host ends.
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

// invocationResult is the handler's answer to a payload.
type invocationResult struct {
	Outputs     map[string]json.RawMessage
	Logs        []string
	ReturnValue json.RawMessage
}

// judgeAnswer reads the answer to a payload. It returns an error if the answer is no success.
func judgeAnswer(res *http.Response) (*invocationResult, error) {
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the handler's answer: %w", err)
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return nil, fmt.Errorf("the handler answered %d", res.StatusCode)
	}
	if len(bytes.TrimSpace(body)) == 0 || string(bytes.TrimSpace(body)) == "null" {
		return nil, fmt.Errorf("the handler answered %d without a body: the real host would hang here until "+
			"functionTimeout and then kill the handler", res.StatusCode)
	}
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); kind != "application/json" &&
		kind != "text/json" {
		return nil, fmt.Errorf("the handler answered with content type %q: want application/json",
			res.Header.Get("Content-Type"))
	}
	var out *invocationResult
	if err := json.Unmarshal(body, &out); err != nil {
		return nil, errors.Join(errors.New("the handler's answer is not the JSON object that a host expects"), err)
	}
	return out, nil
}
