package httpio

import (
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strings"
)

// plainPathPattern matches the paths that Weir's addresses can have, and paths with dot segments. No segment is
// empty. One slash may end the path, because the host's router ignores that slash.
var plainPathPattern = regexp.MustCompile(`^(/[A-Za-z0-9._~-]+)+/?$`)

// PlainPathsOnly passes a request on to the handler "next" if its path matches plainPathPattern and has no dot segment.
// It removes a slash at the end of the path. It answers 404 to all other requests. The host checks the key of the
// function that its router finds, and the handler must not find another function under the same path. So PlainPathsOnly
// does not decode or clean a path, and does not redirect.
//
// A host that proxies sends the path unchanged. So only this check keeps the host and the handler from reading an
// escaped path in two ways. A host that forwards decodes and cleans the path before it sends the request. Then only
// the constraints in function.json apply to the path for which the host checked the key.
func PlainPathsOnly(log *slog.Logger, next http.Handler) http.Handler {
	missing := NotFound(log)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.EscapedPath()
		if !plainPathPattern.MatchString(path) || hasDotSegment(path) {
			missing.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, withPath(r, strings.TrimSuffix(path, "/")))
	})
}

func hasDotSegment(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}

// withPath returns the request with a path that needs no escape.
func withPath(r *http.Request, path string) *http.Request {
	if r.URL.Path == path && r.URL.RawPath == "" {
		return r
	}
	out, target := *r, *r.URL
	target.Path, target.RawPath = path, ""
	out.URL = &target
	return &out
}

// HostCallsOnly passes only the host's own calls on to the handler "next": the calls for queue and timer triggers. It
// answers 404 to all other requests. The host sends its own calls to the address on which the handler listens, without
// a query and without forwardingHeaders. A request that the host forwards has the client's Host, and a request that it
// proxies has X-Forwarded-Host. A client can imitate everything else of such a call (User-Agent, invocation id, content
// type, payload), so HostCallsOnly checks nothing else.
func HostCallsOnly(log *slog.Logger, next http.Handler) http.Handler {
	missing := NotFound(log)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isOwnHost(r) || isForwarded(r) {
			missing.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isOwnHost reports whether the request names the address on which the handler listens.
func isOwnHost(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && r.Host == local.String()
}

// forwardingHeaders are headers that the host's own calls never have.
var forwardingHeaders = []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded",
	"X-Functions-Key"}

// isForwarded reports whether the request has a sign that a client made it: one of forwardingHeaders, or a
// query.
func isForwarded(r *http.Request) bool {
	for _, name := range forwardingHeaders {
		if len(r.Header.Values(name)) > 0 {
			return true
		}
	}
	return r.URL.RawQuery != ""
}

// relaysNotModified reports whether a 304 reaches the client. A host that forwards closes the client's
// connection after a 304. A host that proxies relays the 304.
func relaysNotModified(r *http.Request) bool {
	isCalledByHost := InvocationID(r) != ""
	return !isCalledByHost || isOwnHost(r) && r.Header.Get("X-Forwarded-Host") != ""
}
