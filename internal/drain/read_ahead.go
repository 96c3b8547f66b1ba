package drain

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"weir/internal/lane"
	"weir/internal/panics"
	"weir/internal/storage"
	"weir/internal/weir"
)

const (
	// A page of the log has pageMin to pageMax messages. The number is chosen so that a page has
	// about pageBytes, if its messages are as large as those of the last page. A row stores at most
	// 60 KiB of a body, so a page of pageMin messages is always smaller than 2 MiB.
	pageMin   = 32
	pageMax   = 256
	pageBytes = 1 << 20
	// maxRowBytes is the size of the largest body in a row, and maxPageBytes that of the largest
	// answer of storage.
	maxRowBytes, maxPageBytes = 60 << 10, 4 << 20
	// rowBytes is the approximate size of a message's row without the body.
	rowBytes = 512
	// A far read is a read of farRows messages without their bodies. One answer of Azure Table
	// Storage has at most that many rows. The holder reads far in two cases: if messages supersede
	// each other, or if many messages in the read-ahead cannot be sent now.
	farRows = 1000
	// When readAheadMax messages are in memory, startFarRead does not read more. One message takes
	// about 1.3 KiB without its body.
	readAheadMax = 10_000
)

// readAhead has the log's messages that were read and are not settled, in order. A message is
// settled when it is final, held or scheduled. While the session sends messages, a goroutine reads
// the next page.
type readAhead struct {
	store    *lane.Store
	lane     int
	appends  *recentAppends
	memory   *laneMemory
	entries  []*lane.Entry
	nextRead int64 // first sequence number not read
	// all messages below this number were appended before the next read begins; see applyControl
	knownEnd    int64
	hasCaughtUp bool // this session has read the log to its end at least once
	isAtEnd     bool // the log has no unread messages, as far as is known
	isCautious  bool // one message is read at a time; see crashGuard
	isFar       bool // the next read is a far read; see farRows
	pageRows    int  // number of messages to read in the next page; 0 = pageMin

	dues    *dueCache      // gets the due times of the log's scheduled messages
	skipped map[int64]bool // by sequence number: messages that were cancelled before they were read

	reading chan logPage // gets the page of the read under way; nil = no read
	isStale bool         // the log may have got messages after the read under way began
}

// logPage is the answer of one read of the log.
type logPage struct {
	entries []*lane.Entry
	asked   int   // number of rows that the read asked for
	end     int64 // knownEnd when the read began
	isThin  bool  // the page is from a far read, so it has no bodies
	err     error
}

// cursorSeq returns the sequence number below which all messages are settled.
func (w *readAhead) cursorSeq() int64 {
	if len(w.entries) > 0 {
		return w.entries[0].Seq()
	}
	return w.nextRead
}

// fillUp adds the recent appends of this process, and the page of a finished read. If few messages
// are left, it starts the next read.
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

// awaitRead waits for the read under way, and adds the page. It reports whether a read was under
// way. If ctx ends first, awaitRead returns the cause.
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

// readFar reads the log until the read-ahead has farRows messages, or until the log ends. It is
// called to find the newest version of a key. Even a cautious holder (see crashGuard) reads far: a
// crashed holder may have delivered the newest version, and after that no older version may be
// sent.
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

// startFarRead starts a far read, unless isComplete returns true. It is called when the messages in
// the read-ahead have to wait, because the CMS refused their keys or because too many changes are
// uncommitted. Later in the log there can be messages of other keys.
func (w *readAhead) startFarRead(ctx context.Context) {
	if w.reading == nil && !w.isComplete() {
		w.isFar = true
		w.startRead(ctx)
	}
}

// isComplete reports whether no more messages are to be read: the log was read to its end, or
// readAheadMax messages are in memory.
func (w *readAhead) isComplete() bool {
	return (w.isAtEnd && w.reading == nil) || len(w.entries) >= readAheadMax
}

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

	release, thin := func() {}, w.isFar
	if !thin {
		if release = w.memory.reservePage(rows); release == nil {
			release, thin, read = func() {}, true, w.store.ScanLog
		}
	}

	from, end, answer := w.nextRead, w.knownEnd, make(chan logPage, 1)
	share := w.memory.shareOf(pageBytes)
	w.reading, w.isStale = answer, false
	go func() {
		page := logPage{asked: rows, end: end, isThin: thin}
		page.err = panics.Catch(func() (err error) {
			defer release()
			page.entries, err = read(ctx, w.lane, from, rows)
			trimBodies(page.entries, share)
			return err
		})

		answer <- page
	}()
}

