package lane

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// KeyBlock is the row of a block. All held messages of a block wait for the block's first message.
// With onFailure: skip a block has a single message. Later messages of the key wait for the single
// message if LogWaitsFrom is set; otherwise they do not wait.
type KeyBlock struct {
	ID        string    // as Entry.BlockID returns it
	KeyHash   string    // hash of the ordering key
	NextAt    time.Time // time of the first held message's next attempt
	HeldCount int64     // number of held messages
	// IsUntried says that the first held message had no attempt since its acceptance or replay. It
	// is false if the message had an attempt, or if that is not known.
	IsUntried bool
	// LogWaitsFrom is for a block whose single message (onFailure: skip) had no attempt yet. The
	// key's messages in the log, from the sequence number LogWaitsFrom on, wait for the single
	// message's attempt; 0 = no message waits.
	//
	// The single message was either released or parked. A released message was scheduled and became
	// due, so the holder put it into its key's queue. A parked message was taken from the log by
	// the holder while its key was paused.
	LogWaitsFrom int64
	// the single message was parked; LogWaitsFrom is the message's own sequence number
	IsParked bool
	// MissingContract is the name of the first held message's contract if the settings of the last
	// holder had no such contract; "" = they had it, or no holder has read the message.
	// MissingSince is the time at which a holder first missed the contract.
	MissingContract string
	MissingSince    time.Time
	// BrakedContract is the contract of the first held message if the CMS has rejected the message
	// while a brake was closed, and BrakedBy the fingerprint of the rejection; "" = it was not
	// rejected so.
	BrakedContract, BrakedBy string
	// ReleasedAt is the time in the position of a released single message (see
	// HeldMessage.ReleasedAt); zero in other blocks. It orders released messages with the same
	// LogWaitsFrom.
	ReleasedAt time.Time
}

// Rank orders the blocks of one key that have a LogWaitsFrom; the lowest rank goes first. A
// released message goes before the log message with the number LogWaitsFrom, and its rank is twice
// that number. A parked message is itself the log message with that number, and its rank is higher
// by 1.
func (b *KeyBlock) Rank() int64 {
	if b.IsParked {
		return 2*b.LogWaitsFrom + 1
	}
	return 2 * b.LogWaitsFrom
}

// GoesBefore reports whether the block's message goes before the message of the block other. Both
// blocks must have the same key and a LogWaitsFrom. GoesBefore compares Rank, then ReleasedAt, then
// NextAt.
func (b *KeyBlock) GoesBefore(other *KeyBlock) bool {
	return cmp.Or(cmp.Compare(b.Rank(), other.Rank()), b.ReleasedAt.Compare(other.ReleasedAt),
		b.NextAt.Compare(other.NextAt)) < 0
}

// ReadBlocks reads all blocks of a lane.
func (ds DeliveryState) ReadBlocks(ctx context.Context, lane int) ([]KeyBlock, error) {
	var blocks []KeyBlock
	for r, err := range rows.Scan(ctx, ds.store.Table,
		rows.WithPrefix(ds.store.Partition(lane), rows.BlockPrefix, nil)) {
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
		LogWaitsFrom: rows.LogWaitsFrom.Of(v), IsParked: rows.IsParked.Of(v),
		ReleasedAt: rows.ReleasedAt.Of(v),
		IsUntried:  rows.IsUntried.Of(v), MissingContract: rows.MissingContract.Of(v),
		MissingSince: rows.MissingSince.Of(v), BrakedContract: rows.BrakedContract.Of(v),
		BrakedBy: rows.BrakedBy.Of(v),
	}
}

// HeldMessage is a held message of a block.
type HeldMessage struct {
	Seq      int64
	OrderPos string // position in the key's queue
	// Contract, Version, Callback and Spelling are set only if the contract has supersede
	Contract string
	Version  string
	Spelling string // the ordering key; "" = it is its own folded key (see Store.Fold)
	Tried    bool   // the message waits for its retry after a failed attempt
	Replayed bool   // the message was replayed at least once
	Callback string
}

