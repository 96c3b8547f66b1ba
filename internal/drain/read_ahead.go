package drain

import (
	"context"

	"weir/internal/lane"
	"weir/internal/weir"
)

const (
	// A page of the log has pageMin to pageMax messages, as many as fit into pageBytes by the size
	// of the last page: with bodies of up to 60 KiB in the rows, pageMin of them are under 2 MiB.
	pageMin   = 32
	pageMax   = 256
	pageBytes = 1 << 20
	// rowBytes is about the size of a message's row without its body.
	rowBytes = 512
	// farRows is the number of messages that are read ahead, without bodies, if messages supersede each other: one
	// answer of storage.
	farRows = 1000
	// readAheadMax bounds the read-ahead while messages of refused keys stay in it and it goes on
	// behind them: without bodies, about 1.3 KiB each.
	readAheadMax = 10_000
)

// readAhead has the messages of the log that were read and are not settled, in order. The next page
// is read while the messages of the last one are sent.
type readAhead struct {
	store       *lane.Store
	lane        int
	appends     *recentAppends
	entries     []*lane.Entry
	nextRead    int64 // first sequence number not read
	hasCaughtUp bool  // the log was read to its end since the fence was taken
	isAtEnd     bool  // the log was read to its end, as far as is known
	isCautious  bool  // the lane runs cautiously: one message is read at a time
	isFar       bool  // some messages supersede: farRows are read at a time, without bodies
	pageRows    int   // of the next page; 0 = pageMin

	dues    *dueCache      // gets the scheduled messages of the log
	skipped map[int64]bool // messages that were cancelled before they were read

	reading chan logPage // a read that is under way; nil = none
	isStale bool         // the log has messages behind that read
}

// logPage is the answer of one read.
type logPage struct {
	entries []*lane.Entry
	asked   int  // rows asked for
	isThin  bool // without bodies
	err     error
}

// cursorSeq returns the sequence number below which all messages are settled.
func (w *readAhead) cursorSeq() int64 {
	if len(w.entries) > 0 {
		return w.entries[0].Seq()
	}
	return w.nextRead
}

// fillUp merges a page that has come, and begins to read on if few messages are left.
func (w *readAhead) fillUp(ctx context.Context) error {
	w.takeAppends()
	if w.reading != nil {
		select {
		case p := <-w.reading:
			if err := w.mergePage(p); err != nil {
				return err
			}
		default:
		}
	}
	if w.reading == nil && !w.isAtEnd && len(w.entries) < w.lowWater() {
		w.startRead(ctx)
	}
	return nil
}

