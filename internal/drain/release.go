package drain

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"weir/internal/lane"
)

// A message that falls due is released: taken from the scheduled messages and put into its key's
// line, behind all that was filed before that moment (see places.go). That is written before the
// message is sent, so that whoever comes after a crash finds the same order; and it is written
// ahead by the time that storage takes (lead.go), so that the message can be sent at the very
// moment.
//
// Releases go on beside the sending. Goroutines read the messages, the run decides their
// places between two requests or during one, and the committer writes them, in the order of
// all its changes. From the decision until the answer the key is shut: nothing of it is sent,
// put aside or decided, so a release that is refused can be taken back.

const (
	// releaseMax is how many are released at once: each takes four operations of a
	// transaction, and some are left for what was delivered meanwhile.
	releaseMax = 20
	// maxReading and maxWriting bound how many reads and transactions are under way at a time. A
	// read that is not full goes alone: messages that fall due meanwhile share the next one.
	maxReading, maxWriting = 3, 2
	// maxRipe bounds the messages that were read and are not decided.
	maxRipe = 4 * releaseMax
)

// releases are the scheduled messages on their way into their keys' lines.
type releases struct {
	reading []chan ripened // in order of their moments
	ripe    []ripe         // read, and not decided
	writing []*writing
	shut    map[string]bool // hashes of the keys of what is being written
	awaits  map[string]bool // hashes of the keys whose first held message waits for a release
	known   int             // raised by each answer that may end a message's wait for a release
	err     error           // of a read; the run ends with it
}

// writing is a release that the committer has.
type writing struct {
	entries []ripe
	began   time.Time
	undo    func()
	answer  chan written
}

// written is the committer's answer to it.
type written struct {
	at  time.Time
	err error
}

// advance takes releases a step further, without waiting. From the first failed read on it
// returns that read's error.
func (r *run) advance(ctx context.Context) error {
	r.takeAgenda()
	r.takeRipened()
	r.takeWritten()
	if r.releases.err == nil {
		r.decideReleases()
		r.readRipe(ctx)
	}
	return r.releases.err
}

// isShut reports whether nothing of a key may be decided, because a release of it is being written,
// or may go in front.
func (r *run) isShut(keyHash string) bool {
	return r.releases.shut[keyHash] || r.releases.awaits[keyHash]
}

// await notes that a key's first held message waits for a release. It is looked at again after
// the next answer.
func (rs *releases) await(keyHash string) {
	if rs.awaits == nil {
		rs.awaits = map[string]bool{}
	}
	rs.awaits[keyHash] = true
}

// isUnderWay reports whether a message is on its way into its key's line.
func (rs *releases) isUnderWay() bool { return len(rs.reading)+len(rs.ripe)+len(rs.writing) > 0 }

// learn notes an answer that may end a message's wait for a release.
func (rs *releases) learn() {
	rs.known++
	clear(rs.awaits)
	rs.shut = map[string]bool{}
	for _, w := range rs.writing {
		for _, p := range w.entries {
			rs.shut[p.entry.KeyHash()] = true
		}
	}
}

// awaitsRelease reports whether a message must wait because one that fell due before it was filed,
// or before it fell due itself, has no place yet: they may be of one key.
func (r *run) awaitsRelease(e *lane.Entry) bool {
	if r.sealed {
		return false
	}
	due, any := r.agenda.undecided()
	if !any {
		return false
	}
	if !r.agenda.known {
		return r.ripens() // it has to be read first
	}
	if at := e.Message.DueAt; !at.IsZero() {
		return due.Before(at)
	}
	return !due.After(e.Message.AcceptedAt)
}

// takeRipened takes in messages that were read, in the order in which the reads began.
func (r *run) takeRipened() {
	rs := &r.releases
	for len(rs.reading) > 0 {
		select {
		case p := <-rs.reading[0]:
			rs.reading = rs.reading[1:]
			if rs.err = cmp.Or(rs.err, p.err); p.err != nil {
				continue
			}
			r.lead.measured(r.Now(), p.took, 0)
			r.bound(p.control)
			r.notice(p.control, p.asked)
			r.agenda.drop(p.gone...)
			rs.ripe = append(rs.ripe, p.entries...)
			rs.learn()
		default:
			return
		}
	}
}

// takeWritten takes in the answers to releases. A release is refused as a whole if one of its
// messages was cancelled or moved, and is made again without that one.
func (r *run) takeWritten() {
	rs, answered := &r.releases, false
	rs.writing = slices.DeleteFunc(rs.writing, func(w *writing) bool {
		select {
		case a := <-w.answer:
			answered = true
			r.lead.measured(r.Now(), 0, a.at.Sub(w.began))
			if gone, refused := lane.NoLongerDue(a.err); refused {
				w.undo()
				r.agenda.drop(gone)
				again := slices.DeleteFunc(w.entries, func(p ripe) bool { return p.due == gone })
				r.agenda.mark(begun, duesOf(again)...)
				rs.ripe = append(again, rs.ripe...)
			} else {
				r.agenda.drop(duesOf(w.entries)...)
			}
			return true
		default:
			return false
		}
	})
	if answered {
		rs.learn()
	}
}

