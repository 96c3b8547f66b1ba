package lane

import (
	"context"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// expiring is a message that retention looks at.
type expiring struct {
	seq        int64
	row        storage.Row
	stage      weir.Stage
	finishedAt time.Time
	packed     *packed // the d_ row that names it; nil = none does
	copied     bool    // a later epoch has a copy of it
	kept       bool    // storage refuses to remove its body
}

func (m *expiring) values() map[string]any { return m.row.Values }

// isUnexplained reports whether only a d_ row can have the end of the message.
func (m *expiring) isUnexplained() bool {
	return m.stage == weir.Queued && !rows.IsHeld.Of(m.values())
}

// packed is a d_ row. It is removed with the last of its messages and never before: without
// it those that are left would count as queued, for good.
type packed struct {
	firsts
	left int // of its messages are in storage
}

var expiringColumns = rows.Names(rows.Stage, rows.IsHeld, rows.AcceptedAt, rows.FinishedAt, rows.ReplayAskedAt, rows.IdempotencyRow, acceptedBody.blob, editedBody.blob, rows.CopiedFrom, rows.Key)

// page looks at one page behind the walk's place. It returns a moment if it has come to a message
// that is too young until then.
func (t *turn) page(ctx context.Context) (young time.Time, err error) {
	page, err := t.Store.Table.Range(ctx, storage.Query{
		Partition: t.Store.partition(t.lane), After: rows.MessageKey(t.walk.seq), To: rows.MessageKey(t.cursor), Columns: expiringColumns})
	if err != nil {
		return time.Time{}, err
	}
	messages, err := t.explain(ctx, page)
	if err != nil {
		return time.Time{}, err
	}
	now := t.Store.Now()
	messages, young = t.old(messages, now)
	if err := t.remove(ctx, messages, now); err != nil {
		return time.Time{}, err
	}
	if young.IsZero() && !page.More && !t.isSpent() {
		young = now.Add(min(t.KeepFinal, t.KeepDead, idlePause))
	}
	return young, nil
}

// old cuts a page before the first message that is too young, and returns the moment from which
// that one is old enough.
func (t *turn) old(messages []*expiring, now time.Time) ([]*expiring, time.Time) {
	for i, m := range messages {
		accepted := rows.AcceptedAt.Of(m.values())
		if accepted.After(now.Add(removalWait)) {
			continue // accepted by a clock that was ahead: it must not hold up the others
		}
		young := accepted.Add(min(t.KeepFinal, t.KeepDead))
		if end, ok := t.endOf(m, now); ok && m.stage != weir.Dead && end.After(now) && end.Sub(now) <= removalWait {
			young = later(young, end) // wait for it: few are passed over, and a d_ row's go together
		}
		if young.After(now) {
			return messages[:i], young
		}
	}
	return messages, time.Time{}
}

// endOf returns when the retention of a message is over; false = not known yet. A message with a
// copy in a later epoch is kept as long as the copy, because its id leads there.
func (t *turn) endOf(m *expiring, now time.Time) (time.Time, bool) {
	switch {
	case t.next != nil && moves(m.stage):
		return now, !m.copied
	case m.stage == weir.Dead:
		// A replay that waits for the holder must find its message: the time begins anew.
		return later(m.finishedAt, rows.ReplayAskedAt.Of(m.values())).Add(t.KeepDead), true
	case m.isUnexplained():
		// Below the cursor it is final, although no row records it: earlier versions removed a d_
		// row before the last of its messages.
		return rows.AcceptedAt.Of(m.values()).Add(t.KeepFinal + rewalk), true
	}
	return m.finishedAt.Add(t.KeepFinal), m.stage.Final()
}

// explain reads the ends of a page's messages that their own rows do not have.
func (t *turn) explain(ctx context.Context, page storage.Page) ([]*expiring, error) {
	messages := make([]*expiring, len(page.Rows))
	for i, row := range page.Rows {
		seq, err := rows.SeqOfMessage(row.Key)
		if err != nil {
			return nil, err
		}
		v := row.Values
		messages[i] = &expiring{seq: seq, row: row, stage: weir.Stage(rows.Stage.Of(v)),
			finishedAt: rows.FinishedAt.Of(v)}
	}
	if err := t.explainPacked(ctx, messages, page.More); err != nil {
		return nil, err
	}
	return messages, t.explainMoved(ctx, messages)
}

// explainPacked reads the d_ rows of a page, and counts the messages that are left of each.
func (t *turn) explainPacked(ctx context.Context, messages []*expiring, more bool) error {
	if len(messages) == 0 && t.walk.seq > 0 {
		return nil // nothing new since the last look
	}
	last := t.cursor - 1 // the page has all messages up to here
	if more {
		last = messages[len(messages)-1].seq
	}
	found, err := t.Store.readFirsts(ctx, t.lane, t.walk.seq+1, last)
	if err != nil {
		return err
	}
	bySeq := map[int64]*expiring{}
	for _, m := range messages {
		bySeq[m.seq] = m
	}
	var empty []firsts
	for _, f := range found {
		p := &packed{firsts: f}
		for seq, one := range f.bySeq {
			if m := bySeq[seq]; m != nil && m.isUnexplained() {
				m.packed, m.stage, m.finishedAt = p, weir.Delivered, one.FinishedAt
				p.left++
			}
		}
		switch whole := f.low > t.walk.seq && f.high <= last; {
		case !whole:
			if p.left, err = t.countLeft(ctx, f); err != nil {
				return err
			}
		case p.left == 0:
			empty = append(empty, f)
		}
	}
	return t.removeEmpty(ctx, empty)
}

// countLeft counts the messages of a d_ row that reaches beyond a page.
func (t *turn) countLeft(ctx context.Context, f firsts) (left int, err error) {
	q := rows.Messages(t.Store.partition(t.lane), f.low, f.high+1, rows.Names(rows.Stage))
	for row, err := range rows.Scan(ctx, t.Store.Table, q) {
		if err != nil {
			return 0, err
		}
		seq, err := rows.SeqOfMessage(row.Key)
		if err != nil {
			return 0, err
		}
		if _, ok := f.bySeq[seq]; ok {
			left++
		}
	}
	return left, nil
}

// explainMoved finds out, in a lane of an earlier epoch, which messages have a copy.
func (t *turn) explainMoved(ctx context.Context, messages []*expiring) error {
	if t.next == nil {
		return nil
	}
	var moved []*expiring
	for _, m := range messages {
		if moves(m.stage) {
			moved = append(moved, m)
		}
	}
	return ForEach(len(moved), func(i int) error {
		id := weir.ID{Epoch: t.Store.Epoch, Lane: t.lane, Seq: moved[i].seq}
		_, err := t.next.Table.Get(ctx, t.next.partition(Of(rows.Key.Of(moved[i].values()), t.next.Lanes)),
			rows.CopyPrefix+from(id))
		moved[i].copied = !storage.Is(err, storage.NotFound)
		if !moved[i].copied {
			return nil
		}
		return err
	})
}
