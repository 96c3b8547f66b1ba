package lane

import (
	"cmp"
	"context"
	"strings"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// KeyBlock is the row of a blocked key. Messages of the key are held behind the failed one.
type KeyBlock struct {
	ID        string    // see Entry.BlockID
	KeyHash   string    // of the ordering key
	NextAt    time.Time // when the first held message is tried again
	HeldCount int64     // number of held messages
	IsUntried bool      // no attempt of the first held message since it was accepted or replayed; false = not known
	// LogWaitsFrom is a sequence number: the key's log messages from it on wait for the first attempt of a moved
	// message. 0 = none wait.
	LogWaitsFrom int64
	IsParked     bool // if LogWaitsFrom is set: it is the number of the parked message itself
	// ReleasedAt is set if LogWaitsFrom is set and IsParked is not. It is the time in the message's position, and
	// orders messages with the same LogWaitsFrom.
	ReleasedAt time.Time
}

// Rank orders the blocks of a key among the messages of its log. The rank of a log message is twice its number. A
// released message has the rank of the log message LogWaitsFrom, and goes before it. A parked message is the log
// message LogWaitsFrom itself. Its rank is one higher, so it goes before the next log message.
func (b *KeyBlock) Rank() int64 {
	if b.IsParked {
		return 2*b.LogWaitsFrom + 1
	}
	return 2 * b.LogWaitsFrom
}

// GoesBefore reports whether the block goes before another of its key, if both go ahead of the log. NextAt
// decides last: a holder may put one of them off, and not the other.
func (b *KeyBlock) GoesBefore(other *KeyBlock) bool {
	return cmp.Or(cmp.Compare(b.Rank(), other.Rank()), b.ReleasedAt.Compare(other.ReleasedAt),
		b.NextAt.Compare(other.NextAt)) < 0
}

// ReadBlocks reads all blocks of a lane.
func (s *Store) ReadBlocks(ctx context.Context, lane int) ([]KeyBlock, error) {
	var blocks []KeyBlock
	for r, err := range rows.Scan(ctx, s.Table, rows.WithPrefix(s.Partition(lane), rows.BlockPrefix, nil)) {
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, blockFrom(r))
	}
	return blocks, nil
}

func blockFrom(r storage.Row) KeyBlock {
	v := r.Values
	return KeyBlock{
		ID: strings.TrimPrefix(r.Key, rows.BlockPrefix), KeyHash: rows.Key.Of(v),
		NextAt: rows.NextAt.Of(v), HeldCount: rows.HeldCount.Of(v),
		LogWaitsFrom: rows.LogWaitsFrom.Of(v), IsParked: rows.IsParked.Of(v), ReleasedAt: rows.ReleasedAt.Of(v),
		IsUntried: rows.IsUntried.Of(v),
	}
}

// HeldMessage is a held message of a block.
type HeldMessage struct {
	Seq      int64
	OrderPos string
	Contract string // if it supersedes; otherwise empty
	Version  string
	Tried    bool // a retry: its last attempt failed
	Replayed bool
	Callback string
}

func heldFrom(e *Entry) HeldMessage {
	h := HeldMessage{Seq: e.Seq(), OrderPos: e.orderPos(), Tried: e.Stage == weir.Retrying, Replayed: e.IsReplayed()}
	if e.Message.Supersede {
		h.Contract, h.Version, h.Callback = e.Message.Contract, e.Message.Version, e.Message.Callback
	}
	return h
}

func (h HeldMessage) heldValues() map[string]any {
	v := rows.Values(rows.Seq.Is(h.Seq))
	if h.Contract != "" {
		rows.Put(v, rows.Contract.Is(h.Contract), rows.Version.Is(h.Version))
	}
	if h.Tried {
		rows.Put(v, rows.WasTried.Is(true))
	}
	if h.Replayed {
		rows.Put(v, rows.WasReplayed.Is(true))
	}
	if h.Callback != "" {
		rows.Put(v, rows.Callback.Is(h.Callback))
	}
	return v
}

// AsHeld returns the entry as a held message of its key.
func (e *Entry) AsHeld() HeldMessage { return heldFrom(e) }

// ReadHeld reads the first held messages of a block, at most limit.
func (s *Store) ReadHeld(ctx context.Context, lane int, block string, limit int) ([]HeldMessage, error) {
	prefix := rows.HeldKey(block, "")
	found, err := rows.ReadFirst(ctx, s.Table, rows.WithPrefix(s.Partition(lane), prefix, nil), limit)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, &storage.Error{Op: "lane held", Kind: storage.NotFound, Index: -1}
	}
	line := make([]HeldMessage, len(found))
	for i, r := range found {
		line[i] = HeldFrom(r)
	}
	return line, nil
}

// HeldFrom returns the held message of an r_ row.
func HeldFrom(r storage.Row) HeldMessage {
	v := r.Values
	_, place, _ := strings.Cut(strings.TrimPrefix(r.Key, rows.HeldPrefix), "_") // the key ends in block and position
	return HeldMessage{Seq: rows.Seq.Of(v), OrderPos: place, Contract: rows.Contract.Of(v),
		Version: rows.Version.Of(v), Callback: rows.Callback.Of(v), Tried: rows.WasTried.Of(v),
		Replayed: rows.WasReplayed.Of(v)}
}

// ReleasedAt returns when a scheduled message was released; zero = it came through the log.
func (h HeldMessage) ReleasedAt() time.Time {
	_, due, released := strings.Cut(h.OrderPos, "_")
	dueAt, _, _ := strings.Cut(due, "_")
	at, err := rows.ParseTimePos(dueAt)
	if !released || err != nil {
		return time.Time{}
	}
	return at
}
