package lane

import (
	"context"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// expiringMessage is a message that retention checks.
type expiringMessage struct {
	seq        int64
	row        storage.Row
	stage      weir.Stage
	finishedAt time.Time
	packed     *expiringPacked // the d_ row that names the message; nil = no d_ row names it
	hasCopy    bool            // a later epoch has a copy of it
	isKept     bool            // the message stays, because its body could not be removed
}

func (m *expiringMessage) rowValues() map[string]any { return m.row.Values }

// isEndUnknown reports whether only a d_ row can have the time at which the message became final.
func (m *expiringMessage) isEndUnknown() bool {
	return m.stage == weir.Queued && !rows.IsHeld.Of(m.rowValues())
}

// expiringPacked is a d_ row. Retention removes the row together with the last of its messages, never before: without
// the row, the remaining messages would be shown as queued.
type expiringPacked struct {
	packedRow
	left int // messages of the row that are still in storage
}

var expiringColumns = rows.Names(rows.Stage, rows.IsHeld, rows.AcceptedAt, rows.FinishedAt, rows.ReplayAskedAt,
	rows.DiscardAskedAt, rows.IdempotencyRow, acceptedBody.blob, editedBody.blob, rows.CopiedFrom, rows.Key,
	rows.ErasedAt)

// removePage handles one page from the walk's position on. If it reaches a message that is too young, it returns the
// time at which that message may be removed. At the end of the log it returns the time for the next look. Zero means
// that the walk goes on.
func (t *retentionRun) removePage(ctx context.Context) (young time.Time, err error) {
	page, err := t.Store.Table.Range(ctx, storage.Query{
		Partition: t.Store.Partition(t.lane), After: rows.MessageKey(t.walk.seq), To: rows.MessageKey(t.cursor),
		Columns: expiringColumns})
	if err != nil {
		return time.Time{}, err
	}
	messages, err := t.classifyMessages(ctx, page)
	if err != nil {
		return time.Time{}, err
	}
	now := t.Store.Now()
	messages, young = t.cutAtYoung(messages, now)
	if err := t.removeExpired(ctx, messages, now); err != nil {
		return time.Time{}, err
	}
	if young.IsZero() && !page.More && !t.isSpent() {
		young = now.Add(min(t.KeepFinal, t.KeepDead, idlePause))
	}
	return young, nil
}

// cutAtYoung cuts a page before the first message that is too young, and returns the time at which that message may
// be removed. Zero means that no message is too young.
func (t *retentionRun) cutAtYoung(messages []*expiringMessage, now time.Time) ([]*expiringMessage, time.Time) {
	for i, m := range messages {
		accepted := rows.AcceptedAt.Of(m.rowValues())
		if accepted.After(now.Add(removalWait)) {
			continue // accepted by a clock that was ahead: it must not delay the others
		}
		young := accepted.Add(min(t.KeepFinal, t.KeepDead))
		if end, ok := t.endOf(m, now); ok && m.stage != weir.Dead && end.After(now) && end.Sub(now) <= removalWait {
			// The walk waits until end: a message that the walk has passed stays for another day.
			young = laterOf(young, end)
		}
		if young.After(now) {
			return messages[:i], young
		}
	}
	return messages, time.Time{}
}

// endOf returns the time at which a message may be removed; false = not known yet. A message with a copy in the next
// epoch is kept as long as the copy, because the id of the message leads to the copy.
func (t *retentionRun) endOf(m *expiringMessage, now time.Time) (time.Time, bool) {
	switch {
	case t.nextEpoch != nil && isCopied(m.stage):
		return now, !m.hasCopy // without a copy: retention has removed it
	case m.stage == weir.Dead:
		// A request that waits for the holder needs the message. So the message is kept for KeepDead after a request.
		askedAt := laterOf(rows.ReplayAskedAt.Of(m.rowValues()), rows.DiscardAskedAt.Of(m.rowValues()))
		return laterOf(m.finishedAt, askedAt).Add(t.KeepDead), true
	case m.isEndUnknown():
		// Below the cursor a message is final, even if no row records it: earlier versions removed a d_ row
		// before the last of its messages.
		return rows.AcceptedAt.Of(m.rowValues()).Add(t.KeepFinal + walkInterval), true
	}
	return m.finishedAt.Add(t.KeepFinal), m.stage.Final()
}

// classifyMessages returns the messages of a page, with their d_ rows. If the lane is of an earlier epoch, it also
// finds out which of them have copies.
func (t *retentionRun) classifyMessages(ctx context.Context, page storage.Page) ([]*expiringMessage, error) {
	messages := make([]*expiringMessage, len(page.Rows))
	for i, row := range page.Rows {
		seq, err := rows.SeqOfMessage(row.Key)
		if err != nil {
			return nil, err
		}
		v := row.Values
		messages[i] = &expiringMessage{seq: seq, row: row, stage: weir.Stage(rows.Stage.Of(v)),
			finishedAt: rows.FinishedAt.Of(v)}
	}
	if err := t.classifyPacked(ctx, messages, page.More); err != nil {
		return nil, err
	}
	return messages, t.classifyCopied(ctx, messages)
}

// classifyPacked reads the d_ rows of a page, completes the messages that these rows name, and counts the remaining
// messages of each row. It removes rows without messages.
func (t *retentionRun) classifyPacked(ctx context.Context, messages []*expiringMessage, more bool) error {
	if len(messages) == 0 && t.walk.seq > 0 {
		return nil // the walk is at the end of the log
	}
	last := t.cursor - 1 // the page has all messages up to here
	if more {
		last = messages[len(messages)-1].seq
	}
	found, err := t.Store.rowsOfLane(t.lane).readPackedRows(ctx, t.walk.seq+1, last)
	if err != nil {
		return err
	}
	bySeq := map[int64]*expiringMessage{}
	for _, m := range messages {
		bySeq[m.seq] = m
	}
	var empty []packedRow
	for _, f := range found {
		p := &expiringPacked{packedRow: f}
		for seq, one := range f.bySeq {
			if m := bySeq[seq]; m != nil && m.isEndUnknown() {
				m.packed, m.stage, m.finishedAt = p, weir.Delivered, one.FinishedAt
				p.left++
			}
		}
		switch whole := f.lowSeq > t.walk.seq && f.highSeq <= last; {
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

// countLeft counts the remaining messages of a d_ row that begins before the page or ends behind it.
func (t *retentionRun) countLeft(ctx context.Context, f packedRow) (left int, err error) {
	q := rows.Messages(t.Store.Partition(t.lane), f.lowSeq, f.highSeq+1, rows.Names(rows.Stage))
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

// classifyCopied finds out which messages of a lane of an earlier epoch have a copy.
func (t *retentionRun) classifyCopied(ctx context.Context, messages []*expiringMessage) error {
	if t.nextEpoch == nil {
		return nil
	}
	var moved []*expiringMessage
	for _, m := range messages {
		if isCopied(m.stage) {
			moved = append(moved, m)
		}
	}
	return ForEach(len(moved), func(i int) error {
		id := weir.ID{Epoch: t.Store.Epoch, Lane: t.lane, Seq: moved[i].seq}
		_, err := t.nextEpoch.Table.Get(ctx, t.nextEpoch.Partition(OfRow(moved[i].rowValues(), t.nextEpoch.Lanes)),
			rows.CopyPrefix+CopyID(id))
		moved[i].hasCopy = !storage.Is(err, storage.NotFound)
		if !moved[i].hasCopy {
			return nil
		}
		return err
	})
}
