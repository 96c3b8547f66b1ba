// Package remote is a client of Weir's HTTP API, for commands that have an address and a key, but
// neither settings nor storage. A key is sent in a header, never in an address. The client follows
// no redirects, so no other host gets the key.
package remote
