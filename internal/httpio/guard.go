package httpio

import (
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strings"
)

// plainPathPattern matches the paths that Weir's addresses can have. No segment is empty, except that
// one slash may end the path: the host's router ignores it, too.
var plainPathPattern = regexp.MustCompile(`^(/[A-Za-z0-9._~-]+)+/?$`)

// PlainPathsOnly passes requests on to next if their path has no escapes, dot segments or empty
// segments, and answers 404 to all others. The host checks the key of the function that its router
// finds, and the handler must not find another function under the same path. So nothing is decoded,
// cleaned or redirected here. Under proxying, only this check prevents two readings of an escaped
// path. Under forwarding the host decodes and cleans the path before it sends it; only the constraints
// in function.json see the path whose key was checked.
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

// HostCallsOnly passes the host's own calls on to next (those of queues and timers), and answers 404
// to all others. The host makes them to the address that the handler listens on, without a query and
// without forwardingHeaders. A request that the host forwards carries the client's Host, and one that
// it proxies carries X-Forwarded-Host. A client can imitate everything else of such a call (User-Agent,
// invocation id, content type, payload), so nothing of that is checked.
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

// isOwnHost reports whether the request names the address that the handler listens on.
func isOwnHost(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && r.Host == local.String()
}

// forwardingHeaders never occur in the host's own calls.
var forwardingHeaders = []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded",
	"X-Functions-Key"}

// isForwarded reports whether the request has a sign that a client made it: such a header, or a query.
func isForwarded(r *http.Request) bool {
	for _, name := range forwardingHeaders {
		if len(r.Header.Values(name)) > 0 {
			return true
		}
	}
	return r.URL.RawQuery != ""
}

// relaysNotModified reports whether a 304 reaches the client. A host that forwards closes the
// client's connection after a 304; one that proxies relays it.
func relaysNotModified(r *http.Request) bool {
	isCalledByHost := InvocationID(r) != ""
	return !isCalledByHost || isOwnHost(r) && r.Header.Get("X-Forwarded-Host") != ""
}
