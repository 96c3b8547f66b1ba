package notify

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
)

const (
	// inHand is how much of what is due for one host is kept in memory; what a host that does
	// not keep up has due beyond that is put off for putOffMin to twice as long.
	inHand    = 50
	putOffMin = 30 * time.Second
	// readAtOnce is how many rows a look takes in. While requests are on their way, looks
	// are lookEvery apart.
	readAtOnce = 200
	lookEvery  = 500 * time.Millisecond
	// linger is how long an outbox is kept that has run empty: where messages flow, more comes
	// at once.
	linger = 2 * time.Second
)

// turn is one process's time with an outbox. Its methods are for one goroutine; only the
// requests go beside it.
type turn struct {
	*desk
	ctx   context.Context // the lease's
	note  storage.ETag    // as of before the last look; empty = the outbox was found empty
	fresh bool            // it was read just now
	stale bool            // there may be rows that were not seen
	left  bool            // some of what was in hand was not sent, and stays
	more  bool            // there are rows due that were not seen
	next  time.Time       // when the first falls due of those that are not
	seen  time.Time       // when it looked last

	queues  map[string][]item // by host
	known   map[string]bool   // rows in hand, until it is written what came of them
	busy    map[string]int    // requests on their way, by host
	served  map[string]int    // hosts with a queue: which request was the last to each
	serves  int               // requests so far
	flying  int
	answers chan answer

	gone  []lane.Mail // to be written
	later []lane.PutOff
}

// item is a mail with its way.
type item struct {
	lane.Mail
	to target
}

// answer is what came of a request.
type answer struct {
	item
	verdict
	err error // storage's: nothing was sent
}

func rowOf(m lane.Mail) string { return m.Event + " " + m.To }

// run sends until nothing is due any more.
func (t *turn) run() (time.Time, error) {
	err := t.empty()
	for t.flying > 0 { // after an error, or at the end of the process
		t.takeIn(<-t.answers)
	}
	if err == nil || len(t.gone)+len(t.later) > 0 {
		err = errors.Join(err, t.write())
	}
	return t.next, err
}

func (t *turn) empty() error {
	for t.ctx.Err() == nil && t.s.open.Err() == nil {
		if left := t.untilLook(); left == 0 {
			if err := t.look(); err != nil {
				return err
			}
		}
		t.launch()
		if err := t.write(); err != nil {
			return err
		}
		if t.flying > 0 {
			if err := t.await(); err != nil {
				return err
			}
			continue
		}
		if t.stale || t.more || t.queued() > 0 {
			continue
		}
		if over, err := t.idle(); over || err != nil {
			return err
		}
	}
	return context.Cause(t.ctx)
}

// untilLook is the time until it is to look for more; below 0 = there is no need to.
func (t *turn) untilLook() time.Duration {
	if !t.stale && !(t.more && t.queued() < readAtOnce) {
		return -1
	}
	if t.flying == 0 {
		return 0
	}
	return max(0, lookEvery-t.s.Now().Sub(t.seen))
}

func (t *turn) queued() int {
	n := 0
	for _, q := range t.queues {
		n += len(q)
	}
	return n
}

// look reads what is due and puts it into the hosts' queues.
func (t *turn) look() error {
	t.stale, t.seen = true, t.s.Now() // until it has seen them
	if !t.fresh {
		control, err := t.store.Control(t.ctx, t.at.lane)
		if err != nil {
			return err
		}
		t.note = control.Mail()
	}
	t.fresh = false
	if t.note == "" {
		t.stale, t.more, t.next = false, false, time.Time{}
		t.desk.note("", 0)
		return nil
	}
	box, err := t.store.Outbox(t.ctx, t.at.lane, t.s.Now(), min(readAtOnce+len(t.known), 1000))
	if err != nil {
		return err
	}
	t.stale, t.more, t.next = false, box.More, box.Next
	t.desk.note(t.note, box.Seen)
	for _, m := range box.Due {
		if !t.known[rowOf(m)] {
			t.known[rowOf(m)] = true
			t.sort(m)
		}
	}
	if t.more && len(t.later) > 0 {
		t.seen = time.Time{} // what is put off makes room in the next look, which need not wait
	}
	return nil
}

