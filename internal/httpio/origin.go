package httpio

import (
	"net/http"
	"regexp"
	"strings"
)

var hostName = regexp.MustCompile(`^[A-Za-z0-9.\-\[\]:]{1,255}$`)

// Scheme is that by which the caller reached us, before whatever passed the request on.
func Scheme(r *http.Request) string {
	switch p := strings.ToLower(firstElement(r, "X-Forwarded-Proto")); {
	case p == "http" || p == "https":
		return p
	case r.TLS != nil:
		return "https"
	}
	return "http"
}

// Origin is scheme and host as the caller reached us, for absolute addresses in answers.
func Origin(r *http.Request) string {
	host := r.Host
	if h := firstElement(r, "X-Forwarded-Host"); hostName.MatchString(h) {
		host = h
	}
	return Scheme(r) + "://" + host
}

// firstElement returns what the proxy nearest to the caller wrote: each proxy may add an element.
func firstElement(r *http.Request, header string) string {
	first, _, _ := strings.Cut(r.Header.Get(header), ",")
	return strings.TrimSpace(first)
}
