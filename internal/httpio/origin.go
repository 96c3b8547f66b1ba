package httpio

import (
	"net/http"
	"regexp"
	"strings"
)

var hostNamePattern = regexp.MustCompile(`^[A-Za-z0-9.\-\[\]:]{1,255}$`)

// Scheme returns the scheme that the caller used, in front of all proxies.
func Scheme(r *http.Request) string {
	switch p := strings.ToLower(firstElement(r, "X-Forwarded-Proto")); {
	case p == "http" || p == "https":
		return p
	case r.TLS != nil:
		return "https"
	}
	return "http"
}

// BaseURL returns the scheme and host that the caller used, for absolute addresses in answers. It takes
// X-Forwarded-Host only from a host that proxies: anyone else may have written it, and a client that
// follows the address would send its key there.
func BaseURL(r *http.Request) string { return Scheme(r) + "://" + publicHost(r) }

// publicHost returns the host that the caller used. A host that proxies sends requests to the address that
// the handler listens on, and its own element of X-Forwarded-Host is the last one.
func publicHost(r *http.Request) string {
	given := strings.Join(r.Header.Values("X-Forwarded-Host"), ",")
	last := strings.TrimSpace(given[strings.LastIndex(given, ",")+1:])
	if isOwnHost(r) && hostNamePattern.MatchString(last) {
		return last
	}
	return r.Host
}

// firstElement returns the element that the proxy nearest to the caller wrote: each proxy may append
// one.
func firstElement(r *http.Request, header string) string {
	first, _, _ := strings.Cut(r.Header.Get(header), ",")
	return strings.TrimSpace(first)
}
