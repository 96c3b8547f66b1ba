package lane

import (
	"crypto/sha256"
	"encoding/binary"

	"weir/internal/lane/rows"
	"weir/internal/weir"
)

// OrderPos returns the position of a message in its key's order, if the message was not scheduled. Positions sort as
// strings.
func OrderPos(seq int64) string { return rows.SeqPos(seq) }

// KeyHash returns the hash that stands for an ordering key in row keys.
func KeyHash(key string) string { return rows.Hash("key", key) }

// blockIDOf returns the id of the block for a message that has to wait. With skip (onFailure: skip) the message gets a
// block of its own, and otherwise it gets the block of its key.
func blockIDOf(key string, seq int64, skip bool) string {
	if skip {
		return rows.Hash("skip", key, rows.SeqPos(seq))
	}
	return KeyHash(key)
}

// supersedeKeyOf returns the hash of a message's key and contract. A message supersedes only messages with the same
// hash.
func supersedeKeyOf(m *weir.Message) string { return rows.Hash("latest", m.Key, m.Contract) }

func idempotencyKeyRow(key, idempotencyKey string) string {
	return rows.IdempotencyPrefix + rows.Hash("idempotency", key, idempotencyKey)
}

// Of returns the lane of an ordering key; lanes is the number of lanes. The result must never change, because stored
// messages are in the lane of their key.
func Of(key string, lanes int) int {
	sum := sha256.Sum256([]byte(key))
	return int(binary.BigEndian.Uint64(sum[:8]) % uint64(lanes))
}

// LeaseName returns the name of a lane's lease.
func (s *Store) LeaseName(lane int) string { return "lane-" + s.Partition(lane) }
