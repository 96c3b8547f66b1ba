package drain

import (
	"context"

	"weir/internal/lane"
	"weir/internal/weir"
)

// If several versions of a key wait one behind the other, the holder tries only the newest one. A version becomes
// superseded only because it is older than the version that was delivered last. So if the newest version is dead, the
// holder tries the next newest. If a holder dies in between, the next holder comes to the same result.
//
// Messages supersede each other in a run: one behind the other in their key's order, of one contract. Another message
// of the key between them, such as a delete, ends the run. Without this rule a delete could undo a newer version that
// the holder has sent early, and an older version could undo a delete.

const (
	// maxLatestVersions bounds the versions that a session has in memory. Beyond that number it drops them, and reads
	// them again.
	maxLatestVersions = 10_000
	// maxSuperseded is how many held messages become superseded in one change: each takes two
	// operations of a transaction, three if it has a callback.
	maxSuperseded = 30
)

// latestVersions has the version that was delivered last for each key and contract, as far as a session knows it.
type latestVersions struct {
	store *lane.Store
	lane  int
	byKey map[string]lane.LatestVersion // by Entry.SupersedeKey
}

// readLatest returns the version that was delivered last for a message's key and contract.
func (v *latestVersions) readLatest(ctx context.Context, e *lane.Entry) (lane.LatestVersion, error) {
	key := e.SupersedeKey()
	if l, ok := v.byKey[key]; ok {
		return l, nil
	}
	l, err := v.store.DeliveryState().ReadLatestVersion(ctx, v.lane, key)
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

// parseVersion parses a message's version. A version that does not parse was accepted under other rules of the
// contract, and counts as the oldest.
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

// newestFrom chooses the message to try from the run that begins at index i of the read-ahead. It returns nil if the
// message at that index is superseded: that message has then left the read-ahead.
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

// newestOf returns the newest version in the run that begins at index i of the read-ahead.
func (s *selector) newestOf(i int) *lane.Entry {
	first := s.readAhead.entries[i]
	best := first
	block := s.keys.byID[first.KeyHash()] // nil = the key is not blocked; else the run ends at the block's position
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

// newestHeld chooses the message to try from the run at the beginning of a block. It returns nil if
// messages of the log have to go first. It also returns nil after it made messages of the block superseded: they leave
// the block, and the holder chooses again.
func (s *selector) newestHeld(ctx context.Context, k *keyState, first *lane.Entry) (*lane.Entry, error) {
	latest, err := s.versions.readLatest(ctx, first)
	if err != nil {
		return nil, err
	}
	held, err := s.store.DeliveryState().ReadHeld(ctx, s.lane, k.ID, farRows)
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
			// The log was not read up to the position of h. Messages of the log may have to go before h, or a holder
			// that died may have sent h already. So no older version is sent before the log was read up to there.
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

// supersedeHeld makes held messages superseded. Their key is pending until the commit, because the held messages of a
// block are read from storage.
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

// logSuperseded logs that a message was superseded. id is zero for a held message, because its row was not read.
func (s *selector) logSuperseded(seq int64, id weir.ID) {
	log := s.log
	if !id.IsZero() {
		log = log.With("message_id", id.String())
	}
	log.Info("drain: superseded", "seq", seq, "fence", s.fence)
}
