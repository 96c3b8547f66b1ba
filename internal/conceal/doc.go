// Package conceal knows which parts of requests are secrets. Each way to make requests to the CMS, and each output that
// shows such requests, takes its secrets from this package. So a secret that one of them hides is hidden by all.
package conceal
