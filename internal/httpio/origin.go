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

// BaseURL returns the scheme and host that the caller used, for absolute addresses in answers.
func BaseURL(r *http.Request) string {
	host := r.Host
	if h := firstElement(r, "X-Forwarded-Host"); hostNamePattern.MatchString(h) {
		host = h
	}
	return Scheme(r) + "://" + host
}

// firstElement returns the element that the proxy nearest to the caller wrote: each proxy may append
// one.
func firstElement(r *http.Request, header string) string {
	first, _, _ := strings.Cut(r.Header.Get(header), ",")
	return strings.TrimSpace(first)
}
