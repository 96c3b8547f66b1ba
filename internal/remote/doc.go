// Package remote is the client of Weir's HTTP API. It is for commands that need an address and a key, but
// neither settings nor storage. It sends the key in a header, never in an address. It never sends the key to
// another host, because it follows no redirects.
package remote
