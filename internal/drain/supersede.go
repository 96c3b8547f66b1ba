package drain

import (
	"context"
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

// Superseding: of one key's messages that wait one behind the other, only the newest
// version is tried. What is older than the version delivered last is superseded by it, and
// that rule alone makes messages final: so where the newest dies, the next newest is tried,
// and where a process dies in between, the next one comes to the same end.
//
// Messages supersede each other in a stretch: one behind the other in their key's order,
// of one contract. Another message of the key in between (a delete, say) ends it, for its
// effect must not be undone by an older one, nor itself undo a newer one.

// latestMax bounds the versions a run remembers; past it, it reads them again.
const latestMax = 10_000

// supersedeAtOnce is how many held messages become superseded in one change: each takes
// two operations of a transaction, three where it has a callback.
const supersedeAtOnce = 30

// version is a message's version. What does not parse was accepted under another contract
// and counts as the oldest.
func version(text string) weir.Version {
	v, err := weir.ParseVersion(text)
	if err != nil {
		return weir.Version{}
	}
	return v
}

// latestOf gives the last delivery among those a message can be superseded by.
func (r *run) latestOf(ctx context.Context, e *lane.Entry) (lane.LatestVersion, error) {
	key := e.SupersedeKey()
	if l, ok := r.latest[key]; ok {
		return l, nil
	}
	l, err := r.Store.ReadLatestVersion(ctx, r.lane, key)
	if err == nil {
		r.remember(key, l)
	}
	return l, err
}

func (r *run) remember(key string, l lane.LatestVersion) {
	if len(r.latest) >= latestMax {
		clear(r.latest)
	}
	r.latest[key] = l
}

// outdated says whether something newer than a version was delivered.
func outdated(v string, l lane.LatestVersion) bool {
	return l.ID.Seq != 0 && version(l.Version).Newer(version(v))
}

// newestFrom gives what is to be tried of the stretch that begins at a place in the
// window; nil when the message there was superseded, and has left it.
func (r *run) newestFrom(ctx context.Context, i int) (*lane.Entry, error) {
	first := r.window.entries[i]
	latest, err := r.latestOf(ctx, first)
	if err != nil {
		return nil, err
	}
	if outdated(first.Message.Version, latest) {
		r.window.remove(first)
		ch := &lane.Change{}
		at := r.finishedAt()
		r.finished(first, weir.Superseded, at)
		ch.Supersede(first.Seq(), first.Message.Callback, latest, at)
		r.position(ch)
		r.committer.add(ch, false)
		r.logSuperseded(first.Seq(), first.Message.Public())
		return nil, nil
	}
	if err := r.window.lookAhead(ctx); err != nil {
		return nil, err
	}
	return r.newestOf(i), nil
}

// newestOf gives the newest version of the stretch that begins at a place in the window.
func (r *run) newestOf(i int) *lane.Entry {
	first := r.window.entries[i]
	best := first
	block := r.blocks[first.KeyHash()] // if there is one, it waits for what stands before its line
	for _, e := range r.window.entries[i+1:] {
		switch {
		case e.KeyHash() != first.KeyHash():
		case block != nil && e.Seq() >= block.From:
			return best
		case e.Message.Contract != first.Message.Contract || !e.Message.Supersede:
			return best
		case version(e.Message.Version).Newer(version(best.Message.Version)):
			best = e
		}
	}
	return best
}

// newestHeld gives what is to be tried of the stretch at the beginning of a block's line;
// nil when the first there were superseded.
func (r *run) newestHeld(ctx context.Context, b *lane.KeyBlock, first *lane.Entry) (*lane.Entry, error) {
	latest, err := r.latestOf(ctx, first)
	if err != nil {
		return nil, err
	}
	line, err := r.Store.ReadHeld(ctx, r.lane, b.ID, aheadRows)
	if err != nil {
		return nil, err
	}
	var old []lane.HeldMessage
	best := first.AsHeld()
	for _, h := range line {
		if h.Contract != first.Message.Contract {
			break
		}
		if h.AfterLog() > r.window.readOf(b.KeyHash) {
			// What stands before it in the log is not known yet, and whether it was tried by
			// a holder that died is not either: nothing older may go before that is clear.
			b.Wait = h.AfterLog()
			break
		}
		if outdated(h.Version, latest) && len(old) < supersedeAtOnce {
			old = append(old, h)
		}
		if version(h.Version).Newer(version(best.Version)) {
			best = h
		}
	}
	if len(old) > 0 {
		r.supersedeHeld(b, old, latest)
		return nil, nil
	}
	if !r.reached(b) {
		return nil, nil
	}
	if best.Seq == first.Seq() {
		return first, nil
	}
	return r.Store.ReadMessage(ctx, r.lane, best.Seq)
}

// supersedeHeld makes held messages final. Their key is closed until that is committed,
// because a block's line is read from storage.
func (r *run) supersedeHeld(b *lane.KeyBlock, old []lane.HeldMessage, latest lane.LatestVersion) {
	ch := &lane.Change{Key: b.KeyHash}
	for _, h := range old {
		at := r.finishedAt()
		r.Observer.Finished(r.lane, Final{Stage: weir.Superseded, At: at})
		ch.Supersede(h.Seq, h.Callback, latest, at)
		r.logSuperseded(h.Seq, weir.ID{})
	}
	r.unhold(b, ch, old...)
	r.position(ch)
	r.committer.add(ch, true)
}

// logSuperseded logs which message it was. The id of a held one is not known here; its
// status says what superseded it.
func (r *run) logSuperseded(seq int64, id weir.ID) {
	log := r.log
	if !id.IsZero() {
		log = log.With("message_id", id.String())
	}
	log.Info("drain: superseded", "seq", seq, "fence", r.fence)
}

// finishedAt is this moment as a row keeps it.
func (r *run) finishedAt() time.Time { return r.Now().UTC().Truncate(time.Microsecond) }
