package httpio

import (
	"net/http"
	"regexp"
)

var hostName = regexp.MustCompile(`^[A-Za-z0-9.\-\[\]:]{1,255}$`)

// Origin is scheme and host as the caller reached us, for absolute addresses in answers.
func Origin(r *http.Request) string {
	scheme, host := "http", r.Host
	if r.TLS != nil {
		scheme = "https"
	}
	if p := r.Header.Get("X-Forwarded-Proto"); p == "http" || p == "https" {
		scheme = p
	}
	if h := r.Header.Get("X-Forwarded-Host"); hostName.MatchString(h) {
		host = h
	}
	return scheme + "://" + host
}
