package lane

import (
	"time"

	"weir/internal/lane/outbox"
	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// Change is the effect of one decision of the holder on the lane's rows and on tail. Changes are
// committed in the order of the decisions.
type Change struct {
	Key string // hash of the ordering key whose messages wait for the commit; "" = none
	ops []storage.Op
	// message that was delivered at its first attempt, for packDeliveries; nil = none
	firstDelivery *Entry
	tail          []func(*Tail)
	final         []int64 // sequence numbers of the messages that become final
	hasEvents     bool    // the change adds events to the outbox
}

// FinalSeqs returns the sequence numbers of the messages that become final.
func (c *Change) FinalSeqs() []int64 { return c.final }

// UpdateTail adds a function that changes tail in the commit of the change.
func (c *Change) UpdateTail(f func(*Tail)) { c.tail = append(c.tail, f) }

// keepAttempts limits the attempts in a message's row: the row keeps the first ten and the last ten
// attempts.
const keepAttempts = 10

// Record adds an attempt to the entry. If counted is false, AttemptCount does not rise. Of more
// than twenty attempts, the entry keeps the first ten and the last ten.
func (e *Entry) Record(r weir.Result, fence int64, counted bool) {
	if counted {
		e.recordFirstFailure(r)
		e.AttemptCount++
	}

	a := weir.Attempt{Number: e.AttemptCount, At: r.StartedAt, Duration: r.Duration,
		Outcome: r.Outcome,
		Status:  r.Status, Reason: r.Reason, Body: r.Body, Fence: fence, Unsent: r.Unsent,
		Steps: r.Steps}

	e.Attempts = append(e.Attempts, a)
	if len(e.Attempts) > 2*keepAttempts {
		e.Attempts = append(e.Attempts[:keepAttempts:keepAttempts],
			e.Attempts[len(e.Attempts)-keepAttempts:]...)
	}

	e.status.CMSStatus = r.Status
	if r.Outcome != weir.OutcomeDelivered {
		e.status.LastError = r.Reason
	}
}

// recordFirstFailure is called before a counted attempt is recorded. If it is the first one since
// the last replay that failed, recordFirstFailure keeps the time at which it began. A time that is
// later than the present attempt comes from a holder whose clock was ahead.
func (e *Entry) recordFirstFailure(r weir.Result) {
	if r.Outcome == weir.OutcomeDelivered {
		return
	}

	if first := e.FirstFailedAt(); first.IsZero() || first.After(r.StartedAt) {
		e.status.FirstFailedAt = r.StartedAt
	} else {
		e.status.FirstFailedAt = first
	}
}

// FirstFailedAt returns the time at which the first counted attempt since the last replay began;
// zero = there was none.
func (e *Entry) FirstFailedAt() time.Time {
	if e.AttemptsSinceReplay() == 0 {
		return time.Time{} // the row can have the time of an attempt before the replay
	}
	return e.status.FirstFailedAt
}

// SetRetryUntil sets the time until which failed attempts do not make the message dead, for
// operators. Zero = there is no such time.
func (e *Entry) SetRetryUntil(at time.Time) { e.status.RetryUntil = at }

// Finish makes the message final, in the given stage.
func (c *Change) Finish(e *Entry, stage weir.Stage, at time.Time) error {
	e.Stage, e.status.FinishedAt, e.status.NextAttemptAt = stage, at, time.Time{}
	c.UpdateTail(func(t *Tail) { t.Counts.countStage(stage) })
	c.final = append(c.final, e.Seq())
	c.addCallback(e.Seq(), e.Message.Callback, stage, at)

	if stage == weir.Dead {
		c.ops = append(c.ops, storage.Op{Kind: storage.Upsert, Key: rows.DeadKey(e.Seq()),
			Values: deadValues(e, at)})
	}

	if stage == weir.Delivered && e.AttemptCount == 1 && len(e.Attempts) == 1 && !e.IsHeld &&
		e.status.VersionWarning == "" {
		c.firstDelivery = e
		return nil
	}

	return c.mergeMessage(e)
}

// NextAttempt returns the time of the next attempt; zero = the message waits for no attempt.
func (e *Entry) NextAttempt() time.Time { return e.status.NextAttemptAt }

// Retry records that the message is held in a block. The parameter next is the time of the
// message's next attempt.
func (c *Change) Retry(e *Entry, block string, next time.Time) error {
	known := e.IsHeld && e.Stage == weir.Retrying
	e.Stage, e.status.NextAttemptAt, e.IsHeld = weir.Retrying, next, true
	if !known {
		c.putHeld(block, e)
	}
	return c.mergeMessage(e)
}

// mergeMessage writes those columns of a message's row that an attempt changes.
func (c *Change) mergeMessage(e *Entry) error {
	op, err := mergeOp(e)
	c.ops = append(c.ops, op)
	return err
}

func mergeOp(e *Entry) (storage.Op, error) {
	attempts, err := packAttempts(e.Attempts)
	if err != nil {
		return storage.Op{}, err
	}

	v := rows.Values(
		rows.Stage.Is(string(e.Stage)), rows.Attempts.Is(attempts),
		rows.AttemptCount.Is(int64(e.AttemptCount)),
		rows.LastError.Is(e.status.LastError), rows.CMSStatus.Is(int64(e.status.CMSStatus)),
		rows.NextAttemptAt.Is(e.status.NextAttemptAt),
		rows.IsHeld.Is(e.IsHeld && !e.Stage.Final()),
	)

	if e.Stage.Final() {
		rows.Put(v, rows.FinishedAt.Is(e.status.FinishedAt))
	} else {
		rows.Put(v, rows.RetryUntil.Is(e.status.RetryUntil))
	}

	if !e.status.FirstFailedAt.IsZero() {
		rows.Put(v, rows.FirstFailedAt.Is(e.status.FirstFailedAt))
	}

	if e.status.VersionWarning != "" {
		rows.Put(v, rows.VersionWarning.Is(e.status.VersionWarning))
	}

	return storage.Op{Kind: storage.Merge, Key: rows.MessageKey(e.Seq()), Values: v}, nil
}

// Hold puts a message of the log among the held messages of a block. It also marks the message's
// own row as held. Otherwise a later holder that reads the log would send the message a second
// time, as a message of the log.
func (c *Change) Hold(block string, e *Entry) {
	e.IsHeld = true
	c.putHeld(block, e)
	c.ops = append(c.ops, storage.Op{Kind: storage.Merge, Key: rows.MessageKey(e.Seq()),
		Values: rows.Values(rows.IsHeld.Is(true))})
}

// putHeld writes the row (r_) by which a block holds a message.
func (c *Change) putHeld(block string, e *Entry) {
	c.ops = append(c.ops, storage.Op{Kind: storage.Upsert, Key: rows.HeldKey(block, e.orderPos()),
		Values: e.AsHeld().heldValues()})
}

// Unhold deletes the row (r_) by which a block holds the message at a position. The row must exist
// in storage.
func (c *Change) Unhold(block, place string) {
	c.ops = append(c.ops, storage.Op{Kind: storage.Delete, Key: rows.HeldKey(block, place)})
}

// SaveBlock writes the row of a block.
func (c *Change) SaveBlock(b KeyBlock) {
	v := rows.Values(rows.NextAt.Is(b.NextAt), rows.HeldCount.Is(b.HeldCount),
		rows.Key.Is(b.KeyHash))
	if b.LogWaitsFrom != 0 {
		rows.Put(v, rows.LogWaitsFrom.Is(b.LogWaitsFrom))
		if b.IsParked {
			rows.Put(v, rows.IsParked.Is(true))
		} else {
			rows.Put(v, rows.ReleasedAt.Is(b.ReleasedAt))
		}
	}

	if b.IsUntried {
		rows.Put(v, rows.IsUntried.Is(true))
	}

	if b.MissingContract != "" {
		rows.Put(v, rows.MissingContract.Is(b.MissingContract),
			rows.MissingSince.Is(b.MissingSince))
	}

	if b.BrakedContract != "" {
		rows.Put(v, rows.BrakedContract.Is(b.BrakedContract), rows.BrakedBy.Is(b.BrakedBy))
	}

	c.ops = append(c.ops, storage.Op{Kind: storage.Upsert, Key: rows.BlockKey(b.ID), Values: v})
}

// RemoveBlock removes the row of a block. The row must exist in storage.
func (c *Change) RemoveBlock(id string) {
	c.ops = append(c.ops, storage.Op{Kind: storage.Delete, Key: rows.BlockKey(id)})
}

func (c *Counts) countStage(stage weir.Stage) {
	switch stage {
	case weir.Delivered:
		c.Delivered++
	case weir.Dead:
		c.Dead++
	case weir.Cancelled:
		c.Cancelled++
	case weir.Superseded:
		c.Superseded++
	case weir.Discarded:
		c.Discarded++
	}
}

// Transaction has the changes that one transaction writes.
type Transaction struct {
	opOfRow         map[string]int // the key of a row → the index of its operation in ops
	ops             []storage.Op
	changes         []*Change
	firstDeliveries []*Entry // messages that were delivered at their first attempt
	bytes           int
}

// maxBatchOps leaves one operation for tail.
const maxBatchOps = storage.MaxOps - 1

// TryAdd adds the change if there is room for it, and reports whether the change was added. There
// is always room for the first change. If several changes write one row, only the last write is
// kept, because it repeats all values of the earlier writes. No row is both written and removed in
// one transaction, because each outcome of a key waits for the commit of the key's previous
// outcome.
func (b *Transaction) TryAdd(c *Change) bool {
	if b.opOfRow == nil {
		b.opOfRow = map[string]int{}
	}

	fresh, size := 0, 0
	for _, op := range c.ops {
		size += rows.EstimateSize(op.Values)
		if _, ok := b.opOfRow[op.Key]; !ok {
			fresh++
		}
	}

	if c.firstDelivery != nil {
		fresh++
		size += 2048 + len(c.firstDelivery.Attempts[0].Body)
	}

	if len(b.changes) > 0 && (len(b.ops)+len(b.firstDeliveries)+fresh > maxBatchOps ||
		b.bytes+size > rows.MaxGroupBytes) {
		return false
	}

	if c.firstDelivery != nil {
		b.firstDeliveries = append(b.firstDeliveries, c.firstDelivery)
	}

	for _, op := range c.ops {
		if i, ok := b.opOfRow[op.Key]; ok {
			b.ops[i] = op
			continue
		}
		b.opOfRow[op.Key] = len(b.ops)
		b.ops = append(b.ops, op)
	}

	b.changes = append(b.changes, c)
	b.bytes += size

	return true
}

// Changes returns the added changes.
func (b *Transaction) Changes() []*Change { return b.changes }

// updateTail applies all changes to a tail, in order.
func (b *Transaction) updateTail(t *Tail) {
	for _, c := range b.changes {
		for _, f := range c.tail {
			f(t)
		}
	}
}

// buildOps returns all operations of the transaction except the operation on tail. cursor is the
// cursor after the commit.
func (b *Transaction) buildOps(cursor int64) ([]storage.Op, error) {
	ops, single, err := packDeliveries(b.firstDeliveries, cursor)
	ops = append(b.ops, ops...)
	for _, e := range single {
		if err != nil {
			return nil, err
		}
		var op storage.Op
		op, err = mergeOp(e)
		ops = append(ops, op)
	}

	return ops, err
}

// The transaction that makes a message final also writes the rows of the message's events. So a
// crash cannot lose an event, and no event tells of a final stage that was not stored. Package
// outbox has the format of the rows.

// Notifier sends the events in the outboxes.
type Notifier interface {
	// DeadReceivers returns the names of the receivers that want events about a contract's dead
	// messages.
	DeadReceivers(contract string) []string
	// WakeOutbox makes the Notifier look for new events in a lane's outbox. It returns at once.
	WakeOutbox(lane int)
}

// NotifyFinal adds one event for each receiver: the message has become final.
func (c *Change) NotifyFinal(e *Entry, stage weir.Stage, at time.Time, receivers []string) {
	for _, to := range receivers {
		c.addEvent(outbox.FinalEvent(e.Seq(), stage, at, to, ""))
	}
}

func (c *Change) addCallback(seq int64, url string, stage weir.Stage, at time.Time) {
	if url != "" {
		c.addEvent(outbox.FinalEvent(seq, stage, at, outbox.CallbackTo, url))
	}
}

func (c *Change) addEvent(e outbox.Event) {
	event, marker := outbox.EventOps(e)
	if c.ops = append(c.ops, event); !c.hasEvents {
		c.ops = append(c.ops, marker)
	}
	c.hasEvents = true
}

// HasEvents reports whether the change puts an event into the outbox.
func (c *Change) HasEvents() bool { return c.hasEvents }
