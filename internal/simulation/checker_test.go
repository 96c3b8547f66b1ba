package simulation_test

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/weir"
)

// violation is a broken promise.
type violation struct{ kind, text string }

// counts has the numbers of events of one or several runs.
type counts struct {
	Messages, Requests, Repeats, Delivered, Dead,
	Superseded int
	Crashes, Deaths, Standstills, Cuts, Stops, Faults, Takeovers, Fenced,
	LateWriters int
	Traps, Blobs, Packed int
	Recurred, Punctual, Scheduled, Released, InTime, Moved, Cancelled,
	CancelledAtOnce int
	Replayed, Refused, Edited, Paused, Resumed int
	Forgotten, Erased, Discarded               int
	Bulks, BulkReplayed                        int
	Crowded, Turned, Removed, Kept, Items      int
	Told, ToldAgain, Linearized, HandlerDeaths, IdleEnds, ScaledOut, ScaledIn, OrderlyEnds, NamedNone, Commits,
	MostTickets int
	// LongestSweep is the time of the longest sweep in large worlds, among the sweeps during which storage answered
	// each request.
	LongestSweep time.Duration
	// LongestStand is the longest time for which a lane had work but no request at the CMS, in worlds of moves.
	LongestStand time.Duration
	// Longest is the longest time from the end of the faults until all was at rest.
	Longest time.Duration
}

// addAll adds the counts of another run. For the fields Longest… and Most… it keeps the larger value.
func (c *counts) addAll(o counts) {
	sums, others := reflect.ValueOf(c).Elem(), reflect.ValueOf(o)
	for i := range sums.NumField() {
		sum, other := sums.Field(i), others.Field(i).Int()
		switch name := sums.Type().Field(i).Name; {
		case strings.HasPrefix(name, "Longest"), strings.HasPrefix(name, "Most"):
			sum.SetInt(max(sum.Int(), other))
		default:
			sum.SetInt(sum.Int() + other)
		}
	}
}

// filed is a message in the log, as the checker knows it.
type filed struct {
	id        weir.ID
	key       string
	skip      bool
	edit      bool // the message's contract has supersede, so the message has a version
	version   weir.Version
	forgotten bool       // the message's version was delivered and then forgotten
	passed    bool       // a later message of the key was sent while this one was older than the version delivered last
	erasing   bool       // an operator asks to erase the message
	erased    bool       // the content of the message was erased
	body      string     // body as stored, or the name of its blob
	idem      string     // the key of the message's idempotency row; empty = there is no such row
	number    int        // number of the submission, read from the body of a request; -1 = no request has shown it
	begun     bool       // a request for the message has reached the CMS
	taken     bool       // a process got the answer that the CMS took the message
	under     int64      // the highest fence among the processes that got that answer undamaged
	final     weir.Stage // the final stage, unless the message is dead; empty = no final stage is known
	now       weir.Stage // the stage in storage, if the checker has read it since the last write to the row; else empty
	gone      bool       // retention has removed the message
	scheduling
	replaying
	discarding
	turn
}

// laneState is a lane as the checker knows it.
type laneState struct {
	log     []*filed // by sequence number, from 1
	fence   int64    // fence of the last holder
	takenAt time.Time
	takenBy *process // the last holder
	taken   int      // number of messages in the log when takenBy took the lane
	commit  int64    // number of the last commit under fence
	nonce   string   // nonce of the last holder
	last    lane.Control
	active  []*request             // requests that the CMS works on, without look-ups
	busy    time.Time              // the end of the lane's last request at the CMS
	pauses  map[string]storedPause // pauses in storage, by row
	forgets map[string]bool        // requests to forget a version, by the hash of key and contract
	// forgottenIDs has the hashes of keys with their contracts. The remembered id of such a key was forgotten, and has
	// not been looked up since. The value is the fence of the holder that forgot the id.
	forgottenIDs map[string]int64
	crowd        crowding
	back         int64 // number of dead messages that the commit under check replays or discards
	turns
}

// checker is called for each event when it happens, and checks the promises.
type checker struct {
	w     *world
	store *lane.Store // reads storage without faults and delays

	mu        sync.Mutex
	first     *violation
	disturbed time.Time // when the last fault began or ended
	counts    counts
	lanes     map[int]*laneState
	expected  []*submission
	snapshots int
	stuck     string                         // blob of the body that storage refuses to remove; empty = none yet
	told      map[string]map[weir.Stage]bool // stages told to receivers, by the receiver's address and the message's id
	history   chronicle
}

func newChecker(w *world) *checker {
	return &checker{w: w, lanes: map[int]*laneState{}, told: map[string]map[weir.Stage]bool{}}
}

