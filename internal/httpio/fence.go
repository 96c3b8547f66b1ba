package httpio

import (
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strings"
)

// plainPath matches what the paths of Weir's addresses are made of. No segment is empty, except
// that one slash may end the path: the host's router ignores it, too.
var plainPath = regexp.MustCompile(`^(/[A-Za-z0-9._~-]+)+/?$`)

// PlainPaths lets requests through to next if their path stands for itself, and answers 404 to all
// others. The host checks the key of the function that its router finds, and the handler must not
// find another one under the same path: so nothing is decoded, cleaned or redirected here. Under
// proxying, this alone keeps an escaped path from being understood in two ways. Under forwarding
// the host decodes and cleans the path before it sends it; only the constraints in function.json
// see the path that the key was checked for.
func PlainPaths(log *slog.Logger, next http.Handler) http.Handler {
	missing := NotFound(log)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.EscapedPath()
		if !plainPath.MatchString(path) || hasDotSegment(path) {
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

// Triggers lets the host's own calls through to next, which are those of queues and timers, and
// answers 404 to all others. The host makes them to the address that the handler listens on. A
// request that it forwards carries the client's Host, and one that it proxies carries
// X-Forwarded-Host. All else in such a call (User-Agent, invocation id, content type, payload) a
// client can send as the host does, so it is no sign.
func Triggers(log *slog.Logger, next http.Handler) http.Handler {
	missing := NotFound(log)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isOwnHost(r) || isPassedOn(r) {
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

// passedOn are headers that no call of the host's own has.
var passedOn = []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded", "X-Functions-Key"}

// isPassedOn reports whether the request shows that a client made it.
func isPassedOn(r *http.Request) bool {
	for _, name := range passedOn {
		if len(r.Header.Values(name)) > 0 {
			return true
		}
	}
	return r.URL.RawQuery != ""
}

// takesNotModified reports whether an answer without a body gets back to the client in one piece. A
// host that forwards closes the client's connection after a 304, and one that proxies does not.
func takesNotModified(r *http.Request) bool {
	isCalledByHost := InvocationID(r) != ""
	return !isCalledByHost || isOwnHost(r) && r.Header.Get("X-Forwarded-Host") != ""
}
