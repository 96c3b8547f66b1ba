package cms

import (
	"net/url"

	"weir/internal/conceal"
)

// Mask hides secrets in texts from the CMS. A CMS may repeat the address or a header of a request
// in its answer, and callers of Weir's API can read the answer's text in a message's status. The
// zero Mask hides nothing.
type Mask struct{ finder *conceal.Finder }

// minSecret is the smallest length in bytes of a value that a mask hides everywhere. A shorter
// value, such as a version number, occurs in many texts by chance.
const minSecret = 6

// NewMask returns a mask that hides these secrets, except those shorter than 6 bytes.
func NewMask(secrets ...string) Mask { return newMask(secrets, nil) }

// newMask returns a mask for secrets, and for pairs name=value. It hides the value of a pair even
// if the value is shorter than minSecret.
func newMask(secrets, pairs []string) Mask {
	const shortest = 3 // six bytes can be three characters
	var long []string
	for _, secret := range secrets {
		if len(secret) >= minSecret {
			long = append(long, secret)
		}
	}

	return Mask{conceal.NewFinder(long, conceal.Options{Shortest: shortest, Pairs: pairs})}
}

// Hide returns the text with … in place of each secret. If a secret may remain, Hide returns only
// ….
func (m Mask) Hide(text string) string {
	if m.finder == nil {
		return text
	}

	hidden, isSafe := m.finder.Replace(text, conceal.Hidden)
	if !isSafe {
		return conceal.Hidden
	}

	return hidden
}

// redirectTarget describes the scheme and the host of a Location. It leaves out path and query: a
// CMS often copies them from the address of the request, and this address may contain secrets of
// delivery.url.
func redirectTarget(location string) string {
	u, err := url.Parse(location)
	switch {
	case location == "":
		return ""
	case err != nil:
		return " to an address that cannot be read"
	case u.Host == "":
		return " to another path of the same host"
	case u.Scheme == "":
		return " to //" + u.Host
	}

	return " to " + u.Scheme + "://" + u.Host
}
