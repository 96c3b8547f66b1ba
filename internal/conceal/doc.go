// Package conceal knows which parts of requests are secrets, and hides values in texts. Each way to
// make requests to the CMS, and each output that shows such requests, takes its secrets from this
// package. So a secret that one of them hides is hidden by all. Secrets and redacted values are
// found by the same Finder.
package conceal
