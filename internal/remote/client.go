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

	"weir/internal/upstream"
)

const (
	// requestTimeout limits the time of one request. It is shorter than the 230 s after which Azure
	// breaks off a request.
	requestTimeout = 100 * time.Second
	// maxAnswer is the largest number of bytes of an answer that are read into memory. The host has
	// the same limit for the body of a request.
	maxAnswer = 100 << 20
)

// Client calls Weir's API at one address. It is safe for concurrent use.
type Client struct {
	// Sender adds the credentials of an upstream to posts of messages and batches; nil = no
	// credentials. Sender must not change after the first request.
	Sender *upstream.Sender

	base *url.URL
	key  string
	http *http.Client
}

// New returns a client of the Weir at an address. The address can end in /api. If key is not empty,
// the client sends it as the function key.
func New(address, key string) (*Client, error) {
	base, err := url.Parse(address)
	switch { // no error repeats the address, because an address can contain a secret
	case strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, errors.New(
			"the function key has a space, a line break or another character in it that no key has")
	case err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "":
		return nil, errors.New("the address of Weir must be like https://weir.example.net")
	case base.User != nil || base.RawQuery != "" || base.Fragment != "":
		return nil, errors.New("the address of Weir must have no key, query, or fragment in it")
	}

	base.Path = strings.TrimSuffix(strings.TrimRight(base.Path, "/"), "/api")
	base.RawPath = ""
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 64

	return &Client{base: base, key: key,
		http: &http.Client{Transport: transport, Timeout: requestTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse
			}}}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Answer is an answer of Weir, both decoded and as JSON on one line.
type Answer[T any] struct {
	Value T
	JSON  json.RawMessage
}

type request struct {
	method, path string // the path is escaped
	query        url.Values
	contentType  string
	idempotency  string // value of Idempotency-Key; "" = no header
	ifNoneMatch  string // value of If-None-Match; "" = no header
	isSubmission bool   // the request posts a message or a batch, with the credentials of Sender
	body         []byte
}

// doRequest sends a request, and returns the body of a 2xx answer. If ctx has ended, doRequest
// returns the error of ctx. Every other error is an *Error.
func (c *Client) doRequest(ctx context.Context, r request) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, r.method, c.requestURL(r), bytes.NewReader(r.body))
	if err != nil {
		return nil, &Error{Message: "the request cannot be built", Err: err}
	}

	for name, value := range map[string]string{"Content-Type": r.contentType,
		"Idempotency-Key": r.idempotency,
		"If-None-Match":   r.ifNoneMatch, "X-Functions-Key": c.key} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}

	if r.isSubmission && c.Sender != nil {
		c.Sender.AddTo(req.Header, r.idempotency, time.Now(), r.body)
	}

	resp, err := c.http.Do(req)
	if err != nil {
		return nil, unreachableError(ctx, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, unreachableError(ctx, err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, refusalError(resp, body)
	}

	return body, nil
}

func (c *Client) requestURL(r request) string {
	address := c.base.String() + "/api" + r.path
	if len(r.query) > 0 {
		address += "?" + r.query.Encode()
	}
	return address
}

func readAnswer[T any](ctx context.Context, c *Client, r request) (Answer[T], error) {
	var a Answer[T]
	body, err := c.doRequest(ctx, r)
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

func getJSON[T any](ctx context.Context, c *Client, path string,
	query url.Values) (Answer[T], error) {
	return readAnswer[T](ctx, c, request{method: http.MethodGet, path: path, query: query})
}

func postJSON[T any](ctx context.Context, c *Client, path string, v any) (Answer[T], error) {
	return sendJSON[T](ctx, c, request{method: http.MethodPost, path: path}, v)
}

func sendJSON[T any](ctx context.Context, c *Client, r request, v any) (Answer[T], error) {
	body, err := json.Marshal(v)
	if err != nil {
		return Answer[T]{}, fmt.Errorf("encode: %w", err)
	}
	r.contentType, r.body = "application/json", body
	return readAnswer[T](ctx, c, r)
}
