package httpio

import (
	"net/http"
	"regexp"
	"strings"
)

var hostNamePattern = regexp.MustCompile(`^[A-Za-z0-9.\-\[\]:]{1,255}$`)

// Scheme returns the scheme that the caller used, http or https. It trusts X-Forwarded-Proto.
func Scheme(r *http.Request) string {
	switch p := strings.ToLower(firstElement(r, "X-Forwarded-Proto")); {
	case p == "http" || p == "https":
		return p
	case r.TLS != nil:
		return "https"
	}
	return "http"
}

// BaseURL returns the scheme and the host name that the caller used, for absolute addresses in
// answers. It trusts X-Forwarded-Host only if the Functions host writes this header, as newer hosts
// do. Otherwise a caller could put another machine into an address, and a client that follows the
// address would send its key to that machine.
func BaseURL(r *http.Request) string { return Scheme(r) + "://" + publicHost(r) }

// publicHost returns the host name that the caller used, with the port if there is one. A newer
// Functions host sends the handler's own address in the header Host, and the name in the last
// element of X-Forwarded-Host. In all other cases the header Host has the name.
func publicHost(r *http.Request) string {
	given := strings.Join(r.Header.Values("X-Forwarded-Host"), ",")
	last := strings.TrimSpace(given[strings.LastIndex(given, ",")+1:])
	if isOwnHost(r) && hostNamePattern.MatchString(last) {
		return last
	}
	return r.Host
}

// firstElement returns the first element of a header to which each proxy can append an element. The
// caller wrote the first element, or the proxy nearest to the caller did.
func firstElement(r *http.Request, header string) string {
	first, _, _ := strings.Cut(r.Header.Get(header), ",")
	return strings.TrimSpace(first)
}