// finishReleases waits until nothing is being written.
func (r *run) finishReleases(ctx context.Context) error {
	err := r.committer.waitBelow(ctx, 1)
	r.takeWritten()
	return err
}

// decideReleases gives places to ripe messages, and hands their release to the committer.
func (r *run) decideReleases() {
	for len(r.releases.writing) < maxWriting && !r.sealed {
		batch := r.pickRipe()
		if len(batch) == 0 {
			return
		}
		ch, undo := r.releasing(batch)
		r.agenda.mark(decided, duesOf(batch)...)
		w := &writing{entries: batch, began: r.Now(), undo: undo, answer: make(chan written, 1)}
		r.releases.writing = append(r.releases.writing, w)
		for _, p := range batch {
			r.releases.shut[p.entry.KeyHash()] = true
		}
		r.committer.release(ch, func(err error) {
			w.answer <- written{r.Now(), err}
			r.wakeRun()
		})
	}
}

// pickRipe takes out the messages that may be decided: none of a key of which a message is being
// written or sent, and none that would go in front of others of its key.
func (r *run) pickRipe() (batch []ripe) {
	if len(r.releases.ripe) == 0 {
		return nil
	}
	shut := maps.Clone(r.releases.shut)
	shut[r.sending] = true
	r.releases.ripe = slices.DeleteFunc(r.releases.ripe, func(p ripe) bool {
		key := p.entry.KeyHash()
		if shut[key] || len(batch) == releaseMax {
			shut[key] = true
			return false
		}
		batch = append(batch, p)
		return true
	})
	return batch
}

// releasing makes the change, and in memory what it does to the blocks; undo takes the
// latter back.
func (r *run) releasing(batch []ripe) (ch *lane.Change, undo func()) {
	ch = &lane.Change{}
	before := map[string]*lane.KeyBlock{}
	room := r.bodyRoom()
	for _, p := range batch {
		e, next := p.entry, max(p.place, r.taken)
		id := e.BlockID()
		b := r.blocks[id]
		if _, saved := before[id]; !saved {
			before[id] = b
		}
		ch.Release(e, next, &r.placed)
		b = r.joinBlock(b, e, next, &room)
		r.blocks[id] = b
		if e.Message.Skip {
			// Its block holds back nothing; but what comes behind it waits until it was tried.
			b.LogWaitsFrom, b.IsParked, b.ReleasedAt, b.NextAt = next, false, r.placed, r.inLine()
		}
		ch.SaveBlock(*b)
	}
	r.position(ch)
	return ch, func() {
		for id, b := range before {
			if b == nil {
				delete(r.blocks, id)
			} else {
				r.blocks[id] = b
			}
		}
	}
}

// joinBlock returns a block, which may be nil, as it is when a released message has joined its line.
func (r *run) joinBlock(b *lane.KeyBlock, e *lane.Entry, next int64, room *bodyRoom) *lane.KeyBlock {
	if b == nil {
		return &lane.KeyBlock{ID: e.BlockID(), KeyHash: e.KeyHash(), NextAt: e.Message.DueAt, From: next,
			First: room.keep(e), Mixed: true, HeldCount: 1}
	}
	joined := *b
	switch {
	case goesFirst(b, e, next):
		joined.First, joined.Rest, joined.From = nil, nil, 0
	case b.Whole() && b.Last().AsHeld().OrderPos < e.AsHeld().OrderPos:
		if kept := room.keep(e); kept != nil {
			joined.Follow(kept)
		}
	}
	joined.Mixed = true
	joined.HeldCount++
	return &joined
}

// goesFirst reports whether a message that is released may stand in front of a block's line.
func goesFirst(b *lane.KeyBlock, e *lane.Entry, next int64) bool {
	if b.First != nil {
		return e.AsHeld().OrderPos < b.First.AsHeld().OrderPos
	}
	return next < b.From
}

// ripens reports whether a release is to begin now: the last read of the log may have brought a
// message that is due.
func (r *run) ripens() bool {
	at := r.nextRelease()
	return !at.IsZero() && !at.After(r.Now())
}

// nextRelease returns when the next release is to begin; zero = none is known.
func (r *run) nextRelease() time.Time {
	if r.sealed {
		return time.Time{}
	}
	if !r.agenda.known {
		if r.agenda.next.IsZero() {
			return time.Time{}
		}
		return r.agenda.next.Add(-leadMax - r.lead.length()) // the number of those due then has to be known in time
	}
	var at time.Time
	r.eachTurn(func(due, begin time.Time) {
		if at.IsZero() || begin.Before(at) {
			at = begin
		}
	})
	return at
}