// mergePage adds the messages of a page that was read, and chooses the size of the next page.
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
			continue // takeAppends has added the message already
		}

		if p.isThin {
			// frees the memory of the row that was read, because there can be thousands of messages
			e.DropBody()
		}

		w.addEntry(e)
	}

	if len(p.entries) > 0 {
		w.appends.noteRead(p.entries[len(p.entries)-1].Seq(), w.store.Now())
		w.pageRows, w.isFar = min(max(pageBytes*len(p.entries)/bytes, pageMin), pageMax), supersede
	}

	if len(p.entries) < p.asked && w.nextRead < p.end {
		if len(p.entries) == 0 {
			return missingRow(w.nextRead)
		}
		w.isAtEnd = true // until the messages before the gap are sent; see onWake and applyControl
		return nil
	}

	w.trimBodies()
	w.hasCaughtUp = w.hasCaughtUp || len(p.entries) < p.asked
	w.isAtEnd = len(p.entries) < p.asked && !w.isStale

	return nil
}

// missingRow returns the error for a message that was accepted, and whose row is gone. It ends the
// session, and the lane stands still until an operator has put the row back or has given the
// message up: no holder passes over an accepted message, because its row can still come, for
// example while an account is copied.
func missingRow(seq int64) error {
	return &storage.Error{Op: "read the log", Kind: storage.Other, Index: -1,
		Code: fmt.Sprintf("message %d of the log has no row", seq)}
}

// addEntry adds the log's next message, unless the message is settled or was cancelled. If the
// message is scheduled, addEntry only adds its due time to the due cache.
func (w *readAhead) addEntry(e *lane.Entry) {
	w.nextRead = e.Seq() + 1
	switch {
	case w.skipped[e.Seq()]:
		delete(w.skipped, e.Seq())
	case e.Stage == weir.Scheduled:
		w.dues.addDue(e.AsDue())
	case !e.Stage.Final() && !e.IsHeld:
		w.entries = append(w.entries, e)
	}
}

// firstPendingSeq returns the sequence number below which all log messages of a key are settled.
func (w *readAhead) firstPendingSeq(keyHash string) int64 {
	for _, e := range w.entries {
		if e.KeyHash() == keyHash {
			return e.Seq()
		}
	}
	return w.nextRead
}

// skipSeq makes addEntry skip a message that was not read yet.
func (w *readAhead) skipSeq(seq int64) {
	if w.skipped == nil {
		w.skipped = map[int64]bool{}
	}
	w.skipped[seq] = true
}

// removeSeq removes a message, and reports whether the message was in the read-ahead.
func (w *readAhead) removeSeq(seq int64) bool {
	for _, e := range w.entries {
		if e.Seq() == seq {
			w.removeEntry(e)
			return true
		}
	}
	return false
}

// takeAppends adds messages that this process has appended, if they directly follow the messages
// that were read. It reports whether it added any. It adds none while hasCaughtUp is false: an
// earlier holder may have delivered or cancelled a message that was appended before this holder
// raised the fence. It also adds none if many messages wait in memory: the holder reads the others
// from the log when it needs them.
func (w *readAhead) takeAppends() bool {
	if w.isCautious || !w.hasCaughtUp || len(w.entries) >= pageMax {
		return false
	}

	offered := w.appends.takeFrom(w.nextRead, w.store)
	for _, e := range offered {
		w.addEntry(e)
	}

	w.trimBodies()

	return len(offered) > 0
}

// trimBodies drops the bodies of the last messages if the lane has more bodies in memory than its
// share. They are read again before they are sent.
func (w *readAhead) trimBodies() { trimBodies(w.entries, w.memory.shareOf(pageBytes)) }

// trimBodies leaves the bodies of the first messages, up to the given bytes.
func trimBodies(entries []*lane.Entry, most int) {
	bytes := 0
	for _, e := range entries {
		if !e.HasBody() {
			continue
		}
		if bytes += e.Message.Size; bytes > most {
			e.DropBody()
		}
	}
}

