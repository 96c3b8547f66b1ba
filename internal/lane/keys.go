package lane

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"weir/internal/lane/epochs"
	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// With folding (Store.Fold) several ordering keys have the same folded key. Then the folded key
// decides all that belongs to the lane and to the order: the lane, the key's queue, pauses, and the
// last delivery, after which no earlier message is replayed. The ordering key itself decides all
// that belongs to the item of exactly this key: its versions, its remembered ids, its idempotency
// keys and its erasure.

// OrderPos returns the position of a message in its key's order, if the message was not scheduled.
// Positions sort as strings.
func OrderPos(seq int64) string { return rows.SeqPos(seq) }

// KeyHash returns the hash that stands for an ordering key, folded, in row keys.
func (s *Store) KeyHash(key string) string { return rows.Hash("key", s.Fold.Fold(key)) }

// LaneOf returns the lane of an ordering key.
func (s *Store) LaneOf(key string) int { return OfKey(key, s.Present()) }

// Present returns the epoch of the store.
func (s *Store) Present() epochs.Epoch {
	return epochs.Epoch{Number: s.Epoch, Lanes: s.Lanes, Fold: s.Fold}
}

// blockIDOf returns the id of the block for a message that has to wait. With onFailure: skip the
// message gets a block of its own, and otherwise it gets the block of its key. keyHash is the
// result of Store.KeyHash.
func blockIDOf(m *weir.Message, keyHash string) string {
	if m.Skip {
		return rows.Hash("skip", m.Key, rows.SeqPos(m.ID.Seq))
	}
	return keyHash
}

// supersedeKeyOf returns the hash of a message's key and contract. A message supersedes only
// messages with the same hash.
func supersedeKeyOf(m *weir.Message) string { return rows.Hash("latest", m.Key, m.Contract) }

func idempotencyKeyRow(key, idempotencyKey string) string {
	return rows.IdempotencyPrefix + rows.Hash("idempotency", key, idempotencyKey)
}

// OfKey returns the lane of an ordering key in an epoch.
func OfKey(key string, e epochs.Epoch) int { return Of(e.Fold.Fold(key), e.Lanes) }

// Of returns the lane of a folded key; lanes is the number of lanes. The result must never change,
// because stored messages are in the lane of their key.
func Of(key string, lanes int) int {
	sum := sha256.Sum256([]byte(key))
	return ofHash(sum[:], lanes)
}

// ofHash returns the lane of the folded key with this SHA-256.
func ofHash(sum []byte, lanes int) int { return int(binary.BigEndian.Uint64(sum) % uint64(lanes)) }

// LeaseName returns the name of a lane's lease.
func (s *Store) LeaseName(lane int) string { return "lane-" + s.Partition(lane) }

// newNonce returns the random text in the id of a message, or of a request.
func newNonce() string {
	nonce := make([]byte, weir.NonceSize)
	rand.Read(nonce) // never fails: crypto/rand ends the program instead
	return hex.EncodeToString(nonce)
}

// idFrom returns the id of the message that a row names: the id in the epoch that accepted the
// message. v has the row's values, and origin has the row's epoch and lane.
func idFrom(origin weir.ID, v map[string]any) weir.ID {
	if id := originFrom(rows.Origin.Of(v)); !id.IsZero() {
		return id
	}
	origin.Seq, origin.Nonce = rows.Seq.Of(v), rows.Nonce.Of(v)
	return origin
}

// originFrom returns the id in the column Origin; zero = the row's own epoch accepted the message.
func originFrom(text string) weir.ID {
	id, err := weir.ParseID(text)
	if err != nil {
		return weir.ID{}
	}
	return id
}

// originText returns the value of the column Origin; "" = the row's own epoch accepted the message.
func originText(m *weir.Message) string {
	if m.Origin.IsZero() {
		return ""
	}
	return m.Origin.String()
}

// partition is the table partition of one lane of one epoch.
type partition struct {
	table   storage.Table
	name    string
	damages *Damages
}

// rowsOf returns the partition that has the rows of a message.
func (s *Store) rowsOf(id weir.ID) partition {
	return partition{s.Table, rows.Partition(id.Epoch, id.Lane), s.Damages}
}

// rowsOfLane returns the partition of a lane in the store's epoch.
func (s *Store) rowsOfLane(lane int) partition {
	return partition{s.Table, s.Partition(lane), s.Damages}
}

func (p partition) hasRow(ctx context.Context, key string) (bool, error) {
	_, err := p.table.Get(ctx, p.name, key)
	if storage.Is(err, storage.NotFound) {
		return false, nil
	}
	return err == nil, err
}

// hasPrefix reports whether there is a row whose key begins with prefix.
func (p partition) hasPrefix(ctx context.Context, prefix string) (bool, error) {
	found, err := rows.ReadFirst(ctx, p.table,
		rows.WithPrefix(p.name, prefix, rows.Names(rows.Seq)), 1)
	return len(found) > 0, err
}
