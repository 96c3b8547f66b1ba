package drain

import (
	"context"

	"weir/internal/lane"
	"weir/internal/weir"
)

const (
	// A page of the log has pageMin to pageMax messages, as many as fit into pageBytes by
	// what the last page held: with bodies of up to 60 KiB in the rows, pageMin of them are
	// under 2 MiB.
	pageMin   = 32
	pageMax   = 256
	pageBytes = 1 << 20
	// rowBytes is what a message's row holds beside its body, about.
	rowBytes = 512
	// aheadRows is how far is looked ahead, without bodies, where messages supersede each
	// other: one answer of storage.
	aheadRows = 1000
	// windowMax bounds the window while messages of refused keys stay in it and it reads on
	// behind them: without bodies, about 1.3 KiB each.
	windowMax = 10_000
)

// window is the part of the log that was read and is not settled, in order. The next page
// is read while the last one is delivered.
type window struct {
	store    *lane.Store
	lane     int
	offers   *offers
	entries  []*lane.Entry
	nextRead int64 // first sequence number not read
	caughtUp bool  // the log was read to its end since the fence was taken
	end      bool  // the log was read to its end, as far as we know
	careful  bool  // one message at a time, nothing ahead
	ahead    bool  // far, without bodies: some of what was read supersedes
	rows     int   // of the next page; 0 = pageMin

	agenda  *agenda        // is told what the log says is scheduled
	skipped map[int64]bool // not read yet, and not to be taken in: withdrawn

	reading chan page // a read that is under way; nil = none
	stale   bool      // there may be more than that read finds
}

// page is the answer of one read.
type page struct {
	entries []*lane.Entry
	rows    int  // asked for
	thin    bool // without bodies
	err     error
}

// cursor is the sequence number below which everything is settled.
func (w *window) cursor() int64 {
	if len(w.entries) > 0 {
		return w.entries[0].Seq()
	}
	return w.nextRead
}

// fill takes in what has come and starts to read on when little is left.
func (w *window) fill(ctx context.Context) error {
	w.takeOffers()
	if w.reading != nil {
		select {
		case p := <-w.reading:
			if err := w.absorb(p); err != nil {
				return err
			}
		default:
		}
	}
	if w.reading == nil && !w.end && len(w.entries) < w.lowWater() {
		w.read(ctx)
	}
	return nil
}

// wait waits for a read that is under way; false when there is none.
func (w *window) wait(ctx context.Context) (bool, error) {
	if w.reading == nil {
		return false, nil
	}
	select {
	case p := <-w.reading:
		return true, w.absorb(p)
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// lookAhead reads as far as superseding looks, in careful running too: the newest version
// may have been delivered and not committed, and nothing older may follow it.
func (w *window) lookAhead(ctx context.Context) error {
	for len(w.entries) < aheadRows && (!w.end || w.reading != nil) {
		w.ahead = true
		if w.reading == nil {
			w.read(ctx)
		}
		if _, err := w.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// readFurther begins to read on though many messages are left: those to be put aside stay in the
// window until the committer has caught up, and other keys come behind.
func (w *window) readFurther(ctx context.Context) {
	if w.reading == nil && !w.isWhole() {
		w.ahead = true
		w.read(ctx)
	}
}

// isWhole reports whether the window has all that can be read now.
func (w *window) isWhole() bool { return (w.end && w.reading == nil) || len(w.entries) >= windowMax }

// dropBodies drops the bodies of all messages in the window.
func (w *window) dropBodies() {
	for _, e := range w.entries {
		e.DropBody()
	}
}

// lowWater is the number of messages left at which the next page is read.
func (w *window) lowWater() int {
	if w.careful {
		return 1
	}
	return max(w.rows, pageMin) / 2
}

func (w *window) read(ctx context.Context) {
	rows, read := max(w.rows, pageMin), w.store.ReadLog
	switch {
	case w.ahead:
		rows, read = aheadRows, w.store.ScanLog
	case w.careful:
		rows = 1
	}
	from, thin, answer := w.nextRead, w.ahead, make(chan page, 1)
	w.reading, w.stale = answer, false
	go func() {
		entries, err := read(ctx, w.lane, from, rows)
		answer <- page{entries, rows, thin, err}
	}()
}

// absorb takes a page in. What an earlier holder settled above its cursor is passed over:
// final ones, and those that stand among the held.
func (w *window) absorb(p page) error {
	w.reading = nil
	if p.err != nil {
		return p.err
	}
	bytes, supersede := 0, false
	for _, e := range p.entries {
		bytes += e.Message.Size + rowBytes
		supersede = supersede || e.Message.Supersede
		if e.Seq() < w.nextRead {
			continue // offered meanwhile
		}
		if p.thin {
			e.DropBody() // of the row as read, too: there may be thousands
		}
		w.take(e)
	}
	if len(p.entries) > 0 {
		w.rows, w.ahead = min(max(pageBytes*len(p.entries)/bytes, pageMin), pageMax), supersede
	}
	w.caughtUp = w.caughtUp || len(p.entries) < p.rows
	w.end = len(p.entries) < p.rows && !w.stale
	return nil
}

// take takes in the next entry of the log, where it is still to be sent. What is scheduled
// waits elsewhere.
func (w *window) take(e *lane.Entry) {
	w.nextRead = e.Seq() + 1
	switch {
	case w.skipped[e.Seq()]:
		delete(w.skipped, e.Seq())
	case e.Stage == weir.Scheduled:
		w.agenda.note(e.DueTime())
	case !e.Stage.Final() && !e.IsHeld:
		w.entries = append(w.entries, e)
	}
}

// readOf is the sequence number below which nothing of a key is left to be settled.
func (w *window) readOf(keyHash string) int64 {
	for _, e := range w.entries {
		if e.KeyHash() == keyHash {
			return e.Seq()
		}
	}
	return w.nextRead
}

// skip keeps out a message that was not read yet.
func (w *window) skip(seq int64) {
	if w.skipped == nil {
		w.skipped = map[int64]bool{}
	}
	w.skipped[seq] = true
}

// removeSeq takes out a message, and says whether it was there.
func (w *window) removeSeq(seq int64) bool {
	for _, e := range w.entries {
		if e.Seq() == seq {
			w.remove(e)
			return true
		}
	}
	return false
}

// takeOffers takes in what this process filed just behind what was read, and says whether
// there was any. Not before the log was read to its end: what was filed before this holder
// took the fence may have been delivered or cancelled by an earlier one, above its cursor.
func (w *window) takeOffers() bool {
	if w.careful || !w.caughtUp {
		return false
	}
	offered := w.offers.from(w.nextRead)
	for _, e := range offered {
		w.take(e)
	}
	return len(offered) > 0
}

// woken takes in what a wake was for: what was offered, or something in the log.
func (w *window) woken() {
	if !w.takeOffers() {
		w.more()
	}
}

// more tells the window that the log goes on.
func (w *window) more() { w.end, w.stale = false, true }

// remove takes out a settled entry.
func (w *window) remove(e *lane.Entry) {
	for i, other := range w.entries {
		if other == e {
			w.entries = append(w.entries[:i], w.entries[i+1:]...)
			return
		}
	}
}