// AsHeld returns the entry as a held message of its key.
func (e *Entry) AsHeld() HeldMessage {
	h := HeldMessage{Seq: e.Seq(), OrderPos: e.orderPos(), Tried: e.Stage == weir.Retrying,
		Replayed: e.IsReplayed()}
	if e.Message.Supersede {
		h.Contract, h.Version, h.Callback = e.Message.Contract, e.Message.Version,
			e.Message.Callback
		if (&Store{}).KeyHash(e.Message.Key) != e.keyHash {
			h.Spelling = e.Message.Key
		}
	}

	return h
}

func (h HeldMessage) heldValues() map[string]any {
	v := rows.Values(rows.Seq.Is(h.Seq))
	if h.Contract != "" {
		rows.Put(v, rows.Contract.Is(h.Contract), rows.Version.Is(h.Version))
	}

	if h.Spelling != "" {
		rows.Put(v, rows.Key.Is(h.Spelling))
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

// ErrDamagedQueue is the error of ReadHeld if the key of a row does not name the row's message.
var ErrDamagedQueue = errors.New("a row of the queue is damaged")

// BlockRow returns the key of a block's row.
func BlockRow(block string) string { return rows.BlockKey(block) }

// ReadHeld reads the first held messages of a block, at most limit. If there are none, the error is
// NotFound. If one of their rows is damaged, it is ErrDamagedQueue: the order of the messages is
// not known.
func (ds DeliveryState) ReadHeld(ctx context.Context, lane int, block string,
	limit int) ([]HeldMessage, error) {
	prefix := rows.HeldKey(block, "")
	found, err := rows.ReadFirst(ctx, ds.store.Table,
		rows.WithPrefix(ds.store.Partition(lane), prefix, nil), limit)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, &storage.Error{Op: "lane held", Kind: storage.NotFound, Index: -1}
	}

	line := make([]HeldMessage, len(found))
	for i, r := range found {
		line[i] = HeldFrom(r)
		if err := checkHeld(line[i]); err != nil {
			return nil, &storage.Error{Op: "lane held", Kind: storage.Unreadable, Index: -1,
				Code: "the key of row " + r.Key + " does not name its message", Err: err}
		}
		line[i].Contract = ds.store.Contracts.PresentName(line[i].Contract)
	}

	return line, nil
}

// checkHeld returns ErrDamagedQueue if the position of a held message does not end with the
// message's number.
func checkHeld(h HeldMessage) error {
	if h.Seq <= 0 || !strings.HasSuffix(h.OrderPos, rows.SeqPos(h.Seq)) {
		return ErrDamagedQueue
	}
	return nil
}

// HeldFrom returns the held message of a row whose key begins with r_.
func HeldFrom(r storage.Row) HeldMessage {
	v := r.Values
	// the row key is r_<block>_<position>
	_, place, _ := strings.Cut(strings.TrimPrefix(r.Key, rows.HeldPrefix), "_")
	return HeldMessage{Seq: rows.Seq.Of(v), OrderPos: place, Contract: rows.Contract.Of(v),
		Version: rows.Version.Of(v), Callback: rows.Callback.Of(v), Spelling: rows.Key.Of(v),
		Tried: rows.WasTried.Of(v), Replayed: rows.WasReplayed.Of(v)}
}

// ReleasedAt returns the time in a released message's position; zero = the message was not
// scheduled. The time is the message's due time, or a later time if a message with a later due time
// was released before.
func (h HeldMessage) ReleasedAt() time.Time {
	_, due, released := strings.Cut(h.OrderPos, "_")
	dueAt, _, _ := strings.Cut(due, "_")
	at, err := rows.ParseTimePos(dueAt)
	if !released || err != nil {
		return time.Time{}
	}
	return at
}
