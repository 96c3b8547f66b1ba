package drain

import (
	"context"

	"weir/internal/lane"
	"weir/internal/weir"
)

// Superseding: of the versions of a key that wait one behind the other, only the newest is tried. A
// version older than the one delivered last is superseded by it, and that rule alone makes messages
// final: so if the newest is dead, the next newest is tried, and if a process dies in between, the
// next one comes to the same end.
//
// Messages supersede each other in a run: one behind the other in their key's order, of one
// contract. Another message of the key in between (a delete, say) ends the run: an older version
// must not undo its effect, nor may it undo a newer one.

const (
	// maxLatestVersions bounds the versions that a session remembers; beyond it, it reads them again.
	maxLatestVersions = 10_000
	// maxSuperseded is how many held messages become superseded in one change: each takes two
	// operations of a transaction, three if it has a callback.
	maxSuperseded = 30
)

// latestVersions are the versions delivered last, as far as a session knows them.
type latestVersions struct {
	store *lane.Store
	lane  int
	byKey map[string]lane.LatestVersion // by Entry.SupersedeKey
}

// readLatest returns the last delivery among those that can supersede a message.
func (v *latestVersions) readLatest(ctx context.Context, e *lane.Entry) (lane.LatestVersion, error) {
	key := e.SupersedeKey()
	if l, ok := v.byKey[key]; ok {
		return l, nil
	}
	l, err := v.store.ReadLatestVersion(ctx, v.lane, key)
	if err == nil {
		v.remember(key, l)
	}
	return l, err
}

func (v *latestVersions) remember(key string, l lane.LatestVersion) {
	if len(v.byKey) >= maxLatestVersions {
		clear(v.byKey)
	}
	v.byKey[key] = l
}

// parseVersion parses a message's version. One that does not parse was accepted under another
// contract and counts as the oldest.
func parseVersion(text string) weir.Version {
	v, err := weir.ParseVersion(text)
	if err != nil {
		return weir.Version{}
	}
	return v
}

// isOutdated reports whether a version newer than this one was delivered.
func isOutdated(version string, l lane.LatestVersion) bool {
	return !l.IsZero() && parseVersion(l.Version).Newer(parseVersion(version))
}

// newestFrom returns the message to try of the run that begins at an index of the read-ahead; nil
// if the message there was superseded, and has left it.
func (s *selector) newestFrom(ctx context.Context, i int) (*lane.Entry, error) {
	first := s.readAhead.entries[i]
	latest, err := s.versions.readLatest(ctx, first)
	if err != nil {
		return nil, err
	}
	if isOutdated(first.Message.Version, latest) {
		s.readAhead.removeEntry(first)
		ch := &lane.Change{}
		at := storedTime(s.now())
		s.reportFinal(first, weir.Superseded, at)
		ch.Supersede(first.Seq(), first.Message.Callback, latest, at)
		s.journal.record(ch, false)
		s.logSuperseded(first.Seq(), first.Message.Public())
		return nil, nil
	}
	if err := s.readAhead.readFar(ctx); err != nil {
		return nil, err
	}
	return s.newestOf(i), nil
}

// newestOf returns the newest version of the run that begins at an index of the read-ahead.
func (s *selector) newestOf(i int) *lane.Entry {
	first := s.readAhead.entries[i]
	best := first
	block := s.keys.byID[first.KeyHash()] // if there is one, it waits for the messages before its first one
	for _, e := range s.readAhead.entries[i+1:] {
		switch {
		case e.KeyHash() != first.KeyHash():
		case block != nil && e.Seq() >= block.firstLogPos:
			return best
		case e.Message.Contract != first.Message.Contract || !e.Message.Supersede:
			return best
		case parseVersion(e.Message.Version).Newer(parseVersion(best.Message.Version)):
			best = e
		}
	}
	return best
}

// newestHeld returns the message to try of the run at the beginning of a block; nil if the first
// ones there were superseded.
func (s *selector) newestHeld(ctx context.Context, k *keyState, first *lane.Entry) (*lane.Entry, error) {
	latest, err := s.versions.readLatest(ctx, first)
	if err != nil {
		return nil, err
	}
	held, err := s.store.ReadHeld(ctx, s.lane, k.ID, farRows)
	if err != nil {
		return nil, err
	}
	var old []lane.HeldMessage
	best := first.AsHeld()
	for _, h := range held {
		if h.Contract != first.Message.Contract {
			break
		}
		if h.AfterLog() > s.readAhead.firstPendingSeq(k.KeyHash) {
			// The messages before it in the log are not known yet, nor whether a holder that died has
			// tried it: no older one may go before that is clear.
			k.waitLogPos = h.AfterLog()
			break
		}
		if isOutdated(h.Version, latest) && len(old) < maxSuperseded {
			old = append(old, h)
		}
		if parseVersion(h.Version).Newer(parseVersion(best.Version)) {
			best = h
		}
	}
	if len(old) > 0 {
		s.supersedeHeld(k, old, latest)
		return nil, nil
	}
	if !s.isLogDone(k) {
		return nil, nil
	}
	if best.Seq == first.Seq() {
		return first, nil
	}
	return s.store.ReadMessage(ctx, s.lane, best.Seq)
}

// supersedeHeld makes held messages final. Their key is pending until the commit of that, because
// the held messages of a block are read from storage.
func (s *selector) supersedeHeld(k *keyState, old []lane.HeldMessage, latest lane.LatestVersion) {
	ch := &lane.Change{Key: k.KeyHash}
	for _, h := range old {
		at := storedTime(s.now())
		s.observer.Finished(s.lane, Final{Stage: weir.Superseded, At: at})
		ch.Supersede(h.Seq, h.Callback, latest, at)
		s.logSuperseded(h.Seq, weir.ID{})
	}
	s.keys.unpark(k, ch, old...)
	s.journal.record(ch, true)
}

// logSuperseded logs that a message was superseded. The id of a held one is not known here; its
// status names the message that superseded it.
func (s *selector) logSuperseded(seq int64, id weir.ID) {
	log := s.log
	if !id.IsZero() {
		log = log.With("message_id", id.String())
	}
	log.Info("drain: superseded", "seq", seq, "fence", s.fence)
}
