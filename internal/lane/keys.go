package lane

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"weir/internal/lane/rows"
	"weir/internal/weir"
)

// OrderPos returns the position, in the order of its key, of a message that came through the log.
// Positions sort as strings.
func OrderPos(seq int64) string { return rows.SeqPos(seq) }

// hashParts shortens parts to 128 bits in hex: too many for two of a lane ever to collide.
// Each part goes in with its length, so ("a", "bc") and ("ab", "c") differ.
func hashParts(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// KeyHash returns the hash by which row keys name an ordering key.
func KeyHash(key string) string { return hashParts("key", key) }

// blockIDOf names the block a failed message of this key makes: the key's own, or, when the
// later ones may go ahead, one for this message alone.
func blockIDOf(key string, seq int64, skip bool) string {
	if skip {
		return hashParts("skip", key, rows.SeqPos(seq))
	}
	return KeyHash(key)
}

// supersedeKeyOf returns the hash of a key and a contract. Messages with the same hash supersede each
// other.
func supersedeKeyOf(m *weir.Message) string { return hashParts("latest", m.Key, m.Contract) }

func idempotencyKeyRow(key, idempotencyKey string) string {
	return rows.IdempotencyPrefix + hashParts("idempotency", key, idempotencyKey)
}

// Of returns the lane of an ordering key. It must never change for a number of lanes.
func Of(key string, lanes int) int {
	sum := sha256.Sum256([]byte(key))
	return int(binary.BigEndian.Uint64(sum[:8]) % uint64(lanes))
}

// LeaseName returns the name of the lane's lease.
func (s *Store) LeaseName(lane int) string { return "lane-" + s.partitionOf(lane) }
