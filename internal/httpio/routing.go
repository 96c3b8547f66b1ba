package httpio

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
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
