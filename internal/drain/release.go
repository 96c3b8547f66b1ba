package drain

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/weir"
)

// What falls due is released: taken from the scheduled messages and put into its key's
// line, behind all that was filed before that moment (see places). That is written before the message is
// sent, so that whoever comes after a crash finds the same order; and it is written a
// little ahead, so that at the moment itself nothing is left to do but to send.

const (
	// releaseLead is how long before its time a message is released: time for a read and a
	// transaction. What is filed in between comes behind it, and to cancel it takes a wish.
	releaseLead = 50 * time.Millisecond
	// soon is so near that nothing which takes storage's time is begun before.
	soon = releaseLead / 2
	// releaseMax is how many are released at once: each takes four operations of a
	// transaction.
	releaseMax = 20
	// ripeBody is the size up to which bodies of what is released are fetched ahead.
	ripeBody = 256 << 10
)

// releaseDue releases whatever falls due within the lead.
func (r *run) releaseDue(ctx context.Context) error {
	for {
		if !r.ripens() {
			return nil
		}
		if !r.agenda.known {
			dues, more, err := r.Store.Dues(ctx, r.lane, agendaMax)
			if err != nil {
				return err
			}
			r.agenda.learn(dues, more)
			continue
		}
		if err := r.release(ctx, r.agenda.until(r.Now().Add(releaseLead), releaseMax)); err != nil {
			return err
		}
	}
}

// ripens says whether something is to be released now: what was read of the log last may
// have told of it.
func (r *run) ripens() bool {
	next := r.scheduled()
	return !next.IsZero() && !r.Now().Before(r.releaseAt(next))
}

// releaseAt is when to begin to release what falls due next. A message that was released
// already and falls due meanwhile goes first, where the lead leaves time for both: while a
// release is under way nothing is sent.
func (r *run) releaseAt(next time.Time) time.Time {
	at := next.Add(-releaseLead)
	until := at.Add(soon)
	for _, b := range r.blocks {
		if b.Next.After(at) && b.Next.Before(until) && r.reached(b) && !r.keyPaused(b.KeyHash, until) {
			return until
		}
	}
	return at
}

// release releases messages in a transaction of their own: it is refused when one of them
// was cancelled or moved, and then made again without it.
func (r *run) release(ctx context.Context, dues []lane.Due) error {
	asked := r.Now()
	control, entries, err := r.ripe(ctx, dues)
	if err != nil {
		return err
	}
	r.notice(control, asked)
	r.bound(control)
	places, err := r.places(ctx, entries, control.Head.Next)
	if err != nil {
		return err
	}
	for len(entries) > 0 {
		ch, undo := r.releasing(entries, places, control.Head.Next)
		err := r.committer.try(ctx, ch)
		if err == nil {
			break
		}
		undo()
		gone, ok := lane.NotDue(err)
		if !ok {
			return err
		}
		entries = slices.DeleteFunc(entries, func(e *lane.Entry) bool { return e.Seq() == gone.Seq })
	}
	r.agenda.drop(dues...)
	return nil
}

// ripe reads the lane's control rows and the messages, as far as they are scheduled for
// these moments still.
func (r *run) ripe(ctx context.Context, dues []lane.Due) (control lane.Control, entries []*lane.Entry, err error) {
	found := make([]*lane.Entry, len(dues))
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) { control, err = r.Store.Control(ctx, r.lane); return err })
	for i, d := range dues {
		group.Go(func() error {
			e, err := r.Store.ReadMessage(ctx, r.lane, d.Seq)
			if storage.Is(err, storage.NotFound) {
				return nil
			}
			if err != nil {
				return err
			}
			if e.Stage == weir.Scheduled && e.Due() == d {
				found[i] = e
			}
			return r.ripen(ctx, e)
		})
	}
	if err := group.Wait(); err != nil {
		return control, nil, err
	}
	for _, e := range found {
		if e != nil {
			entries = append(entries, e)
		}
	}
	return control, entries, nil
}

// ripen fetches a body of moderate size. One that cannot be had now is asked for again when
// its message is sent.
func (r *run) ripen(ctx context.Context, e *lane.Entry) error {
	if e.Message.Size > ripeBody {
		return nil
	}
	err := r.Store.LoadBody(ctx, e)
	if storage.Is(err, storage.NotFound) {
		return nil
	}
	return err
}

// releasing makes the change, and in memory what it does to the blocks; undo takes the
// latter back.
func (r *run) releasing(entries []*lane.Entry, places map[*lane.Entry]int64, end int64) (ch *lane.Change, undo func()) {
	ch = &lane.Change{}
	before := map[string]*lane.Block{}
	for _, e := range entries {
		id, next := e.Block(), places[e]
		b := r.blocks[id]
		if _, saved := before[id]; !saved {
			before[id] = b
		}
		if b == nil {
			b = &lane.Block{ID: id, KeyHash: e.KeyHash(), Next: e.Message.DueAt, From: next, First: e}
		} else {
			changed := *b
			b = &changed
			if next < end {
				b.First, b.From = nil, 0 // it may go before what was put there from the log
			}
		}
		b.Mixed = true
		b.Held++
		r.blocks[id] = b
		ch.Release(e, next, &r.placed)
		if e.Message.Skip {
			// Its block holds back nothing; but what comes behind it waits until it was tried.
			b.Ahead, b.Shelved, b.Next = next, false, r.placed
		}
		ch.Block(*b)
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

// ripenHeld fetches, while there is time, what the next block's retry needs. One at a time,
// the earliest first; what supersedes is chosen by its whole line, when its time has come.
func (r *run) ripenHeld(ctx context.Context) error {
	now := r.Now()
	b := r.blocks.due(now.Add(lane.DueLead), func(b *lane.Block) bool {
		return b.First == nil && b.Next.After(now) && !r.keyPaused(b.KeyHash, b.Next)
	})
	if b == nil || r.kept() >= keptMost {
		return nil
	}
	line, err := r.Store.Held(ctx, r.lane, b.ID, 1)
	if err != nil {
		return err
	}
	e, err := r.Store.ReadMessage(ctx, r.lane, line[0].Seq)
	if err != nil {
		return err
	}
	b.First = e
	return r.ripen(ctx, e)
}

// reached says whether all that goes before a block's first message has gone: the log was
// read up to its place, and nothing of its key from before is left of it.
func (r *run) reached(b *lane.Block) bool { return max(b.From, b.Wait) <= r.window.readOf(b.KeyHash) }

// scheduled is the moment before which nothing is to be released; zero = nothing is. In a
// sealed lane nothing falls due: it is released in the epoch that follows, or after Unseal,
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
	for _, b := range r.blocks {
		if next := r.nextOf(b); held.IsZero() || next.Before(held) {
			held = next
		}
	}
	scheduled := r.scheduled()
	if held.IsZero() || (!scheduled.IsZero() && scheduled.Before(held)) {
		return scheduled
	}
	return held
}

// nextStir is the next moment at which the clock alone gives this holder something to do: a
// block that waits for the log needs no waking.
func (r *run) nextStir() time.Time {
	var held time.Time
	for _, b := range r.blocks {
		if next := r.nextOf(b); (held.IsZero() || next.Before(held)) && r.reached(b) {
			held = next
		}
	}
	scheduled := r.scheduled()
	if !scheduled.IsZero() {
		scheduled = r.releaseAt(scheduled)
	}
	if held.IsZero() || (!scheduled.IsZero() && scheduled.Before(held)) {
		return scheduled
	}
	return held
}
