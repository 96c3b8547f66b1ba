package simulation_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/weir"
)

// In this file operators discard dead messages, and the checker checks the discards.

// discarding is the discard of a message, as the checker knows it.
type discarding struct {
	discardAsked bool // storage has, or had, a request to discard the message
	discarded    bool // a holder has granted the discard
}

func (s *settings) drawDiscards(d *dice) {
	if d.drawChance("discarding", 0.4) {
		s.discarders = 1 + d.drawBelow("discarders", 8)
	}
}

// startDiscarders lets operators look for dead messages and discard some of them, one by one or
// many at a time.
func (w *world) startDiscarders(ctx context.Context) {
	for i := range w.discarders {
		name := fmt.Sprint("discarder ", i)
		at := w.dice.drawBetween(name, time.Second, w.trouble+30*time.Second)
		w.upstream.Go(func() {
			time.Sleep(at)
			var picked []weir.ID
			for _, s := range w.check.listDead() {
				if w.dice.drawChance(name+" picks", 0.4) {
					picked = append(picked, w.check.idOf(s))
				}
			}

			if w.dice.drawChance(name+" many", 0.3) {
				w.discardMany(ctx, name, picked)
				return
			}

			for _, id := range picked {
				w.discardMessage(ctx, name, id)
			}
		})
	}
}

// discardMessage asks randomly drawn instances to discard a message, up to 20 times, until one
// accepts or refuses.
func (w *world) discardMessage(ctx context.Context, name string, id weir.ID) {
	for range 20 {
		p := w.slots[w.dice.drawBelow(name+" to", len(w.slots))].currentProcess()
		st, err := askProcess(ctx, p, name,
			func(ctx context.Context) (weir.Status,
				error) {
				return p.store.Requests().Discard(ctx, id, name)
			})

		w.trace.addLine("%s: %s discards lane %d seq %d: %s, %v", p.name, name, id.Lane, id.Seq,
			st.Stage, err)
		if err == nil {
			p.lookAtLane(id.Lane)
		}

		if w.check.discardAnswered(id, err) {
			return
		}

		time.Sleep(w.dice.drawBetween(name+" again", 200*time.Millisecond, 3*time.Second))
	}
}

// discardMany discards messages lane by lane.
func (w *world) discardMany(ctx context.Context, name string, ids []weir.ID) {
	slices.SortFunc(ids, func(a, b weir.ID) int { return cmp.Or(a.Lane-b.Lane, int(b.Seq-a.Seq)) })
	for len(ids) > 0 {
		number := ids[0].Lane
		var seqs []int64
		for len(ids) > 0 && ids[0].Lane == number {
			seqs, ids = append(seqs, ids[0].Seq), ids[1:]
		}

		w.askUntilDone(ctx, name, number, func(ctx context.Context, s *lane.Store) error {
			entries, _, err := s.ReadMany(ctx, number, seqs)
			if err == nil {
				_, err = s.Requests().DiscardMany(ctx, number, entries, name)
			}
			return err
		})
	}
}

// discardAnswered checks the answer to a request to discard. It reports whether an instance has
// accepted or refused the request.
func (c *checker) discardAnswered(id weir.ID, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.findFiled(id)
	if f == nil {
		return true
	}

	isConflict := weir.KindOf(err) == weir.Conflict && err != nil
	switch {
	case err == nil && !f.discardAsked:
		c.addViolation("discarded",
			"the discard of seq %d of lane %d was accepted, and storage has no request",
			id.Seq, id.Lane)

	case isConflict && f.replays == 0 && !f.isRequested() && c.stageOf(f) == weir.Dead:
		c.addViolation("discarded",
			"the discard of seq %d of lane %d was refused without a reason: %v", id.Seq,
			id.Lane, err)
	}

	return err == nil || isConflict
}

// noteDiscardRequest records that storage has a request to discard a message. It checks that the
// message is dead, and that no replay of the message waits.
func (c *checker) noteDiscardRequest(f *filed) {
	if stage := c.stageOf(f); stage != weir.Dead || f.isRequested() {
		c.addViolation("discarded",
			"a discard of seq %d of lane %d was filed, which is %s (a replay waits: %v)",
			f.id.Seq, f.id.Lane, stage, f.isRequested())
	}
	f.discardAsked = true
}

// checkDiscarded checks the discards in a holder's commit, and returns their number. The rules are:
//
//   - The commit discards a message only if an operator asked for that.
//   - If the commit deletes a request to discard a message, the message is discarded.
//   - The commit does not write the stage of a message that was discarded before.
func (c *checker) checkDiscarded(p *process, l *laneState, ops []storage.Op) (discarded int64) {
	for _, op := range ops {
		if !strings.HasPrefix(op.Key, "m_") {
			continue
		}

		f := l.log[seqOf(op.Key)-1]
		switch isDiscard := op.Values["Stage"] == string(weir.Discarded); {
		case f.discarded && op.Values["Stage"] != nil:
			c.addViolation("discarded", "%s wrote seq %d of lane %d, which was discarded", p.name,
				f.id.Seq, f.id.Lane)
		case isDiscard && !f.discardAsked:
			c.addViolation("discarded", "%s discarded seq %d of lane %d and was not asked to",
				p.name, f.id.Seq, f.id.Lane)
		case isDiscard:
			f.discarded = true
			c.counts.Discarded++
			discarded++
		}
	}

	for _, op := range ops {
		if seq, ok := strings.CutPrefix(op.Key, "w_discard_"); ok &&
			!l.log[seqOf("m_"+seq)-1].discarded {
			c.addViolation("discarded", "%s was asked to discard %s, and did not", p.name, op.Key)
		}
	}

	return discarded
}
