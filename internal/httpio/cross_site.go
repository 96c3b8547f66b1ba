package httpio

import (
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"weir/internal/weir"
)

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
