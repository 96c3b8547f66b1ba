package weir

import "context"

type headersKey struct{}

// WithHeaders returns a context with the headers of a submission. Contracts with the same root
// element can compare them. The names must be canonical, as http.Header stores them.
func WithHeaders(ctx context.Context, headers map[string][]string) context.Context {
	return context.WithValue(ctx, headersKey{}, headers)
}

// HeadersOf returns the headers of WithHeaders, or nil.
func HeadersOf(ctx context.Context) map[string][]string {
	headers, _ := ctx.Value(headersKey{}).(map[string][]string)
	return headers
}
