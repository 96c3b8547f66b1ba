package simulation_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/internal/clock"
	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/weir"
)

// This file has the checks of due times, and of requests to cancel and move messages.

// scheduling is a message's due time and its changes, as the checker knows them.
type scheduling struct {
	accepted  time.Time // when the message was accepted, by the receiver's clock
	filed     time.Time // when the message was appended to the log
	due       time.Time // the due time in storage; zero = the message never had one
	dues      []time.Time
	waits     bool      // the message is scheduled in storage
	placed    string    // the position that the message got when it became due; empty = none
	cancelled bool      // the message was cancelled at once, while it was scheduled
	asked     bool      // storage has, or had, a request to cancel the message
	changed   time.Time // when the message was appended, or when its due time last changed
	answered  bool      // a caller got the answer that the message is, or will be, cancelled
}

// placeInOrder returns a message's position in its key's order.
func (f *filed) placeInOrder() string {
	if f.placed != "" {
		return f.placed
	}
	return lane.OrderPos(f.id.Seq)
}

func (c *checker) idOf(s *submission) weir.ID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return s.id
}

// lastDue returns the latest due time of all scheduled messages, or the parameter "from" if that is
// later.
func (c *checker) lastDue(from time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()

	for _, l := range c.lanes {
		for _, f := range l.log {
			if f.waits && f.due.After(from) {
				from = f.due
			}
		}
	}

	return from
}

// seqOf returns the sequence number in the key of a message's row (m_).
func seqOf(key string) int64 {
	seq, _ := strconv.ParseInt(key[2:], 10, 64)
	return seq
}

// noteRequests records the requests that a transaction on head inserts. It also records which
// scheduled messages the transaction cancels or moves to another due time.
func (c *checker) noteRequests(l *laneState, call string, ops []storage.Op) {
	for _, op := range ops[1:] {
		if op.Kind != storage.Merge || op.Key[:2] != "m_" {
			seq, ok := op.Values["Seq"].(int64)
			switch {
			case ok && strings.HasPrefix(op.Key, "w_cancel_"):
				l.log[seq-1].asked = true
			case ok && strings.HasPrefix(op.Key, "w_replay_"):
				c.noteReplayRequest(l.log[seq-1], call, op)
				c.history.Exclude(l.log[seq-1].key, "replays")
			case ok && strings.HasPrefix(op.Key, "w_discard_"):
				c.noteDiscardRequest(l.log[seq-1])
			}

			continue
		}

		f := l.log[seqOf(op.Key)-1]

		if op.Values["ReplayNonce"] != nil || op.Values["ErasedAt"] != nil ||
			op.Values["DiscardAskedAt"] != nil {
			continue
		}

		if due, ok := op.Values["DueAt"].(time.Time); ok {
			f.due, f.dues, f.changed = due, append(f.dues, due), time.Now()
			c.counts.Moved++
		}

		if op.Values["Stage"] == string(weir.Cancelled) {
			f.cancelled, f.waits = true, false
			c.counts.CancelledAtOnce++
		}

		if f.begun {
			c.addViolation("unreleased",
				"seq %d of lane %d was changed as scheduled, and had been sent", f.id.Seq,
				f.id.Lane)
		}
	}
}

// noteSettled checks the cancellations and the releases in a holder's commit, and records the
// deaths. A release gives a scheduled message a position in its key's order.
func (c *checker) noteSettled(p *process, l *laneState, ops []storage.Op) {
	for _, op := range ops {
		if op.Key[:2] != "m_" {
			continue
		}

		f := l.log[seqOf(op.Key)-1]
		if place, ok := op.Values["Place"].(string); ok {
			c.checkReleased(p, l, f, place)
		}

		c.noteAttempts(f, op)
		if op.Values["Stage"] == string(weir.Dead) {
			f.died = time.Now()
		}

		if op.Values["Stage"] == string(weir.Cancelled) && !f.discarded && f.taken &&
			f.under == l.fence {
			c.addViolation("cancelled",
				"%s cancelled seq %d of lane %d, which it knew to be delivered", p.name,
				f.id.Seq, f.id.Lane)
		}
	}
}