// sort puts a mail into its host's queue.
func (t *turn) sort(m lane.Mail) {
	to, ok := t.s.target(m)
	if !ok {
		t.s.Log.Warn("notify: receiver not in the settings any more, event dropped", "lane", t.at.lane, "seq", m.Seq, "stage", string(m.Stage))
		t.done(m, outcomeDropped)
		return
	}
	if q := t.queues[to.host]; len(q) < inHand {
		t.queues[to.host] = append(q, item{m, to})
		return
	}
	is := m
	is.Next = t.moment(putOffMin + time.Duration(t.s.Rand()*float64(putOffMin)))
	t.later = append(t.later, lane.PutOff{Was: m, Is: is})
}

// moment is a time from now as rows keep it.
func (t *turn) moment(in time.Duration) time.Time {
	return t.s.Now().Add(in).UTC().Truncate(time.Microsecond)
}

// launch sends what may go now. What waits for a host that is away counts as tried. The host
// that was served longest ago comes first, or slow ones would leave no room for others.
func (t *turn) launch() {
	longest := func(a, b string) int { return cmp.Or(cmp.Compare(t.served[a], t.served[b]), cmp.Compare(a, b)) }
	for _, host := range slices.SortedFunc(maps.Keys(t.queues), longest) {
		atOnce := t.s.hosts.open(host, t.s.Now())
		q := t.queues[host]
		for ; atOnce == 0 && len(q) > 0; q = q[1:] {
			t.failed(q[0].Mail, verdict{reason: "the receiver's host did not answer just now"})
		}
		for ; len(q) > 0 && t.busy[host] < atOnce && t.flying < perLane; q = q[1:] {
			if t.s.hosts.open(q[0].to.url, t.s.Now()) == 0 {
				t.failed(q[0].Mail, verdict{reason: "the receiver could not take events just now"})
				continue
			}
			t.busy[host]++
			t.flying++
			t.serves++
			t.served[host] = t.serves
			go t.send(q[0])
		}
		if t.queues[host] = q; len(q) == 0 {
			delete(t.queues, host)
			delete(t.served, host)
		}
	}
}

// send makes one request, in a goroutine of its own.
func (t *turn) send(i item) {
	a := answer{item: i}
	defer func() { t.answers <- a }()
	select {
	case t.s.slots <- struct{}{}:
		defer func() { <-t.s.slots }()
	case <-t.ctx.Done():
		a.cut = true
		return
	}
	if a.Body == nil {
		st, err := t.store.About(t.ctx, t.at.lane, a.Mail)
		if err == nil {
			a.ID, a.Body, err = aboutMessage(a.Mail, st)
		}
		if a.err = err; err != nil {
			return
		}
	}
	a.verdict = a.to.post(t.ctx, a.ID, a.Body, t.s.Now())
	if !a.cut {
		t.s.hosts.learn(a.to, a.verdict, t.s.Now())
	}
}

// await waits for an answer or for the next look, and takes in all answers that are there.
func (t *turn) await() error {
	var look <-chan time.Time
	if left := t.untilLook(); left >= 0 {
		timer := time.NewTimer(left)
		defer timer.Stop()
		look = timer.C
	}
	select {
	case <-look:
	case a := <-t.answers:
		if err := t.takeIn(a); err != nil {
			return err
		}
	case <-t.wake:
		t.stale = true
	case <-t.ctx.Done():
	case <-t.s.open.Done():
	}
	for {
		select {
		case a := <-t.answers:
			if err := t.takeIn(a); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// idle is where nothing is due. It removes the note of an outbox that is empty, lingers, and
// says whether the turn is over.
func (t *turn) idle() (over bool, err error) {
	if t.next.IsZero() && t.note != "" {
		quiet, err := t.store.NoMail(t.ctx, t.at.lane, t.note)
		if err != nil {
			return true, err
		}
		if t.stale = !quiet; t.stale {
			return false, nil
		}
		t.note = ""
		t.desk.note("", 0)
	}
	wait, due := linger, false
	if left := t.next.Sub(t.s.Now()); !t.next.IsZero() && left <= linger {
		wait, due = left, true
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		t.stale = due
		return !due, nil
	case <-t.wake:
		t.stale = true
		return false, nil
	case <-t.ctx.Done():
	case <-t.s.open.Done():
	}
	return true, nil
}
