package httpio

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"weir/internal/weir"
)

// NotFound returns a handler that answers 404 to every request.
func NotFound(log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		WriteError(w, r, log, &weir.Error{Kind: weir.NotFound, Op: "route",
			Message: "there is nothing at this address"})
	})
}

// ByMethod passes a request on to the handler of its method. It answers 405 to methods without a
// handler.
func ByMethod(byMethod map[string]http.Handler) http.Handler {
	known := slices.Sorted(maps.Keys(byMethod))
	return AllowMethods(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		byMethod[r.Method].ServeHTTP(w, r)
	}), known...)
}

// WithTimeout ends the request's context after the time "limit". Without this limit a caller would
// wait for all retries of the storage client if storage hangs.
func WithTimeout(limit time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// IgnoreDisconnect lets the handler "next" finish even if the client disconnects. Under newer
// Functions hosts a disconnect ends the request's context. Without IgnoreDisconnect a change could
// stop between two of its steps, and its other steps would wait for the sweep.
func IgnoreDisconnect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithoutCancel(r.Context())))
	})
}

// AllowMethods passes a request on to the handler "next" if the request has one of the methods. It
// answers 405 to all other requests.
func AllowMethods(next http.Handler, methods ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, m := range methods {
			if r.Method == m {
				next.ServeHTTP(w, r)
				return
			}
		}

		w.Header().Set("Allow", strings.Join(methods, ", "))
		writeBody(w, "application/problem+json", http.StatusMethodNotAllowed, problem{
			Type: "about:blank", Title: http.StatusText(http.StatusMethodNotAllowed),
			Status:       http.StatusMethodNotAllowed,
			Detail:       "this address takes " + strings.Join(methods, ", "),
			InvocationID: InvocationID(r),
		})
	})
}

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

// RefuseCrossSite answers 403 to a request that changes something, if a page of another site made a
// browser send the request. Without this check, such a page could act in the name of an operator
// who has opened the page. The danger exists if the host demands no key, or accepts a browser's
// sign-in in place of the key.
//
// RefuseCrossSite passes on all other requests. It also passes on each request with the header
// X-Functions-Key, because a page of another site can set this header only if CORS permits it.
func RefuseCrossSite(log *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		isReading := r.Method == http.MethodGet || r.Method == http.MethodHead ||
			r.Method == http.MethodOptions
		if !isReading && r.Header.Get("X-Functions-Key") == "" && isCrossSite(r) {
			WriteError(w, r, log, &weir.Error{Kind: weir.Forbidden, Op: "cross-site",
				Message: "a page of another site sent this request; send it from Weir's own page, or with the " +
					"header x-functions-key"})
			return
		}

		next.ServeHTTP(w, r)
	})
}

// isCrossSite reports whether a page of another site made a browser send the request. Another port
// or subdomain counts as another site. The header Sec-Fetch-Site shows the site, but browsers send
// this header only over https, or to their own machine. If Sec-Fetch-Site is missing, isCrossSite
// compares Origin with the public host name. Clients other than browsers send neither header.
func isCrossSite(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none":
		return false
	case "":
	default:
		return true
	}

	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}

	u, err := url.Parse(origin)

	return err != nil || !strings.EqualFold(u.Host, publicHost(r))
}
