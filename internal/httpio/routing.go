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

// NotFound answers what no route matches.
func NotFound(log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		WriteError(w, r, log, &weir.Error{Kind: weir.NotFound, Op: "route", Message: "there is nothing at this address"})
	})
}

// Methods serves an address that means something different to each method, and answers 405
// to others.
func Methods(byMethod map[string]http.Handler) http.Handler {
	known := slices.Sorted(maps.Keys(byMethod))
	return Only(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { byMethod[r.Method].ServeHTTP(w, r) }), known...)
}

// Within gives next so long to read what it answers with. Storage that hangs would keep the
// caller waiting for as long as the client of storage has patience, over all its tries.
func Within(limit time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// ToTheEnd lets next finish if the client goes away. A host that proxies passes that on by ending the
// request's context, and a change that is cut off between two steps would wait for the sweep.
func ToTheEnd(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithoutCancel(r.Context())))
	})
}

// Only lets the methods given through to next, and answers 405 to others.
func Only(next http.Handler, methods ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, m := range methods {
			if r.Method == m {
				next.ServeHTTP(w, r)
				return
			}
		}
		w.Header().Set("Allow", strings.Join(methods, ", "))
		write(w, "application/problem+json", http.StatusMethodNotAllowed, problem{
			Type: "about:blank", Title: http.StatusText(http.StatusMethodNotAllowed), Status: http.StatusMethodNotAllowed,
			Detail: "this address takes " + strings.Join(methods, ", "), InvocationID: InvocationID(r),
		})
	})
}
