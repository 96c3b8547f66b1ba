package httpio

import (
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strings"
)

// plainPathPattern matches paths without escapes and without empty segments. One slash can end the
// path, because the host's router ignores this slash. The pattern also matches paths with dot
// segments.
var plainPathPattern = regexp.MustCompile(`^(/[A-Za-z0-9._~-]+)+/?$`)

// PlainPathsOnly passes a request on to the handler "next" if its path matches plainPathPattern and
// has no dot segment. It removes a slash at the end of the path. It answers 404 to all other
// requests.
//
// The host's router finds the function of a path, and the host checks the key of that function. If
// the handler's router read the path differently, the key of one function would open another
// function. So PlainPathsOnly does not decode, clean or redirect a path.
//
// A newer Functions host sends the path unchanged. Then this check alone ensures that both routers
// read the path alike. An older host decodes and cleans the path before it sends the request, so
// the handler does not know for which path the host checked the key. Then only the constraints in
// function.json protect the functions.
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

// withPath returns the request with another path, which must need no escape.
func withPath(r *http.Request, path string) *http.Request {
	if r.URL.Path == path && r.URL.RawPath == "" {
		return r
	}

	out, target := *r, *r.URL
	target.Path, target.RawPath = path, ""
	out.URL = &target
	return &out
}

// HostCallsOnly passes only the host's own calls on to the handler "next": the calls for queue and
// timer triggers. It answers 404 to all other requests.
//
// The host sends its own calls to the address on which the handler listens, without a query and
// without forwardingHeaders. A client's request reaches the handler through the host. With such a
// request an older host sends the client's header Host, and a newer host sends X-Forwarded-Host. A
// client can imitate everything else of the host's own calls (User-Agent, invocation id, content
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

// isOwnHost reports whether the header Host is the address on which the handler listens.
func isOwnHost(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && r.Host == local.String()
}

// forwardingHeaders are headers that the host's own calls never have.
var forwardingHeaders = []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto",
	"Forwarded", "X-Functions-Key"}

// isForwarded reports whether the request has one of forwardingHeaders or a query. The host's own
// calls have neither.
func isForwarded(r *http.Request) bool {
	for _, name := range forwardingHeaders {
		if len(r.Header.Values(name)) > 0 {
			return true
		}
	}
	return r.URL.RawQuery != ""
}

// relaysNotModified reports whether a 304 reaches the client. An older Functions host closes the
// client's connection after a 304. A newer host relays a 304. The requests of a newer host have the
// handler's own address in the header Host, and they have the header X-Forwarded-Host. A request
// without an invocation id was not sent by a host, so a 304 reaches its client.
func relaysNotModified(r *http.Request) bool {
	isCalledByHost := InvocationID(r) != ""
	return !isCalledByHost || isOwnHost(r) && r.Header.Get("X-Forwarded-Host") != ""
}