// awaitRead waits for a read that is under way, and reports whether there was one.
func (w *readAhead) awaitRead(ctx context.Context) (bool, error) {
	if w.reading == nil {
		return false, nil
	}
	select {
	case p := <-w.reading:
		return true, w.mergePage(p)
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// readFar reads as far ahead as versions supersede, in cautious running too: the newest version may
// have been delivered and not committed, and no older one may follow it.
func (w *readAhead) readFar(ctx context.Context) error {
	for len(w.entries) < farRows && (!w.isAtEnd || w.reading != nil) {
		w.isFar = true
		if w.reading == nil {
			w.startRead(ctx)
		}
		if _, err := w.awaitRead(ctx); err != nil {
			return err
		}
	}
	return nil
}

// startFarRead begins to read on although many messages are left. Messages to be parked stay in the read-ahead until
// the committer has caught up, and messages of other keys may come after them.
func (w *readAhead) startFarRead(ctx context.Context) {
	if w.reading == nil && !w.isComplete() {
		w.isFar = true
		w.startRead(ctx)
	}
}

// isComplete reports whether the read-ahead has all messages that can be read now.
func (w *readAhead) isComplete() bool {
	return (w.isAtEnd && w.reading == nil) || len(w.entries) >= readAheadMax
}

// dropBodies drops the bodies of all messages.
func (w *readAhead) dropBodies() {
	for _, e := range w.entries {
		e.DropBody()
	}
}

// lowWater returns the number of messages left at which the next page is read.
func (w *readAhead) lowWater() int {
	if w.isCautious {
		return 1
	}
	return max(w.pageRows, pageMin) / 2
}

func (w *readAhead) startRead(ctx context.Context) {
	rows, read := max(w.pageRows, pageMin), w.store.ReadLog
	switch {
	case w.isFar:
		rows, read = farRows, w.store.ScanLog
	case w.isCautious:
		rows = 1
	}
	from, thin, answer := w.nextRead, w.isFar, make(chan logPage, 1)
	w.reading, w.isStale = answer, false
	go func() {
		entries, err := read(ctx, w.lane, from, rows)
		answer <- logPage{entries, rows, thin, err}
	}()
}

// mergePage adds the messages of a page, except those that an earlier holder settled above its
// cursor: final and held ones.
func (w *readAhead) mergePage(p logPage) error {
	w.reading = nil
	if p.err != nil {
		return p.err
	}
	bytes, supersede := 0, false
	for _, e := range p.entries {
		bytes += e.Message.Size + rowBytes
		supersede = supersede || e.Message.Supersede
		if e.Seq() < w.nextRead {
			continue // this process filed the message, and added it meanwhile
		}
		if p.isThin {
			e.DropBody() // with its row, because there may be thousands
		}
		w.addEntry(e)
	}
	if len(p.entries) > 0 {
		w.pageRows, w.isFar = min(max(pageBytes*len(p.entries)/bytes, pageMin), pageMax), supersede
	}
	w.hasCaughtUp = w.hasCaughtUp || len(p.entries) < p.asked
	w.isAtEnd = len(p.entries) < p.asked && !w.isStale
	return nil
}

// addEntry adds the next message of the log, if it is still to be sent. A scheduled one goes into
// the due cache.
func (w *readAhead) addEntry(e *lane.Entry) {
	w.nextRead = e.Seq() + 1
	switch {
	case w.skipped[e.Seq()]:
		delete(w.skipped, e.Seq())
	case e.Stage == weir.Scheduled:
		w.dues.addDue(e.DueTime())
	case !e.Stage.Final() && !e.IsHeld:
		w.entries = append(w.entries, e)
	}
}

// firstPendingSeq returns the sequence number below which no message of a key is left to be
// settled.
func (w *readAhead) firstPendingSeq(keyHash string) int64 {
	for _, e := range w.entries {
		if e.KeyHash() == keyHash {
			return e.Seq()
		}
	}
	return w.nextRead
}

// skipSeq keeps out a message that was not read yet.
func (w *readAhead) skipSeq(seq int64) {
	if w.skipped == nil {
		w.skipped = map[int64]bool{}
	}
	w.skipped[seq] = true
}

// removeSeq removes a message, and reports whether it was there.
func (w *readAhead) removeSeq(seq int64) bool {
	for _, e := range w.entries {
		if e.Seq() == seq {
			w.removeEntry(e)
			return true
		}
	}
	return false
}

// takeAppends adds the messages that this process filed just behind the read ones, and reports
// whether there were any. It adds none before the log was read to its end: messages filed before
// this holder raised the fence may have been delivered or cancelled by an earlier one, above its
// cursor.
func (w *readAhead) takeAppends() bool {
	if w.isCautious || !w.hasCaughtUp {
		return false
	}
	offered := w.appends.takeFrom(w.nextRead)
	for _, e := range offered {
		w.addEntry(e)
	}
	return len(offered) > 0
}

// onWake adds the messages for which the lane was woken, or lets the log be read on.
func (w *readAhead) onWake() {
	if !w.takeAppends() {
		w.markMore()
	}
}

// markMore is called when the log has messages that were not read.
func (w *readAhead) markMore() { w.isAtEnd, w.isStale = false, true }

// removeEntry removes a settled message.
func (w *readAhead) removeEntry(e *lane.Entry) {
	for i, other := range w.entries {
		if other == e {
			w.entries = append(w.entries[:i], w.entries[i+1:]...)
			return
		}
	}
}
