package main

import "net/http"

// router is a mux that can tell its addresses, so that they can be held against the API's
// document.
type router struct {
	http.ServeMux
	patterns []string
}

// Handle adds an address.
func (r *router) Handle(pattern string, h http.Handler) {
	r.patterns = append(r.patterns, pattern)
	r.ServeMux.Handle(pattern, h)
}
