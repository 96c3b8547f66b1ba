package httpio

import (
	"net/http"
	"regexp"
)

var hostName = regexp.MustCompile(`^[A-Za-z0-9.\-\[\]:]{1,255}$`)

// Scheme is that by which the caller reached us, before whatever passed the request on.
func Scheme(r *http.Request) string {
	switch p := r.Header.Get("X-Forwarded-Proto"); {
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
	if h := r.Header.Get("X-Forwarded-Host"); hostName.MatchString(h) {
		host = h
	}
	return Scheme(r) + "://" + host
}
