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

// violation is a broken promise. docs/simulation.md lists the kinds.
type violation struct{ kind, text string }

// counts has the numbers of events in one or several runs.
type counts struct {
	Messages, Requests, Repeats, Delivered, Dead,
	Superseded int
	Crashes, Deaths, Standstills, Cuts, Stops, Faults, Takeovers, Fenced,
	LateWriters int
	Traps, Blobs, Packed int
	Recurred, Runs, Punctual, Scheduled, Released, InTime, Moved, Cancelled,
	CancelledAtOnce int
	Replayed, Refused, Edited, Paused, Resumed int
	Forgotten, Erased, Redacted, Discarded     int
	Bulks, BulkReplayed, Blockers              int
	Flowed, Missing                            int
	Recovered, AwayEnds, Ended, Braked, Parts  int
	Elsewhere                                  int // messages that the holder had to find
	Crowded, Turned, Removed, Kept, Items      int
	Postponed, Told, ToldAgain, Linearized, HandlerDeaths, IdleEnds, ScaledOut, ScaledIn,
	OrderlyEnds, NamedNone, Commits,
	MostTickets int
	// LongestSweep is the duration of the longest sweep in runs of TestLarge. It leaves out sweeps
	// during which storage operations could fail.
	LongestSweep time.Duration
	// LongestStand is the longest time for which a lane had work but no request at the CMS. Only
	// runs of TestMoves measure it.
	LongestStand time.Duration
	// Longest is the longest time from the end of the faults until all work was done.
	Longest time.Duration
}

// addAll adds the counts of another run. For fields whose names begin with Longest or Most it keeps
// the larger value.
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
	id          weir.ID
	key         string
	item        string // the folded key: messages with the same one have one order
	contract    string
	skip        bool
	edit        bool // the message's contract has supersede, so the message has a version
	version     weir.Version
	versionText string
	// a holder forgot the key's newest version, so this version does not count any more
	forgotten bool
	// a later message of the key was sent first; allowed, because this version was outdated
	passed  bool
	erasing bool   // an operator has asked to erase the message
	erased  bool   // the content of the message was erased
	body    string // body as stored, or the name of the body's blob
	idem    string // the row key of the message's idempotency key; empty = none
	number  int    // number of the submission, read from a request's body; -1 = not known yet
	begun   bool   // a request for the message has reached the CMS
	taken   bool   // a process got the answer that the CMS took the message
	// the highest fence of a request whose sender got a whole answer with status 200
	under int64
	final weir.Stage // the final stage, except dead; empty = not known
	now   weir.Stage // the stage in storage; empty = not read after the last write to the row
	gone  bool       // retention has removed the message
	scheduling
	replaying
	discarding
	trying
	turn
}

// laneState is a lane as the checker knows it.
type laneState struct {
	log     []*filed // in the order of sequence numbers; log[0] has the number 1
	fence   int64    // fence of the last holder
	takenAt time.Time
	takenBy *process // the last holder
	taken   int      // number of messages in the log when takenBy took the lane
	commit  int64    // number of the last commit under fence
	nonce   string   // nonce of the last holder
	last    lane.Control
	// requests that the CMS works on, except the look-ups of chains
	active     []*request
	askedUntil time.Time              // end of the last pause for which the CMS has asked
	busy       time.Time              // when the CMS last finished a request of the lane
	pauses     map[string]storedPause // operators' pauses in storage, by row key
	// open requests to forget a version, by the hash of key and contract
	forgets map[string]bool
	// forgottenIDs has the remembered ids that a holder forgot. An entry stays until a chain looks
	// the item up. The map's keys are hashes of ordering key and contract. The value is the fence
	// of the holder that forgot the id.
	forgottenIDs map[string]int64
	crowd        crowding
	back         int64 // number of dead messages that the commit under check replays or discards
	turns
}

// checker is called at each event of a run, and checks Weir's promises.
type checker struct {
	w     *world
	used  []time.Time // begins of requests; only in worlds of rates
	store *lane.Store // reads storage without faults and delays

	mu        sync.Mutex
	first     *violation
	disturbed time.Time // when the last fault began or ended
	counts    counts
	lanes     map[int]*laneState
	expected  []*submission
	snapshots int
	// name of the blob that storage refuses to remove; empty = not chosen yet
	stuck     string
	takenSent time.Time // when the last request was sent that the CMS took
	// stages in the events that receivers got, by address and message id
	told map[string]map[weir.Stage]bool
	// requests to receivers without a row written since, by event
	tries    map[string]int
	history  chronicle
	runs     []weir.ID       // messages of the runs by hand that were answered
	entries  map[int]audited // entries of the audit log by their numbers
	erasures []*erasure      // in worlds of audits
	parts    filedParts      // in worlds of batches
}

func newChecker(w *world) *checker {
	return &checker{w: w, lanes: map[int]*laneState{}, told: map[string]map[weir.Stage]bool{},
		tries: map[string]int{}}
}

// reportViolation records the first violation of a run. Later violations are mostly consequences of
// the first one, so they go only into the trace.
func (c *checker) reportViolation(kind, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addViolation(kind, format, args...)
}