// reportViolation records the first violation. Later ones mostly follow from it.
func (c *checker) reportViolation(kind, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addViolation(kind, format, args...)
}

// addViolation is reportViolation for a caller that holds mu. It does nothing in a run with a mutant that the history
// alone must show.
func (c *checker) addViolation(kind, format string, args ...any) {
	if strings.HasSuffix(c.w.mutant, outside) {
		return
	}
	text := fmt.Sprintf(format, args...)
	c.w.trace.addLine("VIOLATION %s: %s", kind, text)
	if c.first == nil {
		c.first = &violation{kind, text}
	}
}

func (c *checker) hasNoViolation() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.first == nil
}

func (c *checker) addCounts(f func(*counts)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.counts)
}

func (c *checker) noteDisturbance() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.disturbed = time.Now()
}

func (c *checker) expectSubmission(s *submission) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expected = append(c.expected, s)
}

func (c *checker) noteAcknowledged(s *submission, r lane.Receipt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := r.Message.ID
	if l := c.laneOf(id.Lane); id.Seq < 1 || id.Seq > int64(len(l.log)) || l.log[id.Seq-1].id != id {
		c.addViolation("lost", "submission %d was answered with %+v, which is not in the log", s.number, id)
	}
	if !s.id.IsZero() && s.id != id {
		c.addViolation("twice", "submission %d was answered with %+v and with %+v", s.number, s.id, id)
	}
	s.id = id
}

func (c *checker) laneOf(n int) *laneState {
	l := c.lanes[n]
	if l == nil {
		l = &laneState{}
		c.lanes[n] = l
	}
	return l
}

// applyTransaction lets a transaction take effect, and checks its result.
func (c *checker) applyTransaction(p *process, partition string, ops []storage.Op) ([]storage.ETag, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var epoch, number int
	_, scanErr := fmt.Sscanf(partition, "%d.%d", &epoch, &number)
	var gone []removal
	if scanErr == nil && ops[0].Kind == storage.Delete {
		gone = c.findRemovals(c.laneOf(number), ops)
	}
	etags, err := c.w.account.Table().Transact(context.Background(), partition, ops)
	if scanErr != nil {
		c.w.trace.addLine("%s writes %s of %s: %v", p.name, withoutRandom(ops[0].Key), partition, err)
		return etags, err
	}
	c.w.trace.addLine("%s writes %s of lane %d with %d rows: %v", p.name, withoutRandom(ops[0].Key), number, len(ops)-1,
		err)
	if err != nil {
		if ops[0].Key == "!tail" && storage.Is(err, storage.Precondition) {
			c.counts.Fenced++
		}
		return etags, err
	}
	l := c.laneOf(number)
	l.forgetStages(ops)
	if ops[0].Kind == storage.Delete {
		c.checkRemoved(p, l, ops, gone)
	}
	switch ops[0].Key {
	case "!head":
		if _, ok := ops[0].Values["Touched"]; ok {
			c.noteRequests(l, ops)
			c.notePauses(l, ops)
			c.noteForgetRequests(l, ops)
			c.noteErasures(p, l, ops)
		} else {
			c.noteAppended(l, number, ops)
		}
	case "!tail":
		c.checkCommitted(p, l, number, ops[0].Values)
		l.back = c.checkGranted(p, l, ops) + c.checkDiscarded(p, l, ops)
		c.noteSettled(p, l, ops)
		c.checkForgotten(p, l, number, ops)
		for _, op := range ops {
			if strings.HasPrefix(op.Key, "d_") {
				c.counts.Packed++
			}
		}
	}
	before := l.last.Tail.Counts
	c.checkBooks(l, number)
	c.countTransaction(p, number, ops, countEnded(before), countEnded(l.last.Tail.Counts))
	return etags, nil
}

// noteAppended records the messages of an append.
func (c *checker) noteAppended(l *laneState, number int, ops []storage.Op) {
	for _, op := range ops[1:] {
		if op.Key[:2] != "m_" {
			continue
		}
		v := op.Values
		text := func(name string) string { s, _ := v[name].(string); return s }
		skip, _ := v["Skip"].(bool)
		edit, _ := v["Supersede"].(bool)
		body, _ := v["Body"].([]byte)
		f := &filed{id: weir.ID{Epoch: c.store.Epoch, Lane: number, Seq: int64(len(l.log) + 1), Nonce: text("Nonce")},
			key: text("Key"), skip: skip, edit: edit, number: -1, body: string(body), idem: text("Idem")}
		if blob := text("Blob"); blob != "" {
			f.body = blob
			c.counts.Blobs++
		}
		if edit {
			f.version, _ = weir.ParseVersion(text("Version"))
		}
		f.accepted, _ = v["AcceptedAt"].(time.Time)
		f.filed = time.Now()
		if f.due, _ = v["DueAt"].(time.Time); !f.due.IsZero() {
			f.waits, f.dues, f.changed = true, append(f.dues, f.due), time.Now()
			c.counts.Scheduled++
		}
		if op.Key != "m_"+lane.OrderPos(f.id.Seq) {
			c.addViolation("books", "lane %d: %s was filed where %d was next", number, op.Key, f.id.Seq)
		}
		l.log = append(l.log, f)
	}
}

