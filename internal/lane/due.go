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
	"weir/internal/storage"
	"weir/internal/weir"
)

// DueTime is the due time of a scheduled message, with its sequence number. Its row sorts by time.
type DueTime struct {
	At  time.Time // a whole number of microseconds
	Seq int64
}

func (d DueTime) String() string {
	return rows.TimePos(d.At) + "_" + rows.SeqPos(d.Seq)
}

func dueKey(d DueTime) string { return rows.DuePrefix + d.String() }

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

// orderPos returns the message's position among the held messages of its key.
func (e *Entry) orderPos() string {
	if e.releasedPos != "" {
		return e.releasedPos
	}
	return rows.SeqPos(e.Seq())
}

// orderPosOfDue returns the position of a released message. next is a sequence number: the position lies between
// those of the log messages next-1 and next. Messages that were released with the same next are ordered by due time,
// then by sequence number.
func orderPosOfDue(next int64, d DueTime) string { return rows.SeqPos(next-1) + "_" + d.String() }

// AfterLog returns a sequence number: all log messages of the key with lower numbers go before this message.
// 0 = the message's position does not depend on the log.
func (e *Entry) AfterLog() int64 { return e.AsHeld().AfterLog() }

// NextLogSeq returns the first sequence number behind the entry's position in the order of its key.
func (e *Entry) NextLogSeq() int64 { return max(e.AfterLog(), e.Seq()+1) }

// AfterLog returns a sequence number: all log messages of the key with lower numbers go before this message.
// 0 = the message's position does not depend on the log.
func (h HeldMessage) AfterLog() int64 {
	log, _, released := strings.Cut(h.OrderPos, "_")
	last, err := rows.ParseSeq(log)
	if !released || err != nil {
		return 0
	}
	return last + 1
}

// ReadDueTimes reads the earliest due times of a lane's scheduled messages, at most limit, and reports whether there
// may be more.
func (ds DeliveryState) ReadDueTimes(ctx context.Context, lane int, limit int) (dues []DueTime, more bool, err error) {
	page, err := ds.store.Table.Range(ctx, storage.Query{Partition: ds.store.Partition(lane), From: rows.DuePrefix,
		To: rows.PrefixEnd(rows.DuePrefix), Limit: limit})
	if err != nil {
		return nil, false, err
	}
	for _, r := range page.Rows {
		d, err := ParseDueKey(r.Key)
		if err != nil {
			return nil, false, err
		}
		dues = append(dues, d)
	}
	return dues, page.More || len(dues) == limit, nil
}

// ReadDueMessages reads the messages of the due times, in any stage. One query reads messages with neighbouring
// sequence numbers, and the messages between these are in the result, too.
func (ds DeliveryState) ReadDueMessages(ctx context.Context, lane int, dues []DueTime) (map[int64]*Entry, error) {
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
		group.Go(func() error {
			q := rows.Messages(ds.store.Partition(lane), near[0], near[len(near)-1]+1, nil)
			read, _, err := rows.ReadPages(ctx, ds.store.Table, q, len(near)*bodyGap)
			mu.Lock()
			defer mu.Unlock()
			for i := 0; i < len(read) && err == nil; i++ {
				var e *Entry
				if e, err = ds.store.entryFrom(lane, read[i]); err == nil {
					found[e.Seq()] = e
				}
			}
			return err
		})
	}
	return found, group.Wait()
}

// Release moves a due message from the scheduled to the held messages of its block. Its position is behind all
// messages of the log below the sequence number next, and behind all messages that were released earlier, because
// those may have been tried already. placed is the time in the position of the last released message; Release updates
// it.
func (c *Change) Release(e *Entry, next int64, placed *time.Time) {
	c.ops = append(c.ops, storage.Op{Kind: storage.Delete, Key: dueKey(e.DueTime())})
	at := e.Message.DueAt
	if !at.After(*placed) { // rescheduled or just filed with an earlier time, or the last holder's clock is ahead
		at = placed.Add(time.Microsecond)
	}
	*placed = at
	e.Stage, e.IsHeld, e.releasedPos = weir.Queued, true, orderPosOfDue(next, DueTime{At: at, Seq: e.Seq()})
	c.ops = append(c.ops,
		storage.Op{Kind: storage.Upsert, Key: rows.HeldKey(e.BlockID(), e.orderPos()),
			Values: heldFrom(e).heldValues()},
		storage.Op{Kind: storage.Merge, Key: rows.MessageKey(e.Seq()),
			Values: rows.Values(rows.Stage.Is(string(weir.Queued)), rows.IsHeld.Is(true),
				rows.OrderPos.Is(e.releasedPos))})
}

// Releases reports whether the change releases the scheduled message with that due time.
func (c *Change) Releases(d DueTime) bool {
	return slices.ContainsFunc(c.ops, func(op storage.Op) bool {
		return op.Kind == storage.Delete && op.Key == dueKey(d)
	})
}

// NoLongerDue returns the message whose release was refused because its s_ row is gone: it was cancelled or
// rescheduled.
func NoLongerDue(err error) (DueTime, bool) {
	row, ok := refusedRow(err)
	if !ok || !strings.HasPrefix(row, rows.DuePrefix) {
		return DueTime{}, false
	}
	d, err := ParseDueKey(row)
	return d, err == nil
}
