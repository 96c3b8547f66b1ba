package drain

import (
	"context"

	"weir/internal/lane"
	"weir/internal/weir"
)

const (
	// A page of the log has pageMin to pageMax messages. The size of the last page decides how many of them are taken
	// to fit into pageBytes. A row has up to 60 KiB of a body, so pageMin rows are under 2 MiB.
	pageMin   = 32
	pageMax   = 256
	pageBytes = 1 << 20
	// rowBytes is about the size of a message's row without its body.
	rowBytes = 512
	// farRows is the number of messages that a far read asks for: as many as one answer of storage may have. A far read
	// drops the bodies of its messages. The holder reads far if messages supersede each other, or if many messages that
	// were read cannot be sent or parked now.
	farRows = 1000
	// If the read-ahead has readAheadMax messages that cannot be sent or parked now, they lead to no further far read.
	// Without its body a message takes about 1.3 KiB.
	readAheadMax = 10_000
)

// readAhead has the messages of the log that were read and are not settled, in order: they are neither final nor held
// nor scheduled. The next page is read while the messages of the last one are sent.
type readAhead struct {
	store       *lane.Store
	lane        int
	appends     *recentAppends
	entries     []*lane.Entry
	nextRead    int64 // first sequence number not read
	hasCaughtUp bool  // the log was read to its end once since this holder raised the fence
	isAtEnd     bool  // the log was read to its end, as far as is known
	isCautious  bool  // the holder is cautious: one message is read at a time
	isFar       bool  // the next read is a far one; see farRows
	pageRows    int   // number of messages in the next page; 0 = pageMin

	dues    *dueCache      // gets the scheduled messages of the log
	skipped map[int64]bool // messages that were cancelled before they were read

	reading chan logPage // a read that is under way; nil = none
	isStale bool         // the log may have got messages since that read began
}

// logPage is the answer of one read of the log.
type logPage struct {
	entries []*lane.Entry
	asked   int  // number of rows that were asked for
	isThin  bool // the page is from a far read, so its bodies are dropped
	err     error
}

// cursorSeq returns the sequence number below which all messages are settled.
func (w *readAhead) cursorSeq() int64 {
	if len(w.entries) > 0 {
		return w.entries[0].Seq()
	}
	return w.nextRead
}

// fillUp merges recent appends and a page that has come, and begins to read on if few messages are left.
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

// awaitRead waits for a read that is under way, and reports whether there was one. If ctx ends first, awaitRead returns
// the error of ctx.
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

// readFar reads ahead as far as versions can supersede each other (farRows). A cautious holder does so, too: an earlier
// holder may have delivered the newest version without a commit, and no older version may be sent after that.
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

// startFarRead begins to read on although the read-ahead still has many messages. Some messages stay there for a while:
// refused messages, and messages that cannot be parked before the committer has caught up. Messages of other keys may
// come behind them in the log.
func (w *readAhead) startFarRead(ctx context.Context) {
	if w.reading == nil && !w.isComplete() {
		w.isFar = true
		w.startRead(ctx)
	}
}

// isComplete reports whether the read-ahead has all messages of the log, or as many as it may have.
func (w *readAhead) isComplete() bool {
	return (w.isAtEnd && w.reading == nil) || len(w.entries) >= readAheadMax
}

// dropBodies drops the bodies of all messages.
func (w *readAhead) dropBodies() {
	for _, e := range w.entries {
		e.DropBody()
	}
}

// lowWater returns the number of messages below which the next page is read.
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

// mergePage adds the messages of a page, except the final and held ones, which an earlier holder settled above its
// cursor. Scheduled messages go into the due cache.
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
			e.DropBody() // this drops the row, too, because the read-ahead may have thousands of messages
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

// addEntry adds the next message of the log, if it is still to be sent. If the message is scheduled, its due time goes
// into the due cache.
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

// firstPendingSeq returns the sequence number below which all messages of a key are settled.
func (w *readAhead) firstPendingSeq(keyHash string) int64 {
	for _, e := range w.entries {
		if e.KeyHash() == keyHash {
			return e.Seq()
		}
	}
	return w.nextRead
}

// skipSeq keeps a message that was not read yet out of the read-ahead.
func (w *readAhead) skipSeq(seq int64) {
	if w.skipped == nil {
		w.skipped = map[int64]bool{}
	}
	w.skipped[seq] = true
}

// removeSeq removes a message, and reports whether the read-ahead had it.
func (w *readAhead) removeSeq(seq int64) bool {
	for _, e := range w.entries {
		if e.Seq() == seq {
			w.removeEntry(e)
			return true
		}
	}
	return false
}

// takeAppends adds messages that this process has filed, if they directly follow the messages that were read. It
// reports whether there were any. It adds none until the log was once read to its end: messages that were filed before
// this holder raised the fence may have been delivered or cancelled by an earlier holder, even above its cursor.
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

// onWake adds the messages that this process has filed. If there are none to add, the log is read on: another process
// may have filed some.
func (w *readAhead) onWake() {
	if !w.takeAppends() {
		w.markMore()
	}
}

// markMore is called when the log may have messages that were not read.
func (w *readAhead) markMore() { w.isAtEnd, w.isStale = false, true }

// removeEntry removes a message that was settled.
func (w *readAhead) removeEntry(e *lane.Entry) {
	for i, other := range w.entries {
		if other == e {
			w.entries = append(w.entries[:i], w.entries[i+1:]...)
			return
		}
	}
}
