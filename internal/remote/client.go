package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// requestTimeout bounds one request. The host itself ends one after 230 s at most.
	requestTimeout = 100 * time.Second
	// maxAnswer is the largest answer that is read: as much as the host lets in.
	maxAnswer = 100 << 20
)

// Client speaks to one Weir. It may be used concurrently.
type Client struct {
	base *url.URL
	key  string
	http *http.Client
}

// New makes a client of the Weir at an address, with a function key; empty = none. The
// address may end in /api.
func New(address, key string) (*Client, error) {
	base, err := url.Parse(address)
	switch { // no error repeats what may be secret
	case strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, errors.New("the function key has a space, a line break or another character in it that no key has")
	case err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "":
		return nil, errors.New("the address of Weir must be like https://weir.example.net")
	case base.User != nil || base.RawQuery != "" || base.Fragment != "":
		return nil, errors.New("the address of Weir must have no key, query, or fragment in it")
	}
	base.Path = strings.TrimSuffix(strings.TrimRight(base.Path, "/"), "/api")
	base.RawPath = ""
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 64
	return &Client{base, key, &http.Client{Transport: transport, Timeout: requestTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}, nil
}

// Close lets idle connections go.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Answer is what Weir said: understood, and as it came, in one line.
type Answer[T any] struct {
	Value T
	JSON  json.RawMessage
}

// request is what is asked.
type request struct {
	method, path string // the path escaped
	query        url.Values
	contentType  string
	idempotency  string
	body         []byte
}

// ask sends a request and gives the body of an answer that is a 2xx. Every error is an
// *Error, but for that of a context that ended.
func (c *Client) ask(ctx context.Context, r request) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, r.method, c.address(r), bytes.NewReader(r.body))
	if err != nil {
		return nil, &Error{Message: "the request cannot be built", Err: err}
	}
	for name, value := range map[string]string{"Content-Type": r.contentType, "Idempotency-Key": r.idempotency, "X-Functions-Key": c.key} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, unreachable(ctx, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, unreachable(ctx, err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, refusal(resp, body)
	}
	return body, nil
}

func (c *Client) address(r request) string {
	address := c.base.String() + "/api" + r.path
	if len(r.query) > 0 {
		address += "?" + r.query.Encode()
	}
	return address
}

// read asks, and understands the answer.
func read[T any](ctx context.Context, c *Client, r request) (Answer[T], error) {
	var a Answer[T]
	body, err := c.ask(ctx, r)
	if err != nil {
		return a, err
	}
	var line bytes.Buffer
	err = json.Compact(&line, body)
	if err == nil {
		err = json.Unmarshal(line.Bytes(), &a.Value)
	}
	if err != nil {
		return a, &Error{Message: "the answer is not Weir's: is the address right?", Err: err}
	}
	a.JSON = line.Bytes()
	return a, nil
}

// get reads what stands at a path.
func get[T any](ctx context.Context, c *Client, path string, query url.Values) (Answer[T], error) {
	return read[T](ctx, c, request{method: http.MethodGet, path: path, query: query})
}

// post sends JSON.
func post[T any](ctx context.Context, c *Client, path string, v any) (Answer[T], error) {
	body, err := json.Marshal(v)
	if err != nil {
		return Answer[T]{}, fmt.Errorf("encode: %w", err)
	}
	return read[T](ctx, c, request{method: http.MethodPost, path: path, contentType: "application/json", body: body})
}