// checkReleased checks that a released message was scheduled. The new position of the message must
// be greater than the positions of all messages of its key that were sent. Sent messages with a
// version are left out.
func (c *checker) checkReleased(p *process, l *laneState, f *filed, place string) {
	if !f.waits {
		c.addViolation("unreleased", "%s released seq %d of lane %d, which is not scheduled",
			p.name, f.id.Seq, f.id.Lane)
	}

	f.waits, f.placed = false, place
	c.counts.Released++
	for _, o := range l.log {
		if o.item == f.item && o.begun && !o.edit && o.placeInOrder() > place {
			c.addViolation("order", "seq %d of key %s was put before seq %d, which had been sent",
				f.id.Seq, f.key, o.id.Seq)
		}
	}

	c.checkInTime(l, f, place)
}

// checkInTime checks that f, a released message, comes before each message of its key that was
// accepted more than two seconds after the due time of f. The two seconds are for the difference
// between the clocks of receiver and holder. Messages that ever had a due time are left out, and so
// are messages that a holder may have sent already.
func (c *checker) checkInTime(l *laneState, f *filed, place string) {
	known := l.last.Tail.SentBelow
	for _, o := range slices.Backward(l.log) {
		switch {
		case known == 0, o.id.Seq < max(known, f.id.Seq), o.begun,
			!o.accepted.After(f.due.Add(2 * time.Second)):
			return
		case o.item == f.item && o.dues == nil && o.placeInOrder() < place:
			c.addViolation("order",
				"seq %d of key %s, due at %s, was put behind seq %d, accepted at %s", f.id.Seq,
				f.key, f.due, o.id.Seq, o.accepted)
		}

		c.counts.InTime++
	}
}

// checkDue checks that no message is sent before its due time, by the clock of the sending process.
// It also checks that no message is sent while it is scheduled or cancelled in storage.
func (c *checker) checkDue(l *laneState, f *filed, r *request) {
	now := r.p.nowAtMost()
	switch {
	case f.cancelled:
		c.addViolation("cancelled", "%s sent seq %d of lane %d after it was cancelled", r.p.name,
			f.id.Seq, f.id.Lane)
	case f.waits:
		c.addViolation("unreleased", "%s sent seq %d of lane %d, which is scheduled in storage",
			r.p.name, f.id.Seq, f.id.Lane)
	case f.due.After(now):
		c.addViolation("early", "%s sent seq %d of lane %d %s before it is due", r.p.name,
			f.id.Seq, f.id.Lane, f.due.Sub(now))
	}
}

// findFiled returns the message with the given id from the log. An instance has acknowledged the
// id. So if the log has no such message, findFiled reports a violation, and returns nil.
func (c *checker) findFiled(id weir.ID) *filed {
	if l := c.laneOf(id.Lane); id.Seq <= int64(len(l.log)) {
		return l.log[id.Seq-1]
	}
	c.addViolation("lost", "seq %d of lane %d is not in the log", id.Seq, id.Lane)
	return nil
}

// cancelAnswered checks the answer to a cancellation. It returns true if the cancellation was
// accepted or refused, and false after any other error. A message that still waits must not get the
// answer "too late". This rule leaves out a message that was replayed after the caller asked,
// because the answer may be older than the replay.
func (c *checker) cancelAnswered(id weir.ID, asked time.Time, st weir.Status, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.findFiled(id)
	if f == nil {
		return true
	}

	switch stage := c.stageOf(f); {
	case err == nil && st.Stage == weir.Cancelled && stage != weir.Cancelled:
		c.addViolation("cancelled", "seq %d of lane %d was answered to be cancelled, and is %s",
			id.Seq, id.Lane, stage)
	case err == nil && !f.asked:
		c.addViolation("cancelled",
			"the cancellation of seq %d of lane %d was answered with %s, and storage has no request", id.Seq, id.Lane,
			st.Stage)

	case weir.KindOf(err) == weir.Conflict && !stage.Final() && f.revived.Before(asked):
		c.addViolation("cancelled", "seq %d of lane %d was too late to be cancelled, and is %s",
			id.Seq, id.Lane, stage)
	}

	f.answered = f.answered || err == nil

	return err == nil || weir.KindOf(err) == weir.Conflict
}

// moveAnswered checks the answer to a move. It returns true if the move was accepted or refused,
// and false after any other error.
func (c *checker) moveAnswered(id weir.ID, due time.Time, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.findFiled(id)
	if f == nil {
		return true
	}

	had := false
	for _, d := range f.dues {
		had = had || d.Equal(lane.RoundDueTime(due))
	}

	switch {
	case err == nil && !had:
		c.addViolation("moved",
			"seq %d of lane %d was answered to be due at %s, and never was in storage", id.Seq,
			id.Lane, due)

	case weir.KindOf(err) == weir.Conflict && f.waits:
		c.addViolation("moved", "seq %d of lane %d was too late to be moved, and is scheduled",
			id.Seq, id.Lane)
	}

	return err == nil || weir.KindOf(err) == weir.Conflict
}

