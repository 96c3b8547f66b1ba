package lane

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"weir/internal/lane/rows"
	"weir/internal/weir"
)

// OrderPos returns the position of a message of the log in the order of its key. Positions sort as strings.
func OrderPos(seq int64) string { return rows.SeqPos(seq) }

// hashParts returns a hash of 128 bits in hex, so that collisions in a lane are practically impossible. It
// includes the length of each part, so ("a", "bc") and ("ab", "c") differ.
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

// blockIDOf returns the block of a failed message: that of its key, or one of its own if later messages of the
// key may go ahead.
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
