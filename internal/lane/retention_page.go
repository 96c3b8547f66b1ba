package lane

import (
	"context"
	"slices"
	"time"

	"weir/internal/clock"
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
	// the packed row (d_) that has the message's delivery; nil = there is none
	packed  *expiringPacked
	hasCopy bool // the next epoch has a copy of the message
	isKept  bool // the message stays, because its body could not be removed
}

func (m *expiringMessage) rowValues() map[string]any { return m.row.Values }

// isEndUnknown reports whether the message's own row lacks the time at which the message became
// final. Then only a packed row (d_) can have that time.
func (m *expiringMessage) isEndUnknown() bool {
	return m.stage == weir.Queued && !rows.IsHeld.Of(m.rowValues())
}

// expiringPacked is a packed row (d_), which has the deliveries of many messages. Retention never
// removes it before the last of its messages. Without the packed row, the remaining messages would
// be shown as queued.
type expiringPacked struct {
	packedRow
	left int // number of the messages of the packed row that are still in storage
}

var expiringColumns = rows.Names(rows.Stage, rows.IsHeld, rows.AcceptedAt, rows.FinishedAt,
	rows.ReplayAskedAt,
	rows.DiscardAskedAt, rows.IdempotencyRow, acceptedBody.blob, editedBody.blob,
	rows.CopiedFrom, rows.Key,
	rows.ErasedAt, rows.FoldedHashes)

// removePage removes the expired messages of one page, from the walk's position on. If it reaches a
// message that is too young, it returns the time at which the walk can go on past that message. At
// the end of the log it returns the time of the next run. Zero means that the walk continues.
func (t *retentionRun) removePage(ctx context.Context) (young time.Time, err error) {
	page, err := t.readPage(ctx)
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

// cutAtYoung returns the messages before the first message that is too young. It also returns the
// time at which the walk can go on past that first message; zero = no message is too young.
func (t *retentionRun) cutAtYoung(messages []*expiringMessage, now time.Time) ([]*expiringMessage,
	time.Time) {
	for i, m := range messages {
		accepted := rows.AcceptedAt.Of(m.rowValues())
		if accepted.After(now.Add(removalWait)) {
			continue // the receiver's clock was fast: this message must not delay the others
		}

		young := accepted.Add(min(t.KeepFinal, t.KeepDead))
		if end, ok := t.endOf(m, now); ok && m.stage != weir.Dead && end.After(now) &&
			end.Sub(now) <= removalWait {
			// The walk waits for this message until end. If it passed over the message now, only
			// the next walk would remove it.
			young = clock.Later(young, end)
		}

		if young.After(now) {
			return messages[:i], young
		}
	}

	return messages, time.Time{}
}

// endOf returns the time at which a message can be removed; false = the time is not known yet. A
// message with a copy in the next epoch is kept as long as the copy, because callers find the copy
// only through the message.
func (t *retentionRun) endOf(m *expiringMessage, now time.Time) (time.Time, bool) {
	switch {
	case t.nextEpoch != nil && isCopied(m.stage):
		return now, !m.hasCopy // if there is no copy any more, retention has removed the copy
	case m.stage == weir.Dead:
		// A request that waits for the holder needs the message. So the message is kept for
		// KeepDead after a request.
		askedAt := clock.Later(rows.ReplayAskedAt.Of(m.rowValues()),
			rows.DiscardAskedAt.Of(m.rowValues()))
		return clock.Later(m.finishedAt, askedAt).Add(t.KeepDead), true

	case m.isEndUnknown():
		// The message is below the cursor, and is not held. So it is final, although its row has
		// the stage queued. Its packed row is damaged or gone, as after the restore of a table.
		return rows.AcceptedAt.Of(m.rowValues()).Add(t.KeepFinal + walkInterval), true
	}

	return m.finishedAt.Add(t.KeepFinal), m.stage.Final()
}

// readPage returns the next page that has a message, or the last one. It passes over pages of
// damaged rows only: the walk could not go on from them, because its position is that of a message.
func (t *retentionRun) readPage(ctx context.Context) (storage.Page, error) {
	query := storage.Query{
		Partition: t.Store.Partition(t.lane), After: rows.MessageKey(t.walk.seq),
		To: rows.MessageKey(t.cursor), Columns: expiringColumns}
	for {
		page, err := t.Store.Table.Range(ctx, query)
		hasMessage := slices.ContainsFunc(page.Rows, func(r storage.Row) bool {
			_, isWhole := t.Store.SeqOf(t.lane, rows.MessagePrefix, r)
			return isWhole
		})
		if err != nil || !page.More || hasMessage {
			return page, err
		}
		query.After = page.Rows[len(page.Rows)-1].Key
	}
}

// classifyMessages returns the messages of a page, together with the deliveries from packed rows
// (d_). In a lane of an earlier epoch it also sets hasCopy.
func (t *retentionRun) classifyMessages(ctx context.Context,
	page storage.Page) ([]*expiringMessage, error) {
	var messages []*expiringMessage
	for _, row := range page.Rows {
		seq, isWhole := t.Store.SeqOf(t.lane, rows.MessagePrefix, row)
		if !isWhole {
			continue
		}

		v := row.Values
		messages = append(messages,
			&expiringMessage{seq: seq, row: row, stage: weir.Stage(rows.Stage.Of(v)),
				finishedAt: rows.FinishedAt.Of(v)})
	}

	if err := t.classifyPacked(ctx, messages, page.More); err != nil {
		return nil, err
	}

	return messages, t.classifyCopied(ctx, messages)
}

// classifyPacked reads the packed rows (d_) of a page, fills in the deliveries of messages, and
// counts the remaining messages of each packed row. It removes packed rows that have no messages
// left.
func (t *retentionRun) classifyPacked(ctx context.Context, messages []*expiringMessage,
	more bool) error {
	if len(messages) == 0 && t.walk.seq > 0 {
		return nil // no message is left that can be read
	}

	last := t.cursor - 1 // the page has all messages up to this number
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

		for _, m := range messages {
			if f.isDamaged && m.isEndUnknown() && f.hasDelivery(m.seq) {
				m.packed = p // its end stays unknown
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

// countLeft counts the remaining messages of a packed row that also has messages outside the page.
func (t *retentionRun) countLeft(ctx context.Context, f packedRow) (left int, err error) {
	q := rows.Messages(t.Store.Partition(t.lane), f.lowSeq, f.highSeq+1,
		rows.Names(rows.Stage, rows.IsHeld))
	for row, err := range rows.Scan(ctx, t.Store.Table, q) {
		if err != nil {
			return 0, err
		}

		seq, isWhole := t.Store.SeqOf(t.lane, rows.MessagePrefix, row)
		m := expiringMessage{row: row, stage: weir.Stage(rows.Stage.Of(row.Values))}
		if isWhole && f.hasDelivery(seq) && (!f.isDamaged || m.isEndUnknown()) {
			left++
		}
	}

	return left, nil
}

// classifyCopied sets hasCopy in the messages of a lane of an earlier epoch.
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
		_, err := t.nextEpoch.Table.Get(ctx,
			t.nextEpoch.Partition(OfRow(moved[i].rowValues(), t.nextEpoch.Present())),
			rows.CopyPrefix+CopyID(id))
		moved[i].hasCopy = !storage.Is(err, storage.NotFound)
		if !moved[i].hasCopy {
			return nil
		}

		return err
	})
}