// checkRows returns the number of cancelled messages that tail does not count yet. It checks the
// rows of a lane:
//
//   - A scheduled message has one row (s_), under its due time.
//   - A held message has one row (r_) in its key's queue, at its position.
//   - Each row of a request (w_) belongs to a request that was made.
//   - Tail has the next due time.
func (c *checker) checkRows(l *laneState, number int, now lane.Control) (uncounted int64) {
	next := time.Time{}
	sooner := func(at time.Time) {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}

	scheduled, held := map[int64]bool{}, map[int64]bool{}
	for _, r := range c.rowsOf(number, "s_") {
		var micros, seq int64
		_, err := fmt.Sscanf(r.Key, "s_%d_%d", &micros, &seq)
		if err != nil || seq > int64(len(l.log)) || !l.log[seq-1].waits ||
			l.log[seq-1].due.UnixMicro() != micros {
			c.addViolation("rows", "lane %d: %s belongs to nothing (%v)", number, r.Key, err)
			return 0
		}

		scheduled[seq] = true
		if seq < now.Tail.Cursor {
			sooner(time.UnixMicro(micros))
		}
	}

	// by block: its queue's length; its first message
	lines, first := map[string]int64{}, map[string]*filed{}
	for _, r := range c.rowsOf(number, "r_") {
		block, place, _ := strings.Cut(r.Key[2:], "_")
		seq, _ := r.Values["Seq"].(int64)
		if f := l.log[seq-1]; held[seq] || f.placeInOrder() != place || c.stageOf(f).Final() {
			c.addViolation("rows", "lane %d: %s belongs to nothing", number, r.Key)
		}

		held[seq] = true
		if lines[block]++; lines[block] == 1 {
			first[block] = l.log[seq-1]
		}
	}

	for _, r := range c.rowsOf(number, "b_") {
		if n, _ := r.Values["Held"].(int64); n != lines[r.Key[2:]] {
			c.addViolation("rows", "lane %d: %s counts %d messages, its queue has %d",
				number, r.Key, n, lines[r.Key[2:]])
		}
		delete(lines, r.Key[2:])
	}

	for _, b := range c.firstBlocks(number) {
		at := clock.Later(b.NextAt, l.pausedUntil(b.KeyHash))
		if f := first[b.ID]; f != nil { // the due time of the message may be later than NextAt
			at = clock.Later(at, f.due)
		}
		sooner(at)
	}

	if len(lines) > 0 {
		c.addViolation("rows", "lane %d: %d queues without a block", number, len(lines))
	}

	for _, f := range l.log {
		switch below := f.id.Seq < now.Tail.Cursor; {
		case f.waits != scheduled[f.id.Seq]:
			c.addViolation("rows", "lane %d: seq %d is scheduled (%v) and has a row (%v)", number,
				f.id.Seq, f.waits, scheduled[f.id.Seq])
		case below && !f.waits && !held[f.id.Seq] && !c.stageOf(f).Final():
			c.addViolation("lost",
				"lane %d: seq %d waits below the cursor without a row in a queue", number, f.id.Seq)
		}
	}

	return c.checkRequests(l, number, now, next)
}

// firstBlocks returns the blocks of a lane, except a block that waits for another block of the same
// key.
func (c *checker) firstBlocks(number int) (first []lane.KeyBlock) {
	blocks, err := c.store.DeliveryState().ReadBlocks(context.Background(), number)
	if err != nil {
		c.addViolation("rows", "read the blocks of lane %d: %v", number, err)
	}

	for i := range blocks {
		b := &blocks[i]
		waits := b.LogWaitsFrom != 0 && b.MissingContract == "" &&
			slices.ContainsFunc(blocks, func(o lane.KeyBlock) bool {
				return o.LogWaitsFrom != 0 && o.MissingContract == "" && o.KeyHash == b.KeyHash &&
					o.GoesBefore(b)
			})
		if !waits {
			first = append(first, *b)
		}
	}

	return first
}

