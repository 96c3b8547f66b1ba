package drain

import (
	"context"

	"weir/internal/lane"
	"weir/internal/weir"
)

// If several versions of a key wait, the holder sends only the newest version. The older versions
// become superseded only after a newer version was delivered. So if the newest version becomes
// dead, the holder sends the next newest.
//
// Versions supersede each other only within a run: messages of one contract that follow each other
// in their key's order. Another message of the key between them, such as a delete, ends the run.
// Otherwise the holder could send a later version before the delete, and then the delete would
// remove that version from the CMS. A message with another spelling of the key (see
// lane.Store.Fold) ends the run, too: its versions belong to another item of the upstream, and to
// be superseded by them would mean never to be written.

const (
	// maxLatestVersions bounds latestVersions.byKey: a full map is cleared, and versions are read
	// from storage again.
	maxLatestVersions = 10_000
	// maxSuperseded is the largest number of held messages that become superseded in one change.
	// Each message takes two of a transaction's 100 operations, or three if the message has a
	// callback.
	maxSuperseded = 30
)

// latestVersions caches, for a session, the version of each key and contract that was delivered
// last.
type latestVersions struct {
	store *lane.Store
	lane  int
	byKey map[string]lane.LatestVersion // by Entry.SupersedeKey
}

// readLatest returns the version that was delivered last for a message's key and contract.
func (v *latestVersions) readLatest(ctx context.Context,
	e *lane.Entry) (lane.LatestVersion, error) {
	key := e.SupersedeKey()
	if l, ok := v.byKey[key]; ok {
		return l, nil
	}

	l, err := v.store.DeliveryState().ReadLatestVersionFor(ctx, v.lane, e)
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

// parseVersion parses a message's version. A version that does not parse was accepted under other
// rules of the contract. It counts as the oldest.
func parseVersion(text string) weir.Version {
	v, err := weir.ParseVersion(text)
	if err != nil {
		return weir.Version{}
	}
	return v
}

// isOutdated reports whether the delivered version l is newer than the given version.
func isOutdated(version string, l lane.LatestVersion) bool {
	return !l.IsZero() && parseVersion(l.Version).Newer(parseVersion(version))
}

// newestFrom returns the newest version in the run that begins at index i of the read-ahead. If a
// version newer than the message at index i was delivered already, newestFrom makes this message
// superseded, removes it from the read-ahead, and returns nil.
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
		ch.Supersede(first.AsHeld(), latest, at)
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

	// nil = the key is not blocked; else the run ends before the held messages
	block := s.keys.byID[first.KeyHash()]
	for _, e := range s.readAhead.entries[i+1:] {
		switch {
		case e.KeyHash() != first.KeyHash():
		case block != nil && e.Seq() >= block.firstLogPos:
			return best
		case e.Message.Contract != first.Message.Contract || e.Message.Key != first.Message.Key ||
			!e.Message.Supersede:
			return best
		case parseVersion(e.Message.Version).Newer(parseVersion(best.Message.Version)):
			best = e
		}
	}

	return best
}

