package lane

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/lane/rows"
	"weir/internal/panics"
	"weir/internal/storage"
	"weir/internal/weir"
)

// DueTime is the due time and the sequence number of a scheduled message. Each scheduled message
// has a row whose key consists of the prefix s_ and these two values, so these rows sort by time.
type DueTime struct {
	At  time.Time // a whole number of microseconds
	Seq int64
}

// DueMessage is a scheduled message as its row (s_) shows it.
type DueMessage struct {
	DueTime
	// KeyHash is the hash of the message's ordering key; "" = an earlier version of Weir wrote the
	// row, so the key is not known.
	KeyHash string
}

func (d DueTime) String() string {
	return rows.TimePos(d.At) + "_" + rows.SeqPos(d.Seq)
}

func dueKey(d DueTime) string { return rows.DuePrefix + d.String() }

// scheduleOp returns the operation that adds the row of a scheduled message.
func scheduleOp(d DueTime, keyHash string) storage.Op {
	return storage.Op{Kind: storage.Insert, Key: dueKey(d),
		Values: rows.Values(rows.Key.Is(keyHash))}
}

// ParseDueKey returns the due time and the sequence number in the key of an s_ row.
func ParseDueKey(key string) (DueTime, error) {
	dueAt, seq, _ := strings.Cut(strings.TrimPrefix(key, rows.DuePrefix), "_")
	at, err := rows.ParseTimePos(dueAt)
	if err != nil {
		return DueTime{}, fmt.Errorf("lane: row %q: %w", key, err)
	}

	n, err := rows.ParseSeq(seq)
	if err != nil {
		return DueTime{}, fmt.Errorf("lane: row %q: %w", key, err)
	}

	return DueTime{At: at, Seq: n}, nil
}

// DueTime returns the due time of a scheduled message.
func (e *Entry) DueTime() DueTime { return DueTime{At: e.Message.DueAt, Seq: e.Seq()} }

// AsDue returns the entry of a scheduled message as the message's row (s_) shows it.
func (e *Entry) AsDue() DueMessage { return DueMessage{e.DueTime(), e.KeyHash()} }

// orderPos returns the message's position in the order of its key.
func (e *Entry) orderPos() string {
	if e.releasedPos != "" {
		return e.releasedPos
	}
	return rows.SeqPos(e.Seq())
}

// orderPosOfDue returns the position that Release gives to a due message. The position is between
// the log messages with the sequence numbers next-1 and next. Due messages with the same next are
// in the order of their due times, and then of their sequence numbers.
func orderPosOfDue(next int64, d DueTime) string { return rows.SeqPos(next-1) + "_" + d.String() }

// AfterLog is HeldMessage.AfterLog for the entry.
func (e *Entry) AfterLog() int64 { return e.AsHeld().AfterLog() }

// NextLogSeq returns a sequence number: the key's log messages from this number on come after the
// entry.
func (e *Entry) NextLogSeq() int64 { return max(e.AfterLog(), e.Seq()+1) }

// AfterLog returns a sequence number: the message comes after all log messages of its key with
// lower numbers. If the position of the message was not set by Release, AfterLog returns 0.
func (h HeldMessage) AfterLog() int64 {
	log, _, released := strings.Cut(h.OrderPos, "_")
	last, err := rows.ParsePos(log)
	if !released || err != nil {
		return 0
	}
	return last + 1
}

// ReadDue reads the scheduled messages of a lane that become due first, at most limit. It reads
// only those that follow the message "after", in the order of due times; zero = all. more reports
// whether there may be further ones.
func (ds DeliveryState) ReadDue(ctx context.Context, lane int, after DueTime,
	limit int) (dues []DueMessage, more bool, err error) {
	q := storage.Query{Partition: ds.store.Partition(lane), From: rows.DuePrefix,
		To: rows.PrefixEnd(rows.DuePrefix), Limit: limit}
	if after != (DueTime{}) {
		q.After = dueKey(after)
	}

	page, err := ds.store.Table.Range(ctx, q)
	if err != nil {
		return nil, false, err
	}

	dues = ds.store.dueMessagesOf(lane, page.Rows)
	return dues, page.More || len(page.Rows) == limit, nil
}

// ReadDueMessages reads the messages of the due times, in any stage. The result maps sequence
// numbers to messages. It can also have other messages with sequence numbers between these, because
// one query reads all messages of a short range.
func (ds DeliveryState) ReadDueMessages(ctx context.Context, lane int,
	dues []DueTime) (map[int64]*Entry, error) {
	seqs := make([]int64, len(dues))
	for i, d := range dues {
		seqs[i] = d.Seq
	}

	slices.Sort(seqs)
	var mu sync.Mutex
	found := make(map[int64]*Entry, len(dues))
	group, ctx := errgroup.WithContext(ctx)
	for len(seqs) > 0 {
		n := 1
		for n < len(seqs) && seqs[n]-seqs[n-1] <= bodyGap {
			n++
		}

		near := seqs[:n]
		seqs = seqs[n:]
		group.Go(panics.Guard(func() error {
			q := rows.Messages(ds.store.Partition(lane), near[0], near[len(near)-1]+1, nil)
			read, _, err := rows.ReadPages(ctx, ds.store.Table, q, len(near)*bodyGap)
			mu.Lock()
			defer mu.Unlock()

			for _, r := range read {
				if e, isWhole := ds.store.entryFrom(lane, r); isWhole {
					found[e.Seq()] = e
				}
			}

			return err
		}))
	}

	return found, group.Wait()
}

// Release makes a due message, which was scheduled, a held message of its block. The message comes
// after all log messages of its key with sequence numbers below next. It also comes after all
// messages that were released earlier, because these may have been tried already. The argument
// placed is the time in the position of the last released message; Release updates this time.
func (c *Change) Release(e *Entry, next int64, placed *time.Time) {
	c.ops = append(c.ops, storage.Op{Kind: storage.Delete, Key: dueKey(e.DueTime())})
	at := e.Message.DueAt
	if !at.After(*placed) { // for example, because the last holder's clock was ahead
		at = placed.Add(time.Microsecond)
	}

	*placed = at
	e.Stage, e.IsHeld, e.releasedPos = weir.Queued, true,
		orderPosOfDue(next, DueTime{At: at, Seq: e.Seq()})
	c.ops = append(c.ops,
		storage.Op{Kind: storage.Upsert, Key: rows.HeldKey(e.BlockID(), e.orderPos()),
			Values: e.AsHeld().heldValues()},
		storage.Op{Kind: storage.Merge, Key: rows.MessageKey(e.Seq()),
			Values: rows.Values(rows.Stage.Is(string(weir.Queued)), rows.IsHeld.Is(true),
				rows.OrderPos.Is(e.releasedPos))})
}

// Releases reports whether the change releases the scheduled message with the due time and sequence
// number in d.
func (c *Change) Releases(d DueTime) bool {
	return slices.ContainsFunc(c.ops, func(op storage.Op) bool {
		return op.Kind == storage.Delete && op.Key == dueKey(d)
	})
}

// NoLongerDue reports whether a commit was refused because the s_ row of a message to release is
// gone: the message was cancelled or rescheduled. It returns the due time in the key of that row.
func NoLongerDue(err error) (DueTime, bool) {
	row, ok := refusedRow(err)
	if !ok || !strings.HasPrefix(row, rows.DuePrefix) {
		return DueTime{}, false
	}
	d, err := ParseDueKey(row)
	return d, err == nil
}
