package drain

import (
	"context"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/weir"
)

const (
	// lookEvery is how often a holder that has no time to linger reads the control rows, for
	// wishes and for what other instances have filed.
	lookEvery = time.Second
	// lookAgain is the pause after a read that failed and is waited for.
	lookAgain = 200 * time.Millisecond
	// wishPage is how many wishes are granted in one go.
	wishPage = 30
)

// looking reads the control rows beside the deliveries.
type looking struct {
	answer chan lane.Control // of the read under way; nil = none
	asked  time.Time         // when that was begun
	last   time.Time         // when control was last seen
}

// lookAround takes in a control read that has ended and begins the next when it is time. A
// read that fails is nobody's loss: the next comes in a second, and commits see by
// themselves whether the lane is still ours.
func (r *run) lookAround(ctx context.Context) {
	l := &r.looking
	if l.answer != nil {
		select {
		case c, ok := <-l.answer:
			r.looked(c, ok)
		default:
		}
		return
	}
	if r.Now().Sub(l.last) >= lookEvery {
		r.startLook(ctx)
	}
}

func (r *run) startLook(ctx context.Context) {
	now := r.Now()
	answer := make(chan lane.Control, 1)
	r.looking = looking{answer: answer, asked: now, last: now}
	go func() {
		defer close(answer)
		if c, err := r.Store.Control(ctx, r.lane); err == nil {
			answer <- c
		}
	}()
}

func (r *run) looked(c lane.Control, ok bool) {
	r.looking.answer = nil
	if ok {
		r.bound(c)
		r.notice(c, r.looking.asked)
	}
}

// awaitLook waits for a read of the control rows, a little longer where it fails.
func (r *run) awaitLook(ctx context.Context) error {
	if r.looking.answer == nil {
		r.startLook(ctx)
	}
	select {
	case c, ok := <-r.looking.answer:
		r.looked(c, ok)
		if !ok {
			r.sleepOrDone(ctx, lookAgain, nil)
		}
	case <-r.open.Done():
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

// notice takes in what the control rows say of pauses, and of work that is not in the
// window. asked is when they were asked for.
func (r *run) notice(c lane.Control, asked time.Time) {
	if asked.Before(r.pauses.known) || c.Head.Touched < r.touchedSeen {
		// A later read has overtaken this one: ours, or that of a former holder, who saw what
		// came since and has said so in tail. With these pauses tail would tell that nothing
		// goes on where nobody is to touch the lane again.
		return
	}
	r.learnPauses(c, asked)
	r.looking.last = r.Now()
	if c.Head.Next > r.window.nextRead {
		r.window.more()
	}
	r.touched = max(r.touched, c.Head.Touched)
	r.sealed = c.Head.Sealed
}

// grantWishes grants or refuses what was asked for up to the touch that was seen.
func (r *run) grantWishes(ctx context.Context) error {
	for r.touchedSeen != r.touched {
		target := r.touched
		// What is decided must be in storage, so that a message's row tells the truth.
		if err := r.committer.waitBelow(ctx, 1); err != nil {
			return err
		}
		wishes, err := r.Store.Wishes(ctx, r.lane, wishPage)
		if err != nil {
			return err
		}
		for _, w := range wishes {
			if err := r.grant(ctx, w); err != nil {
				return err
			}
		}
		if len(wishes) < wishPage {
			r.touchedSeen = target
			r.agenda.forget(r.Now())
		}
		ch := &lane.Change{}
		r.position(ch)
		r.committer.add(ch, true)
		if err := r.committer.waitBelow(ctx, 1); err != nil {
			return err
		}
		r.removeUnused(ctx)
	}
	return nil
}

// grant does what a wish asks for, or refuses it, and takes the wish away.
func (r *run) grant(ctx context.Context, w lane.Wish) error {
	ch := &lane.Change{}
	ch.Grant(w)
	var err error
	switch w.Kind {
	case lane.WishCancel:
		err = r.grantCancel(ctx, w, ch)
	case lane.WishReplay:
		err = r.grantReplay(ctx, w, ch)
	case lane.WishResume:
		r.log.Info("drain: pause of the cms lifted", "fence", r.fence, "delay", r.gate.pausedUntil.Sub(r.Now()))
		r.gate.resume()
	default: // of a later version of this program
		r.log.Error("drain: unknown wish refused", "seq", w.Seq, "err", "kind "+string(w.Kind))
	}
	if err != nil {
		return err
	}
	r.position(ch)
	r.committer.add(ch, true)
	return nil
}

// grantCancel cancels a message that is not final yet.
func (r *run) grantCancel(ctx context.Context, w lane.Wish, ch *lane.Change) error {
	if w.Done {
		return nil
	}
	e, err := r.Store.ReadMessage(ctx, r.lane, w.Seq)
	if storage.Is(err, storage.NotFound) { // final for so long that retention was here
		return nil
	}
	if err != nil {
		return err
	}
	waits, err := r.withdraw(ctx, e, ch)
	if err != nil {
		return err
	}
	r.log.Info("drain: cancel asked", "message_id", e.Message.Public().String(), "seq", w.Seq, "fence", r.fence, "outcome", outcomeOf(waits))
	if !waits {
		return nil
	}
	r.gate.withdrawn(e)
	at := r.finishedAt()
	r.finished(e, weir.Cancelled, at)
	return ch.Finish(e, weir.Cancelled, at)
}

func outcomeOf(granted bool) string {
	if granted {
		return "granted"
	}
	return "refused"
}

// withdraw takes a message out of the window or out of its block's line, and says whether
// it was still waiting.
func (r *run) withdraw(ctx context.Context, e *lane.Entry, ch *lane.Change) (bool, error) {
	switch {
	case e.Stage.Final() || e.Stage == weir.Scheduled:
		return false, nil
	case e.Held:
		return r.withdrawHeld(ctx, e, ch)
	case e.Seq() >= r.window.nextRead:
		r.window.skip(e.Seq())
		return true, nil
	}
	return r.window.removeSeq(e.Seq()), nil
}

// withdrawHeld takes a message out of its block's line. Only where it was the one that the
// block waits for may the others go before that time.
func (r *run) withdrawHeld(ctx context.Context, e *lane.Entry, ch *lane.Change) (bool, error) {
	b := r.blocks[e.Block()]
	if b == nil {
		b = r.blocks[e.KeyHash()] // it came to stand behind others of its key
	}
	if b == nil {
		return false, nil
	}
	line, err := r.Store.Held(ctx, r.lane, b.ID, 1)
	if err != nil {
		return false, err
	}
	next, waitedFor := b.Next, line[0].Seq == e.Seq()
	if e.Message.Supersede { // then it is not always the first that is tried
		waitedFor = next.Sub(e.NextAttempt()).Abs() < time.Millisecond
	}
	r.unhold(b, ch, e.Line())
	if !waitedFor && b.Held > 0 {
		b.Next = next
		ch.Block(*b)
	}
	return true, nil
}
