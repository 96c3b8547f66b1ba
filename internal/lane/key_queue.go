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

// KeyBlock is the row of a block: of a blocked key, or of a single message that waits and lets later messages of its
// key go ahead (onFailure: skip). The held messages of a block wait for the first of them.
type KeyBlock struct {
	ID        string    // the id that Entry.BlockID returns
	KeyHash   string    // hash of the ordering key
	NextAt    time.Time // when the first held message is tried again
	HeldCount int64     // number of held messages
	IsUntried bool      // the first held message had no attempt since it was accepted or replayed; false = not known
	// LogWaitsFrom is set if the block has a single message that lets later messages go ahead only after its first
	// attempt. That message was released, or it was parked: the holder took it from the log while its key was paused.
	// The key's log messages from the sequence number LogWaitsFrom on wait for the attempt. 0 = none of them wait.
	LogWaitsFrom int64
	IsParked     bool // if LogWaitsFrom is set: the message was parked, and LogWaitsFrom is its own sequence number
	// ReleasedAt is set if LogWaitsFrom is set and IsParked is not. It is the time in the released message's position,
	// and orders messages with the same LogWaitsFrom.
	ReleasedAt time.Time
}

// Rank orders those blocks of one key that have a LogWaitsFrom. The rank of a released message is twice LogWaitsFrom:
// the message goes before the log message with the sequence number LogWaitsFrom. A parked message is that log message
// itself. Its rank is one higher: it goes after the messages that were released before it, and before the next log
// message.
func (b *KeyBlock) Rank() int64 {
	if b.IsParked {
		return 2*b.LogWaitsFrom + 1
	}
	return 2 * b.LogWaitsFrom
}

// GoesBefore reports whether the block goes before another block of its key, if both have a LogWaitsFrom. If rank and
// ReleasedAt are equal, NextAt decides: a holder may have put off one of the two blocks.
func (b *KeyBlock) GoesBefore(other *KeyBlock) bool {
	return cmp.Or(cmp.Compare(b.Rank(), other.Rank()), b.ReleasedAt.Compare(other.ReleasedAt),
		b.NextAt.Compare(other.NextAt)) < 0
}

// ReadBlocks reads all blocks of a lane.
func (ds DeliveryState) ReadBlocks(ctx context.Context, lane int) ([]KeyBlock, error) {
	var blocks []KeyBlock
	for r, err := range rows.Scan(ctx, ds.store.Table, rows.WithPrefix(ds.store.Partition(lane), rows.BlockPrefix,
		nil)) {
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
	OrderPos string // position in its key's queue
	Contract string // this, Version and Callback are set only if the message supersedes
	Version  string
	Tried    bool // it waits for its retry: its last attempt failed
	Replayed bool // it was replayed at least once
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

// ReadHeld reads the first held messages of a block, at most limit. NotFound: the block has none.
func (ds DeliveryState) ReadHeld(ctx context.Context, lane int, block string, limit int) ([]HeldMessage, error) {
	prefix := rows.HeldKey(block, "")
	found, err := rows.ReadFirst(ctx, ds.store.Table, rows.WithPrefix(ds.store.Partition(lane), prefix, nil), limit)
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

// ReleasedAt returns the time in the position of a released message. That is the message's due time, or a later time
// if a message with a later due time was released first. Zero = the message was not scheduled.
func (h HeldMessage) ReleasedAt() time.Time {
	_, due, released := strings.Cut(h.OrderPos, "_")
	dueAt, _, _ := strings.Cut(due, "_")
	at, err := rows.ParseTimePos(dueAt)
	if !released || err != nil {
		return time.Time{}
	}
	return at
}
