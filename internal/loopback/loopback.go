// Package loopback keeps pages of other sites away from the servers of a developer's machine. The
// page of another site can give its own name the address 127.0.0.1 (DNS rebinding), and so read and
// change everything: the browser then takes the server for a part of that site.
package loopback

import (
	"net"
	"net/http"
	"strings"
)

// IsName reports whether the Host of a request names this machine.
func IsName(host string) bool {
	name := host
	if withoutPort, _, err := net.SplitHostPort(host); err == nil {
		name = withoutPort
	}

	name = strings.ToLower(strings.TrimSuffix(strings.Trim(name, "[]"), "."))
	ip := net.ParseIP(name)

	return name == "localhost" || strings.HasSuffix(name, ".localhost") ||
		ip != nil && ip.IsLoopback()
}

// Guard returns a handler that refuses requests to other names than those of this machine.
func Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !IsName(r.Host) {
			http.Error(w, "This server of a developer's machine answers only to localhost and 127.0.0.1.",
				http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}
