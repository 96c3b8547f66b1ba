package job

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"regexp"
	"time"
)

const (
	// maxMillis is the last time that an id can represent, in milliseconds of Unix time. It is in
	// the year 2286.
	maxMillis = 9999999999999
	// prefixLength is the number of digits of maxMillis.
	prefixLength = 13
)

// NewID returns a new id. It begins with the time left until maxMillis, so that the newest id sorts
// first, and ends with this number of random bytes in hexadecimal: a client that must not guess an
// id needs eight.
func NewID(now time.Time, randomBytes int) string {
	random := make([]byte, randomBytes)
	rand.Read(random) // never fails: crypto/rand ends the program instead
	return IDPrefix(now) + hex.EncodeToString(random)
}

// IDPrefix returns the first 13 digits of each id that NewID makes at the time t. A later time has
// a smaller prefix.
func IDPrefix(t time.Time) string {
	return fmt.Sprintf("%0*d", prefixLength, maxMillis-t.UnixMilli())
}

var idPattern = regexp.MustCompile(`^[0-9]{13}([0-9a-f]{2})+$`)

// IsID reports whether a text has the form of an id with this number of random bytes.
func IsID(text string, randomBytes int) bool {
	return len(text) == prefixLength+2*randomBytes && idPattern.MatchString(text)
}