// newestHeld returns the newest version in the run at the beginning of a block. If the version that
// was delivered last is newer than some messages of the run, newestHeld makes these messages
// superseded and returns nil. It also returns nil if other messages of the key, which are still in
// the lane's log, have to be sent first.
func (s *selector) newestHeld(ctx context.Context, k *keyState,
	first *lane.Entry) (*lane.Entry, error) {
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
	spelling := best.Spelling
	for _, h := range held {
		if h.Contract != first.Message.Contract || h.Spelling != spelling {
			break
		}

		if h.AfterLog() > s.readAhead.firstPendingSeq(k.KeyHash) {
			// Log messages that are not read yet may have to be sent before h. A crashed holder had
			// perhaps read them, and has sent h. Then an older version would overwrite h in the
			// CMS. So all held messages of the key wait until the log is read up to the position of
			// h.
			k.waitForLog(h)
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

	return s.readHeldMessage(ctx, best.Seq)
}

// supersedeHeld makes held messages superseded. The key is pending until the commit, because until
// then a read of the block would find these messages again.
func (s *selector) supersedeHeld(k *keyState, old []lane.HeldMessage, latest lane.LatestVersion) {
	ch := &lane.Change{Key: k.KeyHash}
	for _, h := range old {
		at := storedTime(s.now())
		s.observer.Finished(s.lane, Final{Stage: weir.Superseded, At: at})
		ch.Supersede(h, latest, at)
		s.logSuperseded(h.Seq, weir.ID{})
	}

	s.keys.unpark(k, ch, old...)
	s.journal.record(ch, true)
}

// logSuperseded logs that a message was superseded. The id of a held message is zero, because its
// row was not read.
func (s *selector) logSuperseded(seq int64, id weir.ID) {
	log := s.log
	if !id.IsZero() {
		log = log.With("message_id", id.String())
	}
	log.Info("drain: superseded", "seq", seq, "fence", s.fence)
}

// maxRemembered bounds rememberedIDs.byKey: a full map is cleared, and ids are read from storage
// again.
const maxRemembered = 10_000

// rememberedIDs caches the remembered ids of a session. A remembered id is the CMS's id of a key's
// item, which an earlier message of the key has learned.
type rememberedIDs struct {
	laneScope
	isUsedBy func(contract string) bool // see Config.Remembers
	byKey    map[string]lane.Remembered // by Entry.RememberedKey; zero = storage has none
}

// readID returns the remembered id for a message. It returns the zero value if there is none, or if
// the contract of the message does not use remembered ids.
func (m *rememberedIDs) readID(ctx context.Context, e *lane.Entry) (lane.Remembered, error) {
	if !m.isUsed(e) {
		return lane.Remembered{}, nil
	}

	key := e.RememberedKey()
	if id, ok := m.byKey[key]; ok {
		return id, nil
	}

	id, err := m.store.DeliveryState().ReadRememberedFor(ctx, m.lane, e)
	if err == nil {
		m.keepID(key, id)
	}

	return id, err
}

func (m *rememberedIDs) isUsed(e *lane.Entry) bool {
	return m.isUsedBy != nil && m.isUsedBy(e.Message.Contract)
}

func (m *rememberedIDs) keepID(key string, id lane.Remembered) {
	if len(m.byKey) >= maxRemembered {
		clear(m.byKey)
	}
	m.byKey[key] = id
}

// recordResult updates the remembered id after an attempt. If the attempt learned a new id,
// recordResult saves the id. If the attempt learned no id, and found that the item of the known id
// is gone, recordResult removes the known id. In both cases ch.Key makes the next message of the
// key wait for the commit. Otherwise one transaction could both write and remove the id's row.
func (m *rememberedIDs) recordResult(c *candidate, ch *lane.Change, result weir.Result) {
	var next lane.Remembered
	switch {
	case !m.isUsed(c.entry):
		return
	case result.RememberedID != "" && result.RememberedID != c.remembered.ID:
		next = ch.SaveRemembered(c.entry, result.RememberedID, c.remembered)
	case result.IsForgotten && result.RememberedID == "" && c.remembered.ID != "":
		ch.ForgetRemembered(c.remembered)
	default:
		return
	}

	ch.Key = c.entry.KeyHash()
	m.keepID(c.entry.RememberedKey(), next)
}

// forgetID grants a request to forget a remembered id. It also removes the id from memory, so that
// the next message is not written to the item with that id.
func (h *requestHandler) forgetID(ctx context.Context, r lane.Request, ch *lane.Change) error {
	key := r.RememberedKey()
	id, err := h.store.DeliveryState().ReadRemembered(ctx, h.lane, key)
	if err != nil {
		return err
	}

	h.ids.keepID(key, lane.Remembered{})
	if id == "" {
		return nil
	}

	ch.RemoveRemembered(key)
	h.log.Info("drain: remembered id forgotten", "fence", h.fence)

	return nil
}
