package simulation_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"weir/internal/storage"
	"weir/internal/weir"
)

// In this file operators erase messages, and the checker checks the erasures.

func (s *settings) drawErasures(d *dice) {
	if d.drawChance("erasing", 0.4) {
		s.erasers = 1 + d.drawBelow("erasers", 3)
	}
}

// startErasers lets operators ask to erase some messages, whatever the stages of the messages are.
func (w *world) startErasers(ctx context.Context) {
	for i := range w.settings.erasers {
		name := fmt.Sprint("eraser ", i)
		at := w.dice.drawBetween(name, time.Second, w.trouble+30*time.Second)
		w.upstream.Go(func() {
			time.Sleep(at)
			for _, id := range w.check.listFiled() {
				if w.dice.drawChance(name+" picks", 0.15) {
					w.eraseMessage(ctx, name, id)
				}
			}
		})
	}
}

// listFiled lists the messages that were acknowledged.
func (c *checker) listFiled() (ids []weir.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for _, s := range c.expected {
		if !s.id.IsZero() {
			ids = append(ids, s.id)
		}
	}

	return ids
}

// eraseMessage asks random instances to erase a message, up to 20 times, until an instance accepts
// or refuses. An instance refuses if the message can still be sent.
func (w *world) eraseMessage(ctx context.Context, name string, id weir.ID) {
	asked := w.check.noteErasure(id, w.check.noteErasing(id))
	for range 20 {
		p := w.slots[w.dice.drawBelow(name+" to", len(w.slots))].currentProcess()
		_, err := askProcess(ctx, p, name,
			func(ctx context.Context) (weir.Status, error) { return p.erase(ctx, id) })
		w.trace.addLine("%s: %s erases lane %d seq %d: %v", p.name, name, id.Lane, id.Seq, err)

		if err == nil {
			p.lookAtLane(id.Lane)
			w.check.checkErased(id)
			w.check.confirmErasure(asked)
			return
		}

		if weir.KindOf(err) == weir.Conflict || weir.KindOf(err) == weir.NotFound {
			return
		}

		time.Sleep(w.dice.drawBetween(name+" again", 200*time.Millisecond, 3*time.Second))
	}
}

func (p *process) erase(ctx context.Context, id weir.ID) (weir.Status, error) {
	if p.w.audits.isOn {
		return p.eraseByRequest(ctx, id)
	}
	return p.store.Requests().Erase(ctx, id)
}

// noteErasing records that an operator asks to erase a message, and returns the message's key. From
// then on, receivers of events need not get events about the message.
func (c *checker) noteErasing(id weir.ID) (key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.laneOf(id.Lane).log[id.Seq-1]
	f.erasing = true
	c.history.Exclude(f.key, "erasures")
	return f.key
}

// mayBeErased reports whether an operator has asked to erase a message. The row of an erased
// message has no hash of the body. So a post with the same idempotency key and another body counts
// as a repeat.
func (c *checker) mayBeErased(s *submission) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.laneOf(s.id.Lane).log[s.id.Seq-1].erasing
}

// checkErased checks that the row of an erased message has no content, and has the hash of the
// ordering key in place of the key.
func (c *checker) checkErased(id weir.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.Erased++
	f := c.laneOf(id.Lane).log[id.Seq-1]
	for _, row := range c.rowsOf(id.Lane, fmt.Sprintf("m_%019d", id.Seq)) {
		key, _ := row.Values["Key"].(string)
		if row.Values["Body"] != nil || row.Values["Edited"] != nil ||
			row.Values["Callback"] != nil ||
			!strings.HasPrefix(key, "sha256:") {
			c.addViolation("erased", "seq %d of lane %d was erased, and has %v", f.id.Seq,
				f.id.Lane, row.Values)
		}
	}
}

// noteErasures checks the erasures in a transaction. A message may be erased only if an operator
// asked for that, and if the message can no longer be sent.
func (c *checker) noteErasures(p *process, l *laneState, ops []storage.Op) {
	for _, op := range ops {
		if !strings.HasPrefix(op.Key, "m_") || op.Values["ErasedAt"] == nil {
			continue
		}

		f := l.log[seqOf(op.Key)-1]
		switch {
		case !f.erasing:
			c.addViolation("erased", "%s erased seq %d of lane %d and was not asked to", p.name,
				f.id.Seq, f.id.Lane)
		case !c.stageOf(f).Final() || f.isRequested():
			c.addViolation("erased", "%s erased seq %d of lane %d, which may be sent: %s", p.name,
				f.id.Seq, f.id.Lane, c.stageOf(f))
		case f.discardAsked && !f.discarded:
			c.addViolation("erased", "%s erased seq %d of lane %d while a discard of it waits",
				p.name, f.id.Seq, f.id.Lane)
		}

		f.erased = true
	}
}
