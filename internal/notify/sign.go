package notify

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Secret signs requests to one receiver by the Standard Webhooks specification
// (https://www.standardwebhooks.com). A Secret can have several keys, so that an old and a new key
// are valid at the same time. Each key makes a signature.
type Secret struct{ keys [][]byte }

// Bounds of a key's size in bytes, from the Standard Webhooks specification.
const minKeySize, maxKeySize = 24, 64

// ParseSecret parses keys of the form whsec_<base64>, separated by spaces.
func ParseSecret(text string) (Secret, error) {
	var s Secret
	for _, part := range strings.Fields(text) {
		encoded, ok := strings.CutPrefix(part, "whsec_")
		if !ok {
			return Secret{}, errors.New("it must begin with whsec_")
		}

		key, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return Secret{}, errors.New("the text behind whsec_ must be base64")
		}

		if len(key) < minKeySize || len(key) > maxKeySize {
			return Secret{}, fmt.Errorf("the text behind whsec_ must be %d to %d bytes in base64",
				minKeySize, maxKeySize)
		}

		s.keys = append(s.keys, key)
	}

	if len(s.keys) == 0 {
		return Secret{}, errors.New("it is empty; write whsec_ and 24 to 64 random bytes in base64")
	}

	return s, nil
}

// Sign returns the value of the header webhook-signature for a request. The argument "id" is the
// request's webhook-id.
func (s Secret) Sign(id string, at time.Time, body []byte) string {
	signatures := make([]string, len(s.keys))
	for i, key := range s.keys {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
		mac.Write(body)
		signatures[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}

	return strings.Join(signatures, " ")
}

// String returns a text without the keys.
func (Secret) String() string { return "(secret)" }

// GoString returns a text without the keys.
func (Secret) GoString() string { return "(secret)" }
