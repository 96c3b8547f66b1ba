package lane

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"

	"weir/internal/lane/rows"
)

const erasedKeyPrefix = "sha256:"

// ErasedKey returns the text that replaces an erased ordering key: erasedKeyPrefix and the key's SHA-256 in hex.
func ErasedKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return erasedKeyPrefix + hex.EncodeToString(sum[:])
}

// OfRow returns the lane of the ordering key in a row. lanes is the number of lanes. An erased key has the same lane as
// the original key, because Of computes the lane from the SHA-256 that ErasedKey keeps.
func OfRow(v map[string]any, lanes int) int {
	key := rows.Key.Of(v)
	text, isHash := strings.CutPrefix(key, erasedKeyPrefix)
	if rows.ErasedAt.Of(v).IsZero() || !isHash {
		return Of(key, lanes)
	}
	sum, err := hex.DecodeString(text)
	if err != nil || len(sum) != sha256.Size {
		return Of(key, lanes)
	}
	return int(binary.BigEndian.Uint64(sum) % uint64(lanes))
}
