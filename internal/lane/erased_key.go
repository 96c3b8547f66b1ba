package lane

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"weir/internal/fold"
	"weir/internal/lane/epochs"
	"weir/internal/lane/rows"
)

const erasedKeyPrefix = "sha256:"

// ErasedKey returns the text that replaces an erased ordering key: erasedKeyPrefix and the key's
// SHA-256 in hex.
func ErasedKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return erasedKeyPrefix + hex.EncodeToString(sum[:])
}

// erasedKeyCells returns the columns of a row whose ordering key is erased: the replacement of the
// key and, for each folding that changes the key, the SHA-256 of the folded key. With the hashes,
// OfRow still finds the lane of the key, also in an epoch with another folding.
func erasedKeyCells(key string) []rows.Cell {
	var folded []string
	for r := range fold.All + 1 {
		if changed := r.Fold(key); changed != key {
			sum := sha256.Sum256([]byte(changed))
			folded = append(folded, strconv.Itoa(int(r))+":"+hex.EncodeToString(sum[:]))
		}
	}

	return []rows.Cell{rows.Key.Is(ErasedKey(key)), rows.FoldedHashes.Is(strings.Join(folded, " "))}
}

// erasedHash returns the SHA-256 of the folded key in a row whose key is erased; ok = false: the
// row has none.
func erasedHash(v map[string]any, rules fold.Rules) (sum []byte, ok bool) {
	text, isHash := strings.CutPrefix(rows.Key.Of(v), erasedKeyPrefix)
	if rows.ErasedAt.Of(v).IsZero() || !isHash {
		return nil, false
	}

	for folded := range strings.FieldsSeq(rows.FoldedHashes.Of(v)) {
		if number, hash, _ := strings.Cut(folded, ":"); number == strconv.Itoa(int(rules)) {
			text = hash
		}
	}

	sum, err := hex.DecodeString(text)

	return sum, err == nil && len(sum) == sha256.Size
}

// OfRow returns the lane, in an epoch, of the ordering key in a row. An erased key has the same
// lane as the original key, because the lane is computed from a SHA-256 that erasedKeyCells keeps.
func OfRow(v map[string]any, e epochs.Epoch) int {
	if sum, isErased := erasedHash(v, e.Fold); isErased {
		return ofHash(sum, e.Lanes)
	}
	return OfKey(rows.Key.Of(v), e)
}
