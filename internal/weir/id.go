package weir

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// NonceSize is the length in bytes of the random part of an id. Its 80 bits cannot be guessed.
const NonceSize = 10

// ID is a message's id. Epoch, Lane and Seq locate the message's row without a search. The random
// Nonce, which the row also has, keeps callers from guessing the id.
type ID struct {
	Epoch int
	Lane  int
	Seq   int64
	Nonce string // hex, 2×NonceSize characters
}

// IsZero reports whether id is the zero ID. A message has the zero ID until it is appended to a
// log.
func (id ID) IsZero() bool { return id == ID{} }

// String returns the opaque form: unpadded base64url of Epoch, Lane and Seq as varints, followed by
// the nonce. It returns "" for the zero ID, and for a nonce that is not hexadecimal.
func (id ID) String() string {
	nonce, err := hex.DecodeString(id.Nonce)
	if err != nil || id.IsZero() {
		return ""
	}

	b := binary.AppendUvarint(nil, uint64(id.Epoch))
	b = binary.AppendUvarint(b, uint64(id.Lane))
	b = binary.AppendUvarint(b, uint64(id.Seq))

	return base64.RawURLEncoding.EncodeToString(append(b, nonce...))
}

// ParseID parses the result of String. It returns an error for any other text, even for another
// base64 form of the same id.
func ParseID(s string) (ID, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil {
		return ID{}, fmt.Errorf("parse id: %w", err)
	}

	var parts [3]uint64
	for i := range parts {
		v, n := binary.Uvarint(b)
		if n <= 0 || v > 1<<62 {
			return ID{}, fmt.Errorf("parse id: bad number")
		}
		parts[i], b = v, b[n:]
	}

	id := ID{Epoch: int(parts[0]), Lane: int(parts[1]), Seq: int64(parts[2]),
		Nonce: hex.EncodeToString(b)}
	if len(b) != NonceSize || id.String() != s {
		return ID{}, fmt.Errorf("parse id: not an id of ours")
	}

	return id, nil
}