// addViolation is reportViolation for a caller that holds mu. It does nothing in the run of a
// mutant whose name ends with the constant "outside": only the check in histories_test.go has to
// catch such a mutant.
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
	if l := c.laneOf(id.Lane); id.Seq < 1 || id.Seq > int64(len(l.log)) ||
		l.log[id.Seq-1].id != id {
		c.addViolation("lost", "submission %d was answered with %+v, which is not in the log",
			s.number, id)
	}

	if !s.id.IsZero() && s.id != id {
		c.addViolation("twice", "submission %d was answered with %+v and with %+v",
			s.number, s.id, id)
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

// applyTransaction lets a transaction take effect, and checks its result. The parameter call is the
// result of weir.CallOf in the context of the transaction.
func (c *checker) applyTransaction(p *process, call, partition string,
	ops []storage.Op) ([]storage.ETag, error) {
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
		c.w.trace.addLine("%s writes %s of %s: %v", p.name, withoutRandom(ops[0].Key),
			partition, err)
		return etags, err
	}

	c.w.trace.addLine("%s writes %s of lane %d with %d rows: %v", p.name, withoutRandom(ops[0].Key),
		number, len(ops)-1, err)

	if err != nil {
		if ops[0].Key == "!tail" && storage.Is(err, storage.Precondition) {
			c.counts.Fenced++
		}
		return etags, err
	}

	c.checkSecrets(p, ops)
	c.checkRewritten(p, ops)
	l := c.laneOf(number)
	l.forgetStages(ops)
	if ops[0].Kind == storage.Delete {
		c.checkRemoved(p, l, ops, gone)
	}

	switch ops[0].Key {
	case "!head":
		if _, ok := ops[0].Values["Touched"]; ok {
			c.noteRequests(l, call, ops)
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
			if strings.HasPrefix(op.Key, "b_") && op.Values["MissingSince"] != nil {
				c.counts.Missing++
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
		f := &filed{id: weir.ID{Epoch: c.store.Epoch, Lane: number, Seq: int64(len(l.log) + 1),
			Nonce: text("Nonce")},
			key: text("Key"), item: c.store.Fold.Fold(text("Key")), contract: text("Contract"),
			skip: skip,
			edit: edit, number: -1, body: string(body), idem: text("Idem")}

		if blob := text("Blob"); blob != "" {
			f.body = blob
			c.counts.Blobs++
		}

		if edit {
			f.versionText = text("Version")
			f.version, _ = weir.ParseVersion(f.versionText)
		}

		f.accepted, _ = v["AcceptedAt"].(time.Time)
		f.filed = time.Now()
		if f.due, _ = v["DueAt"].(time.Time); !f.due.IsZero() {
			f.waits, f.dues, f.changed = true, append(f.dues, f.due), time.Now()
			c.counts.Scheduled++
		}

		if op.Key != "m_"+lane.OrderPos(f.id.Seq) {
			c.addViolation("books", "lane %d: %s was filed where %d was next", number,
				op.Key, f.id.Seq)
		}

		l.log = append(l.log, f)

		if batch := text("Batch"); batch != "" {
			number, _ := v["Part"].(int64)
			c.checkPart(f, batch, int(number))
		}
	}
}

// checkCommitted checks that only the newest holder writes tail, and that each commit takes effect
// once.
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
		c.checkPauseEnded(p, l, number, v)

	case fence == l.fence && nonce == l.nonce &&
		commit > l.commit: // a refused commit leaves a gap in the numbers
	default:
		c.addViolation("fence",
			"%s committed %d under fence %d in lane %d, where %d under %d was last", p.name, commit,
			fence, number, l.commit, l.fence)
	}

	l.fence, l.commit = fence, commit
}

// checkBooks checks that the control rows match the log, and that no count falls. Only the number
// of dead messages may fall, because of replays and discards.
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
		c.addViolation("books", "lane %d: head says %d messages, %d were filed", number,
			now.Head.Next-1, len(l.log))
	case now.WaitingCount() < 0, now.Tail.Cursor > now.Head.Next,
		now.Tail.Cursor < before.Tail.Cursor:
		c.addViolation("books", "lane %d: %+v after %+v", number, now, before)
	case n.Delivered < b.Delivered || n.Dead < b.Dead-l.back || n.Cancelled < b.Cancelled ||
		n.Superseded < b.Superseded || n.Discarded < b.Discarded:
		c.addViolation("books", "lane %d: counters %+v after %+v", number, n, b)
	case n.Delivered > b.Delivered && now.Tail.LastDeliveredAt.IsZero():
		c.addViolation("report",
			"lane %d: %d messages were delivered, and tail has no time of a delivery", number,
			n.Delivered)
	}

	l.back = 0
	if c.snapshots++; c.snapshots%16 == 0 {
		c.recountLane(l, number, now)
	}
}

// recountLane counts the messages of a lane by their rows, and compares the numbers with tail. It
// also checks the other rows of the lane.
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
		c.addViolation("books", "lane %d: tail counts %+v, the rows say %+v", number,
			now.Tail.Counts, n)
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

	// a dead message can still be replayed or discarded
	if st.Stage.Final() && st.Stage != weir.Dead {
		f.final = st.Stage
	}

	f.now = st.Stage

	return st.Stage
}

// forgetStages clears the known stage (filed.now) of each message whose row was written by a
// transaction. If the transaction wrote a packed row (d_), forgetStages clears the known stages of
// all messages, because a packed row makes many messages delivered.
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
