package overview

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"slices"

	"weir/internal/lane"
	"weir/internal/weir"
)

// searchPosition is the position at which the next page of Search or Scheduled begins. A token
// contains it.
type searchPosition struct {
	open  int // the epoch that is open; after a change of the number of lanes the token is outdated
	epoch int // the epoch in which the next page begins
	// The meaning of this field depends on the token. In a token of Search, it has one sequence
	// number for each searched lane of the epoch: the next page has only messages with lower
	// numbers. If the field is empty, the next page begins with the newest messages of the epoch.
	// In a token of Scheduled, the field has three numbers of the last message: the due time in
	// microseconds, the lane and the sequence number.
	before []int64
}

// checksumSize is the number of bytes of the hash at the beginning of a token.
const checksumSize = 8

// encodeToken returns the position as a token. The token is valid only together with the same
// filter.
func (p searchPosition) encodeToken(filter any) string {
	b := binary.AppendUvarint(nil, uint64(p.open))
	b = binary.AppendUvarint(b, uint64(p.epoch))
	for _, n := range p.before {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return base64.RawURLEncoding.EncodeToString(append(hashFilter(filter, b), b...))
}

// hashFilter returns a hash of a filter and a token's content together, so that a token is valid
// only for its filter.
func hashFilter(f any, payload []byte) []byte {
	filter, err := json.Marshal(f)
	if err != nil {
		panic(err) // a defect of Weir: texts, numbers and times can always be encoded
	}
	sum := sha256.Sum256(slices.Concat(filter, []byte{0}, payload))
	return sum[:checksumSize]
}

// parseToken returns the position in a token. It returns an error if the token was changed, belongs
// to another filter, or is outdated.
func parseToken(store *lane.Store, filter any, token string) (searchPosition, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) < checksumSize ||
		!slices.Equal(b[:checksumSize], hashFilter(filter, b[checksumSize:])) {
		return searchPosition{}, tokenError()
	}

	var numbers []int64
	for b = b[checksumSize:]; len(b) > 0; {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > 1<<62 {
			return searchPosition{}, tokenError()
		}
		numbers, b = append(numbers, int64(n)), b[size:]
	}

	if len(numbers) < 2 {
		return searchPosition{}, tokenError()
	}

	p := searchPosition{int(numbers[0]), int(numbers[1]), numbers[2:]}

	return p, store.CheckPosition("search", p.open)
}

func tokenError() error {
	return &weir.Error{Kind: weir.Malformed, Op: "search",
		Message: "continue is not one that was given for this search: begin it anew",
		Problems: []weir.Problem{{Path: "continue",
			Message: "is not one that was given for this search"}}}
}