// onWake is called when the lane may have a new message. If takeAppends finds no message of this
// process, another process may have appended one, so the log has to be read.
func (w *readAhead) onWake() {
	if !w.takeAppends() {
		w.markMore()
	}
}

// markMore records that the log may have messages that were not read.
func (w *readAhead) markMore() { w.isAtEnd, w.isStale = false, true }

func (w *readAhead) removeEntry(e *lane.Entry) {
	for i, other := range w.entries {
		if other == e {
			w.entries = append(w.entries[:i], w.entries[i+1:]...)
			return
		}
	}
}

const (
	// recentAppendsMax and recentAppendsBytes bound the number and the total size of the messages
	// in recentAppends. Usually the holder takes a message within milliseconds. A slower holder
	// reads pages of the log instead.
	recentAppendsMax   = 64
	recentAppendsBytes = 1 << 20
)

// recentAppends has messages that this process has just appended to a lane. If this process is also
// the holder of the lane, it need not read these messages from storage. A message that is missing
// here is read from the log. recentAppends is safe for concurrent use.
type recentAppends struct {
	mu      sync.Mutex
	bySeq   map[int64]weir.Message
	bytes   int                 // size of all bodies in bySeq
	room    *semaphore.Weighted // of all lanes of the process; see laneMemory
	isFresh bool                // messages were added after the last call of takeFresh

	highest int64 // the highest sequence number of a message of this process
	foreign foreignMessage
}

// foreignMessage is the last message that another process has appended, as far as this process
// knows.
type foreignMessage struct {
	seq    int64
	seenAt time.Time // zero = there is none
}

// addMessages keeps messages for takeFrom. If there is no room for a message, addMessages drops all
// earlier messages.
func (r *recentAppends) addMessages(messages []weir.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isFresh = true
	for _, m := range messages {
		r.highest = max(r.highest, m.ID.Seq)
		if m.ID.Seq == r.foreign.seq {
			// the holder read the message before the append had its answer
			r.foreign = foreignMessage{}
		}

		if r.bySeq == nil || len(r.bySeq) >= recentAppendsMax ||
			r.bytes+m.Size > recentAppendsBytes {
			r.dropAll()
		}

		if m.Size <= recentAppendsBytes && r.room.TryAcquire(int64(m.Size)) {
			r.bySeq[m.ID.Seq] = m
			r.bytes += m.Size
		}
	}
}

// forgetAll drops all messages. It is called when another process holds the lane: this process will
// not send them, and other lanes need the room.
func (r *recentAppends) forgetAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropAll()
}

// noteRead is called when the holder has read messages of the log. The argument is the last
// sequence number.
func (r *recentAppends) noteRead(seq int64, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if seq > r.highest {
		r.foreign = foreignMessage{seq, now}
	}
}

// foreignSeenAt returns when the holder last read a message of another process. It is zero if it
// saw none.
func (r *recentAppends) foreignSeenAt() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.foreign.seenAt
}

// takeFresh reports whether messages were added after the last call of takeFresh.
func (r *recentAppends) takeFresh() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	isFresh := r.isFresh
	r.isFresh = false
	return isFresh
}

// takeFrom removes and returns the messages with consecutive sequence numbers from seq on. It drops
// messages with lower numbers. The store is that of the lane.
func (r *recentAppends) takeFrom(seq int64, store *lane.Store) []*lane.Entry {
	r.mu.Lock()
	defer r.mu.Unlock()

	for s := range r.bySeq {
		if s < seq {
			r.dropSeq(s)
		}
	}

	var entries []*lane.Entry
	for ; ; seq++ {
		m, ok := r.bySeq[seq]
		if !ok {
			return entries
		}
		entries = append(entries, store.NewEntry(m))
		r.dropSeq(seq)
	}
}

// dropAll is called when there is no room for a further message.
func (r *recentAppends) dropAll() {
	r.room.Release(int64(r.bytes))
	r.bySeq, r.bytes = map[int64]weir.Message{}, 0
}

func (r *recentAppends) dropSeq(seq int64) {
	r.room.Release(int64(r.bySeq[seq].Size))
	r.bytes -= r.bySeq[seq].Size
	delete(r.bySeq, seq)
}