// checkCommitted checks that only the newest holder writes tail, and that it makes each commit once.
func (c *checker) checkCommitted(p *process, l *laneState, number int, v map[string]any) {
	fence, _ := v["Fence"].(int64)
	commit, _ := v["Commit"].(int64)
	nonce, _ := v["Nonce"].(string)
	switch {
	case nonce == "":
		c.addViolation("outsider", "%s wrote tail of lane %d without holding it", p.name, number)
	case fence == l.fence+1 && commit == 0:
		l.nonce, l.takenAt = nonce, time.Now()
		c.counts.Takeovers++
		c.checkHandedOver(l, number)
		c.checkTakenOnce(p, l, number)
	case fence == l.fence && nonce == l.nonce && commit > l.commit: // a refused commit leaves a gap
	default:
		c.addViolation("fence", "%s committed %d under fence %d in lane %d, where %d under %d was last", p.name, commit,
			fence, number, l.commit, l.fence)
	}
	l.fence, l.commit = fence, commit
}

// checkBooks checks that the control rows fit the log, and that no count falls. One count may fall: replays and
// discards reduce the number of dead messages.
func (c *checker) checkBooks(l *laneState, number int) {
	now, err := c.store.ReadControl(context.Background(), number)
	if err != nil {
		c.addViolation("books", "%v", err)
		return
	}
	before, n := l.last, now.Tail.Counts
	l.recordPause(now)
	l.last = now
	b := before.Tail.Counts
	switch {
	case now.Head.Next-1 != int64(len(l.log)):
		c.addViolation("books", "lane %d: head says %d messages, %d were filed", number, now.Head.Next-1, len(l.log))
	case now.WaitingCount() < 0, now.Tail.Cursor > now.Head.Next, now.Tail.Cursor < before.Tail.Cursor:
		c.addViolation("books", "lane %d: %+v after %+v", number, now, before)
	case n.Delivered < b.Delivered || n.Dead < b.Dead-l.back || n.Cancelled < b.Cancelled ||
		n.Superseded < b.Superseded || n.Discarded < b.Discarded:
		c.addViolation("books", "lane %d: counters %+v after %+v", number, n, b)
	}
	l.back = 0
	if c.snapshots++; c.snapshots%16 == 0 {
		c.recountLane(l, number, now)
	}
}

// recountLane counts the messages of a lane by their rows, and compares the numbers with tail. It also checks the other
// rows of the lane.
func (c *checker) recountLane(l *laneState, number int, now lane.Control) {
	var n lane.Counts
	for _, f := range l.log {
		switch c.stageOf(f) {
		case weir.Delivered:
			n.Delivered++
		case weir.Dead:
			n.Dead++
		case weir.Superseded:
			n.Superseded++
		case weir.Cancelled:
			n.Cancelled++
		case weir.Discarded:
			n.Discarded++
		}
	}
	n.Cancelled -= c.checkRows(l, number, now)
	if n != now.Tail.Counts {
		c.addViolation("books", "lane %d: tail counts %+v, the rows say %+v", number, now.Tail.Counts, n)
	}
}

// stageOf returns a message's stage in storage.
func (c *checker) stageOf(f *filed) weir.Stage {
	if stage := cmp.Or(f.final, f.now); stage != "" {
		return stage
	}
	st, err := c.store.Messages().Status(context.Background(), f.id)
	if err != nil {
		c.addViolation("lost", "message %d of lane %d: %v", f.id.Seq, f.id.Lane, err)
		return ""
	}
	if st.Stage.Final() && st.Stage != weir.Dead { // a dead message can still be replayed or discarded
		f.final = st.Stage
	}
	f.now = st.Stage
	return st.Stage
}

// forgetStages clears the known stages of the messages whose rows were written by a transaction. A d_ row changes the
// stages of many messages.
func (l *laneState) forgetStages(ops []storage.Op) {
	for _, op := range ops {
		if strings.HasPrefix(op.Key, "d_") {
			for _, f := range l.log {
				f.now = ""
			}
		}
		place, of := strings.CutPrefix(op.Key, "m_")
		if seq, err := strconv.Atoi(place); of && err == nil && seq <= len(l.log) {
			l.log[seq-1].now = ""
		}
	}
}
