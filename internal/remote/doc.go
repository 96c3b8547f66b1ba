// Package remote speaks to a Weir over HTTP, for the commands that need no settings and no
// storage: only an address and a key. The key goes in a header, never in an address and
// never to another host: redirects are not followed.
package remote
