package lane

import (
	"crypto/sha256"
	"encoding/binary"

	"weir/internal/lane/rows"
	"weir/internal/weir"
)

// OrderPos returns the position of a message of the log in the order of its key. Positions sort as strings.
func OrderPos(seq int64) string { return rows.SeqPos(seq) }

// KeyHash returns the hash by which row keys name an ordering key.
func KeyHash(key string) string { return rows.Hash("key", key) }

// blockIDOf returns the id of the block of a failed message: the block of its key, or a block of its own if later
// messages of the key may go ahead (skip).
func blockIDOf(key string, seq int64, skip bool) string {
	if skip {
		return rows.Hash("skip", key, rows.SeqPos(seq))
	}
	return KeyHash(key)
}

// supersedeKeyOf returns the hash of a key and a contract. Messages with the same hash supersede each
// other.
func supersedeKeyOf(m *weir.Message) string { return rows.Hash("latest", m.Key, m.Contract) }

func idempotencyKeyRow(key, idempotencyKey string) string {
	return rows.IdempotencyPrefix + rows.Hash("idempotency", key, idempotencyKey)
}

// Of returns the lane of an ordering key. The result for a key and a number of lanes must never change.
func Of(key string, lanes int) int {
	sum := sha256.Sum256([]byte(key))
	return int(binary.BigEndian.Uint64(sum[:8]) % uint64(lanes))
}

// LeaseName returns the name of the lane's lease.
func (s *Store) LeaseName(lane int) string { return "lane-" + s.Partition(lane) }
