package door

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"weir/internal/weir"
)

// All is the name under which a key opens every function.
const All = "all"

// Functions has the names of the functions that a key can open.
var Functions = []string{
	"receive",
	"batches",
	"validate",
	"status",
	"cancel",
	"move",
	"view",
	"write",
	"schedules",
	"metrics",
}

// maxKeys is the largest number of keys of one function: the present one, and the next or the
// former one.
const maxKeys = 2

// keyBytes is the number of random bytes of a key.
const keyBytes = 32

// Hash is the SHA-256 of a key.
type Hash [sha256.Size]byte

func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// NewKey returns a new random key.
func NewKey() string {
	random := make([]byte, keyBytes)
	rand.Read(random) // never fails
	return base64.RawURLEncoding.EncodeToString(random)
}

// HashKey returns the hash of a key.
func HashKey(key string) Hash { return sha256.Sum256([]byte(key)) }

// Keys has the hashes of the keys of each function.
type Keys map[string][]Hash

// ParseKeys reads hashes in hexadecimal, by the name of the function. The error has a line for each
// problem.
func ParseKeys(texts map[string][]string) (Keys, []error) {
	keys, problems := Keys{}, []error(nil)
	names := make([]string, 0, len(texts))
	for name := range texts {
		names = append(names, name)
	}

	slices.Sort(names)

	for _, name := range names {
		hashes, err := parseHashes(name, texts[name])
		if err != nil {
			problems = append(problems, err)
			continue
		}
		keys[name] = hashes
	}

	return keys, problems
}

func parseHashes(name string, texts []string) ([]Hash, *weir.SettingProblem) {
	path := "keys." + name
	if name != All && !slices.Contains(Functions, name) {
		return nil, weir.NewSettingProblem(path, "there is no such function; write %s or %s",
			strings.Join(Functions, ", "), All)
	}

	if len(texts) == 0 || len(texts) > maxKeys {
		return nil, weir.NewSettingProblem(path, "has %d hashes and must have 1 or %d",
			len(texts), maxKeys)
	}

	var hashes []Hash
	for _, text := range texts {
		decoded, err := hex.DecodeString(strings.TrimSpace(text))
		if err != nil || len(decoded) != sha256.Size {
			return nil, weir.NewSettingProblem(path, "a value is not the SHA-256 of a key in "+
				"hexadecimal, as weir key new prints it")
		}

		if Hash(decoded) == HashKey("") {
			return nil, weir.NewSettingProblem(path, "a value is the SHA-256 of an empty text, "+
				"which is no key; weir key new prints a key and its hash")
		}

		hashes = append(hashes, Hash(decoded))
	}

	return hashes, nil
}

// Open reports whether a key opens a function. The time of the comparison does not depend on the
// key.
func (k Keys) Open(function, key string) bool {
	if key == "" {
		return false
	}

	given, found := HashKey(key), 0
	for _, name := range []string{function, All} {
		for _, hash := range k[name] {
			found |= subtle.ConstantTimeCompare(given[:], hash[:])
		}
	}

	return found == 1
}

// Closed returns the functions that no key opens.
func (k Keys) Closed() (closed []string) {
	for _, name := range Functions {
		if len(k[name])+len(k[All]) == 0 {
			closed = append(closed, name)
		}
	}
	return closed
}

// Equal returns a sentence for each hash that stands in two places, except under view and write:
// one key for the page and its changes is common.
func (k Keys) Equal() (sentences []string) {
	type place struct {
		name string
		hash Hash
	}

	var earlier []place
	for _, name := range append([]string{All}, Functions...) {
		for _, hash := range k[name] {
			for _, other := range earlier {
				switch {
				case other.hash != hash, other.name == "view" && name == "write":
				case other.name == name:
					sentences = append(sentences,
						fmt.Sprintf("keys.%s has the same hash twice, so there is no "+
							"second key: remove one, or put in the hash of the next key", name))

				case other.name == All:
					sentences = append(sentences,
						fmt.Sprintf("keys.%s has a hash of keys.%s, which opens it anyway: "+
							"remove one of them", name, All))

				default:
					sentences = append(sentences,
						fmt.Sprintf("keys.%s and keys.%s have the same hash, so each caller "+
							"of one can call the other, too: make a key for each by weir key new",
							other.name, name))
				}
			}

			earlier = append(earlier, place{name, hash})
		}
	}

	return sentences
}
