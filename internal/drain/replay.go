package drain

import (
	"context"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/weir"
)

// grantReplay takes a dead message back: to its old place, so in front of all that waits
// of its key. It is refused where something later of its key was delivered meanwhile.
func (r *run) grantReplay(ctx context.Context, w lane.Request, ch *lane.Change) error {
	if w.Force { // the same may have been asked for before it without force
		if err := r.committer.waitBelow(ctx, 1); err != nil {
			return err
		}
	}
	e, err := r.Store.ReadMessage(ctx, r.lane, w.Seq)
	if storage.Is(err, storage.NotFound) || (err == nil && e.Stage != weir.Dead) {
		return nil
	}
	if err != nil {
		return err
	}
	reason := ""
	if !w.Force {
		if reason, err = r.Store.ReplayObstacle(ctx, e, r.watchedFrom); err != nil {
			return err
		}
	}
	r.log.Debug("drain: replay asked", "message_id", e.Message.Public().String(), "seq", w.Seq, "fence", r.fence, "outcome", outcomeOf(reason == ""))
	if reason != "" {
		ch.RefuseReplay(e, reason)
		return nil
	}
	if old := e.EditedBlob(); old != "" && w.HasEdit() {
		r.unused = append(r.unused, old)
	}
	if r.condemned == w.Seq {
		r.condemned = 0 // it gets another chance
	}
	ch.Replay(e, w, r.finishedAt(), r.watchedFrom)
	ch.SaveBlock(*r.takeBack(e))
	return nil
}

// takeBack puts a message into its block as it would be read from storage: its line tells
// who is next, and when.
func (r *run) takeBack(e *lane.Entry) *lane.KeyBlock {
	b := r.blocks[e.BlockID()]
	if b == nil {
		b = &lane.KeyBlock{ID: e.BlockID(), KeyHash: e.KeyHash()}
		r.blocks[b.ID] = b
	}
	b.HeldCount++
	b.NextAt, b.First, b.From, b.Mixed = r.Now(), nil, 0, true
	return b
}

// removeUnused removes the bodies that edits have replaced, once that is committed. One
// that stays is of no harm.
func (r *run) removeUnused(ctx context.Context) {
	for _, blob := range r.unused {
		if err := r.Store.RemoveBody(ctx, blob); err != nil {
			r.log.Warn("drain: edited body not removed", "err", err)
		}
	}
	r.unused = nil
}

// watched are the keys of which a delivery has to be noted, because messages of them are
// dead: those and perhaps some more. They are kept from one run to the next, as long as
// nobody else has held the lane.
type watched struct {
	keys map[string]bool // by hash
	all  bool            // there are too many
}

func (w *watched) has(keyHash string) bool { return w.all || w.keys[keyHash] }

// add takes in the key of a message that dies.
func (w *watched) add(keyHash string) {
	if !w.all {
		w.keys[keyHash] = true
	}
}

// loadWatched reads them from storage.
func (r *run) loadWatched(ctx context.Context, t lane.Tail) error {
	r.watched = &watched{keys: map[string]bool{}}
	if t.Counts.Dead == 0 {
		return nil
	}
	keys, all, err := r.Store.ReadDeadKeys(ctx, r.lane)
	if err != nil {
		return err
	}
	r.watched = &watched{keys: keys, all: all}
	return nil
}

// lastOf gives the place that is noted for an entry's key, where this entry may stand
// before it: one that was replayed by force, or that let later ones go ahead.
func (r *run) lastOf(ctx context.Context, e *lane.Entry) (string, error) {
	if !r.watched.has(e.KeyHash()) || (!e.IsReplayed() && !e.Message.Skip) {
		return "", nil
	}
	l, err := r.Store.ReadLastDelivery(ctx, r.lane, e.KeyHash())
	return l.OrderPos, err
}

// note writes of a message that becomes final what replays of its key have to know.
func (r *run) note(c *candidate, ch *lane.Change, stage weir.Stage) {
	key := c.entry.KeyHash()
	switch {
	case stage == weir.Dead:
		r.watched.add(key)
	case r.watched.has(key) && c.entry.AsHeld().OrderPos >= c.last:
		ch.SaveLastDelivery(c.entry)
	}
}

// putOff has a block wait for the retry of its first message, where something else had it
// looked at before.
func (r *run) putOff(b *lane.KeyBlock, e *lane.Entry) {
	b.NextAt = e.NextAttempt()
	ch := &lane.Change{}
	ch.SaveBlock(*b)
	r.position(ch)
	r.committer.add(ch, false)
}
