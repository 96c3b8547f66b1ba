// Package remote is the client of Weir's HTTP API, for commands that need an address and a key, but
// neither settings nor storage. The key is sent in a header, never in an address, and never to another
// host, because redirects are not followed.
package remote