// checkRequests does a part of checkRows: it checks the rows of requests, and the next due time in
// tail. The parameter next is the due time that tail must have according to the other rows.
func (c *checker) checkRequests(l *laneState, number int, now lane.Control,
	next time.Time) (uncounted int64) {
	requests := c.rowsOf(number, "w_")
	for _, r := range requests {
		if r.Key == "w_resume" || r.Key == "w_erase" || strings.HasPrefix(r.Key, "w_forget") {
			continue
		}

		seq, _ := r.Values["Seq"].(int64)
		done, _ := r.Values["Done"].(bool)
		f := l.log[seq-1]
		isStray := !f.asked || done != f.cancelled
		switch {
		case strings.HasPrefix(r.Key, "w_replay_"):
			isStray = !f.isRequested()
		case strings.HasPrefix(r.Key, "w_discard_"):
			isStray = !f.discardAsked || f.discarded
		}

		if isStray {
			c.addViolation("rows", "lane %d: %s belongs to nothing", number, r.Key)
		}

		if done {
			uncounted++
		}
	}

	// If a holder has to read the due times again, it sets the next due time in tail to the present
	// time of its own clock. So the check accepts a next due time of up to one second from now,
	// even if the parameter next is earlier.
	if soon := time.Now().Add(time.Second); !next.IsZero() && next.Before(soon) {
		next = soon
	}

	switch at := now.Tail.NextDueAt; {
	case now.Tail.RequestsSeen > now.Head.RequestSeq:
		c.addViolation("rows", "lane %d: touched %d, and seen %d", number, now.Head.RequestSeq,
			now.Tail.RequestsSeen)
	case now.HasRequests():
	case len(requests) > 0:
		c.addViolation("rows", "lane %d: %d requests that count as seen", number, len(requests))
	case !next.IsZero() && (at.IsZero() || at.After(next.Add(time.Microsecond))):
		c.addViolation("rows", "lane %d: something is due at %s, tail says %s", number, next, at)
	}

	return uncounted
}

func (c *checker) rowsOf(number int, prefix string) (rows []storage.Row) {
	q := storage.Query{Partition: fmt.Sprintf("%d.%d", c.store.Epoch, number), From: prefix,
		To: prefix + "~"}
	for {
		page, err := c.w.account.Table().Range(context.Background(), q)
		if err != nil {
			c.addViolation("books", "%v", err)
		}

		rows = append(rows, page.Rows...)
		if !page.More {
			return slices.DeleteFunc(rows, isDamaged)
		}

		q.After = rows[len(rows)-1].Key
	}
}

// isOutdated reports whether a version newer than that of f was delivered, so that f can only
// become superseded.
func (c *checker) isOutdated(l *laneState, f *filed) bool {
	for _, o := range l.log {
		if f.edit && o.edit && !o.forgotten && o.key == f.key && o.version.Newer(f.version) &&
			c.stageOf(o) == weir.Delivered {
			return true
		}
	}
	return false
}

// recovered is the time after which a fault has no more consequences: leases have ended, sweeps
// have run, and each lane is served again.
const recovered = 2*time.Minute + 30*time.Second

// heard is the time within which every live instance learns of a message, at the latest by its next
// sweep.
const heard = 65 * time.Second

// punctuality is the largest delay with which a due message is allowed to reach the CMS. It has
// room for some reads of storage and for the way to the CMS. The constant superseding is the
// largest delay for a message whose contract sets "supersede", because the holder then makes one
// more read and one more commit.
const punctuality, superseding = 30 * time.Millisecond, 40 * time.Millisecond

// checkPunctual checks that a message that becomes due long after the faults is sent at its due
// time, by the sender's clock. It leaves out a message if the message's lane was busy shortly
// before the due time.
func (c *checker) checkPunctual(l *laneState, f *filed, r *request) {
	quiet := c.w.started.Add(c.w.trouble + recovered)
	if after := c.disturbed.Add(recovered); after.After(quiet) {
		quiet = after
	}

	if f.begun || f.due.Before(quiet) || f.due.Before(f.changed.Add(heard)) ||
		f.due.Before(l.busy.Add(4*time.Second)) {
		return
	}

	c.counts.Punctual++
	most := punctuality
	if f.edit {
		most = superseding
	}

	if late := r.p.now().Sub(f.due); late > most {
		c.addViolation("late", "%s sent seq %d of lane %d %s after it was due", r.p.name, f.id.Seq,
			f.id.Lane, late)
	}
}
