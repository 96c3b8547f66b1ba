package weir

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

type callKey struct{}

// WithCall returns a context that has the id of the call. If a handler ends before it answers, the
// host sends the same request again, with the same id. So a change can find out that an earlier
// call has made it.
func WithCall(ctx context.Context, id string) context.Context {
	if id == "" {
		return ctx
	}
	sum := sha256.Sum256([]byte(id))
	return context.WithValue(ctx, callKey{}, hex.EncodeToString(sum[:12]))
}

// CallOf returns a text of 24 hexadecimal digits that stands for the call's id, or "" if the call
// has no id.
func CallOf(ctx context.Context) string {
	call, _ := ctx.Value(callKey{}).(string)
	return call
}

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

// ReadContentEncoding reads the values of the header Content-Encoding, or of a property with the
// same meaning. It reports whether the body is compressed by gzip, once. Any other coding except
// "identity" is an error of kind Unsupported.
func ReadContentEncoding(values ...string) (isGzip bool, err error) {
	var others []string
	for coding := range strings.SplitSeq(strings.Join(values, ","), ",") {
		name := strings.ToLower(strings.Trim(coding, " \t"))
		if !isGzip && (name == "gzip" || name == "x-gzip") { // RFC 9110, section 8.4.1.3
			isGzip = true
			continue
		}
		others = append(others, coding)
	}

	return isGzip, checkCodings("send the body uncompressed, or by gzip once", others)
}

// CheckContentEncoding checks the values of a header Content-Encoding for a body that Weir does not
// unpack: each coding except "identity" is an error of kind Unsupported. If a way in ignored the
// header, Weir would store the compressed bytes of a batch, and refuse them after its 202.
func CheckContentEncoding(values ...string) error {
	return checkCodings("send the body uncompressed", values)
}

// checkCodings refuses each coding except "identity". The parameter remedy is for the sender.
func checkCodings(remedy string, values []string) error {
	for coding := range strings.SplitSeq(strings.Join(values, ","), ",") {
		coding = strings.Trim(coding, " \t")
		if coding == "" || strings.EqualFold(coding, "identity") {
			continue
		}
		return &Error{Kind: Unsupported, Op: "content encoding",
			Message: fmt.Sprintf("the Content-Encoding %s is not supported: %s; "+
				"a character set belongs in the Content-Type", quoteInput(coding), remedy)}
	}

	return nil
}