// eachTurn goes through the turns in which scheduled messages will be released, releaseMax at a
// time: f gets the due moment of the first message of a turn, and the moment at which its release
// is to begin. If many are due at one moment, the last ones wait for the turns of the first.
func (r *run) eachTurn(f func(due, begin time.Time)) {
	lead := r.lead.length()
	wait := r.agenda.untouched()
	for i := 0; i < len(wait); i += releaseMax {
		turns := time.Duration(i/releaseMax) * lead / (maxReading + 1)
		f(wait[i].At, wait[i].At.Add(-min(lead+turns, leadMax)))
	}
}

// readRipe begins to read the messages of the next release.
func (r *run) readRipe(ctx context.Context) {
	for r.ripens() {
		if !r.agenda.known {
			r.readAgenda(ctx)
			return
		}
		dues := r.turn()
		if n := len(r.releases.reading); n > 0 && (n >= maxReading || len(dues) < releaseMax) || len(r.releases.ripe) >= maxRipe {
			break
		}
		r.agenda.mark(begun, dues...)
		r.ripen(ctx, dues)
	}
	if a := &r.agenda; a.more && len(a.untouched()) < agendaMax/4 && a.next.Before(r.Now().Add(leadMax)) {
		r.readAgenda(ctx)
	}
}

// turn returns the messages to release now, and a few that follow, which share their transaction.
func (r *run) turn() (dues []lane.DueTime) {
	now := r.Now()
	by := now.Add(min(r.lead.length()*3/2, leadMax))
	r.eachTurn(func(due, begin time.Time) {
		if !begin.After(now) && due.After(by) {
			by = due
		}
	})
	for _, d := range r.agenda.untouched() {
		if len(dues) == releaseMax || d.At.After(by) {
			break
		}
		if r.agenda.progress[d] == untouched {
			dues = append(dues, d)
		}
	}
	return dues
}

// readAgenda begins to read the earliest scheduled messages, unless a read is under way.
func (r *run) readAgenda(ctx context.Context) {
	if r.agenda.reading != nil {
		return
	}
	answer := make(chan agendaPage, 1)
	r.agenda.begin(answer)
	go func() {
		dues, more, err := r.Store.ReadDueTimes(ctx, r.lane, agendaMax)
		answer <- agendaPage{dues, more, err}
		r.wakeRun()
	}()
}

// takeAgenda takes in the scheduled messages that were read.
func (r *run) takeAgenda() {
	select {
	case p := <-r.agenda.reading: // never, if nothing is read
		if r.releases.err = cmp.Or(r.releases.err, p.err); p.err == nil {
			r.agenda.learn(p)
			r.releases.learn()
		}
	default:
	}
}

// reached reports whether all that goes before a block's first message has gone: the log was
// read up to its place, and nothing of its key from before is left of it.
func (r *run) reached(b *lane.KeyBlock) bool {
	return max(b.From, b.Wait) <= r.window.readOf(b.KeyHash)
}

// scheduled is the moment before which nothing falls due; zero = nothing does. In a
// sealed lane nothing does: it is released in the epoch that follows, or after Unseal,
// which touches head.
func (r *run) scheduled() time.Time {
	if r.sealed {
		return time.Time{}
	}
	return r.agenda.nextDue()
}

// nextDue is when the next of what waits below the cursor is due; zero = nothing waits.
func (r *run) nextDue() time.Time {
	var held time.Time
	r.blocks.eachFirst(func(b *lane.KeyBlock) { held = sooner(held, r.nextOf(b)) })
	return sooner(held, r.scheduled())
}

// nextStir is the next moment at which the clock alone gives this holder something to do: a
// block that waits for the log, for what is being written, or for others to have their turn,
// needs no waking.
func (r *run) nextStir() time.Time {
	var held time.Time
	r.blocks.eachFirst(func(b *lane.KeyBlock) {
		if r.reached(b) && !r.isShut(b.KeyHash) && !r.gate.avoid[b.KeyHash] {
			held = sooner(held, r.nextOf(b))
		}
	})
	return sooner(held, r.nextRead())
}

// nextRead returns when the clock alone lets the next release begin; zero = it does not.
func (r *run) nextRead() time.Time {
	busy := len(r.releases.reading) > 0 || len(r.releases.ripe) >= maxRipe
	if busy || !r.agenda.known && r.agenda.reading != nil {
		return time.Time{}
	}
	return r.nextRelease()
}

// sooner returns the earlier of two moments; zero = never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

func duesOf(entries []ripe) []lane.DueTime {
	dues := make([]lane.DueTime, len(entries))
	for i, p := range entries {
		dues[i] = p.due
	}
	return dues
}
