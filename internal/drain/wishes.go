package drain

import (
	"context"
	"slices"
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

// lookAround takes in a control read that has ended, and reports whether it has found work. It
// begins the next read when the last one is old enough. A read that fails does no harm: the next
// one comes in a second, and a commit fails by itself if the lane is another holder's.
func (r *run) lookAround(ctx context.Context, every time.Duration) (found bool) {
	l := &r.looking
	if l.answer == nil {
		if r.Now().Sub(l.last) >= every {
			r.startLook(ctx)
		}
		return false
	}
	select {
	case c, ok := <-l.answer:
		r.looked(c, ok)
		return ok && c.Head.Next > r.window.nextRead || r.touched != r.touchedSeen
	default:
		return false
	}
}

func (r *run) startLook(ctx context.Context) {
	now := r.Now()
	answer := make(chan lane.Control, 1)
	r.looking = looking{answer: answer, asked: now, last: now}
	go func() {
		defer r.wakeRun()
		defer close(answer)
		if c, err := r.Store.ReadControl(ctx, r.lane); err == nil {
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
			r.restOrDone(ctx, lookAgain)
		}
	case <-r.open.Done():
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

// notice takes in what the control rows say of pauses, and of work that is not in the
// window. asked is when they were asked for.
func (r *run) notice(c lane.Control, asked time.Time) {
	switch {
	case !r.yieldsTo(c):
		r.claimedAt = time.Time{}
	case r.mayMove():
		r.endTenure()
	}
	if asked.Before(r.pauses.known) || c.Head.RequestSeq < r.touchedSeen {
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
	r.touched = max(r.touched, c.Head.RequestSeq)
	r.sealed = c.Head.IsSealed
}

// grantWishes grants or refuses what was asked for up to the touch that was seen.
func (r *run) grantWishes(ctx context.Context) error {
	for r.touchedSeen != r.touched {
		target := r.touched
		// What is decided must be in storage, so that a message's row tells the truth.
		if err := r.finishReleases(ctx); err != nil {
			return err
		}
		wishes, err := r.Store.PendingRequests(ctx, r.lane, wishPage)
		if err != nil {
			return err
		}
		if r.unwanted, err = r.readUnwanted(ctx, wishes); err != nil {
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
func (r *run) grant(ctx context.Context, w lane.Request) error {
	ch := &lane.Change{}
	ch.ResolveRequest(w)
	var err error
	switch w.Kind {
	case lane.RequestCancel:
		err = r.grantCancel(w, ch)
	case lane.RequestReplay:
		err = r.grantReplay(ctx, w, ch)
	case lane.RequestResume:
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

// unwanted are the messages that one page of wishes is to cancel, and the first rows of the
// lines in which they stand, as storage has them before any of these wishes is granted.
// Thousands may be cancelled at a time while nothing is sent: they are read side by side.
type unwanted struct {
	messages map[int64]*lane.Entry
	lines    map[string][]lane.HeldMessage // by block; shortened as messages are withdrawn
}

// readUnwanted reads the messages that wishes are to cancel.
func (r *run) readUnwanted(ctx context.Context, wishes []lane.Request) (unwanted, error) {
	entries, lines := make([]*lane.Entry, len(wishes)), make([][]lane.HeldMessage, len(wishes))
	err := lane.ForEach(len(wishes), func(i int) (err error) {
		w := wishes[i]
		if w.Kind != lane.RequestCancel || w.Done {
			return nil
		}
		entries[i], err = r.Store.ReadMessage(ctx, r.lane, w.Seq)
		if storage.Is(err, storage.NotFound) {
			return nil // final long ago, and removed by retention
		}
		return err
	})
	if err != nil {
		return unwanted{}, err
	}
	u := unwanted{messages: map[int64]*lane.Entry{}, lines: map[string][]lane.HeldMessage{}}
	var blocks []string
	for i, e := range entries {
		if e == nil {
			continue
		}
		u.messages[wishes[i].Seq] = e
		if b := r.blockOf(e); e.IsHeld && b != nil && !slices.Contains(blocks, b.ID) {
			blocks = append(blocks, b.ID)
		}
	}
	err = lane.ForEach(len(blocks), func(i int) (err error) {
		lines[i], err = r.Store.ReadHeld(ctx, r.lane, blocks[i], wishPage+1)
		return err
	})
	for i, id := range blocks {
		u.lines[id] = lines[i]
	}
	return u, err
}

// grantCancel cancels a message that is not final yet.
func (r *run) grantCancel(w lane.Request, ch *lane.Change) error {
	e := r.unwanted.messages[w.Seq]
	if e == nil {
		return nil
	}
	waits := r.withdraw(e, ch)
	r.log.Debug("drain: cancel asked", "message_id", e.Message.Public().String(), "seq", w.Seq, "fence", r.fence, "outcome", outcomeOf(waits))
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

// withdraw takes a message out of the window or out of its block's line, and reports whether
// it was still waiting.
func (r *run) withdraw(e *lane.Entry, ch *lane.Change) bool {
	switch {
	case e.Stage.Final() || e.Stage == weir.Scheduled:
		return false
	case e.IsHeld:
		return r.withdrawHeld(e, ch)
	case e.Seq() >= r.window.nextRead:
		r.window.skip(e.Seq())
		return true
	}
	return r.window.removeSeq(e.Seq())
}

// blockOf returns the block in whose line a held message stands.
func (r *run) blockOf(e *lane.Entry) *lane.KeyBlock {
	if b := r.blocks[e.BlockID()]; b != nil {
		return b
	}
	return r.blocks[e.KeyHash()] // it came to stand behind others of its key
}

// withdrawHeld takes a message out of its block's line. Only if it was the one that the
// block waits for may the others go before that time.
func (r *run) withdrawHeld(e *lane.Entry, ch *lane.Change) bool {
	b := r.blockOf(e)
	if b == nil {
		return false
	}
	line := r.unwanted.lines[b.ID]
	next, waitedFor := b.NextAt, len(line) > 0 && line[0].Seq == e.Seq()
	if e.Message.Supersede { // then it is not always the first that is tried
		waitedFor = next.Sub(e.NextAttempt()).Abs() < time.Millisecond
	}
	r.unwanted.lines[b.ID] = slices.DeleteFunc(line, func(h lane.HeldMessage) bool { return h.Seq == e.Seq() })
	r.unhold(b, ch, e.AsHeld())
	if !waitedFor && b.HeldCount > 0 {
		b.NextAt = next
		ch.SaveBlock(*b)
	}
	return true
}
