package overview

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"slices"

	"weir/internal/weir"
)

// place is how far a search has come: for each lane of an epoch that it looks at, the number
// below which it goes on.
type place struct {
	epoch  int
	before []int64
}

// sumSize is how much of a hash a token begins with, so that it fits its filter and nothing
// else, as it was given out.
const sumSize = 8

// token gives the opaque form.
func (p place) token(f Filter) string {
	b := binary.AppendUvarint(nil, uint64(p.epoch))
	for _, n := range p.before {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return base64.RawURLEncoding.EncodeToString(append(sumOf(f, b), b...))
}

func sumOf(f Filter, payload []byte) []byte {
	filter, err := json.Marshal(f)
	if err != nil {
		panic(err) // a struct of texts, numbers and times
	}
	sum := sha256.Sum256(slices.Concat(filter, []byte{0}, payload))
	return sum[:sumSize]
}

// parsePlace reads what token wrote, for the same filter.
func parsePlace(f Filter, token string) (place, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) < sumSize || !slices.Equal(b[:sumSize], sumOf(f, b[sumSize:])) {
		return place{}, errToken()
	}
	var numbers []int64
	for b = b[sumSize:]; len(b) > 0; {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > 1<<62 {
			return place{}, errToken()
		}
		numbers, b = append(numbers, int64(n)), b[size:]
	}
	if len(numbers) == 0 {
		return place{}, errToken()
	}
	return place{int(numbers[0]), numbers[1:]}, nil
}

func errToken() error {
	return &weir.Error{Kind: weir.Malformed, Op: "search", Message: "continue is not one that was given for this search: begin it anew",
		Problems: []weir.Problem{{Path: "continue", Message: "is not one that was given for this search"}}}
}
