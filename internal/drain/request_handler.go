package drain

import (
	"context"
	"slices"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/weir"
)

// requestPage is the largest number of requests that are read and handled together.
const requestPage = 30

// requestHandler grants or refuses the requests of other processes: cancel, discard, replay, forget
// a version or a remembered id, erase errors in tail, resume.
type requestHandler struct {
	laneScope
	journal   *journal
	readAhead *readAhead
	keys      *keyStates
	breaker   *breaker
	braked    *brakedMessages
	guard     *crashGuard
	history   *deliveryHistory
	versions  *latestVersions
	ids       *rememberedIDs
	due       interface {
		finishWrites(ctx context.Context) error
		invalidateDueTimes()
	}

	// the request number in head, which rises with each request, when head was last read
	seen     int64
	handled  int64     // all requests up to this request number were handled
	asked    askedPage // data for the requests that are being handled
	replaced []string  // names of blobs: edited bodies that a later edit has replaced
}

// askedPage has data for a page of requests. The data is read before the first request of the page
// is handled. It is read concurrently, because there can be thousands of requests, and the holder
// sends no message until all requests are handled.
type askedPage struct {
	// by sequence number: messages to cancel, discard or replay
	messages map[int64]*lane.Entry
	// by sequence number: why an unforced replay is refused; "" = it is granted
	obstacles map[int64]string
	// by block id: the first held messages, without those that were cancelled
	held map[string][]lane.HeldMessage
}

// hasNew reports whether there are requests to handle.
func (h *requestHandler) hasNew() bool { return h.seen != h.handled }

// handleNew handles all requests up to the number seen. Then the due times are read again, because
// a change of a due time also raises head's request number.
func (h *requestHandler) handleNew(ctx context.Context) error {
	for h.hasNew() {
		target := h.seen

		// All earlier changes must be committed first, because the handling of requests reads the
		// messages' rows.
		if err := h.due.finishWrites(ctx); err != nil {
			return err
		}

		requests, err := h.store.DeliveryState().PendingRequests(ctx, h.lane, requestPage)
		if err != nil {
			return err
		}

		if h.asked, err = h.readAsked(ctx, requests); err != nil {
			return err
		}

		for _, r := range requests {
			if err := h.handleOne(ctx, r); err != nil {
				return err
			}
		}

		if len(requests) < requestPage {
			h.handled = target
			h.due.invalidateDueTimes()
		}

		h.journal.record(&lane.Change{}, true)
		if err := h.journal.waitBelow(ctx, 1); err != nil {
			return err
		}

		h.removeReplaced(ctx)
	}

	return nil
}

// handleOne grants or refuses a request. The change that it records also removes the request's row.
func (h *requestHandler) handleOne(ctx context.Context, r lane.Request) error {
	ch := &lane.Change{}
	ch.ResolveRequest(r)
	var err error
	switch r.Kind {
	case lane.RequestCancel:
		err = h.cancelMessage(r, ch)
	case lane.RequestDiscard:
		h.discardMessage(r, ch)
	case lane.RequestReplay:
		err = h.replayMessage(ctx, r, ch)
	case lane.RequestForget:
		err = h.forgetVersion(ctx, r, ch)
	case lane.RequestForgetID:
		err = h.forgetID(ctx, r, ch)
	case lane.RequestErase:
		ch.EraseErrors()
		h.breaker.pauseReason = ""
		h.braked.eraseReasons()

	case lane.RequestResume:
		h.log.Info("drain: pause of the cms lifted", "fence", h.fence, "delay_ms",
			h.breaker.pausedUntil.Sub(h.now()).Milliseconds())
		h.breaker.liftPause()
		h.braked.openAll()

	default: // a later version of Weir has written this request
		h.log.Error("drain: unknown request refused", "seq", r.Seq, "err", "kind "+string(r.Kind))
	}

	if err != nil {
		return err
	}

	h.journal.record(ch, true)

	return nil
}

// readAsked reads the messages that requests are to cancel, discard, or replay without force. No
// two of these requests change the same message, so none of these messages changes before its
// request is handled.
//
// The message of a forced replay is read later, by replayMessage, because an unforced replay may
// change the message first.
func (h *requestHandler) readAsked(ctx context.Context,
	requests []lane.Request) (askedPage, error) {
	entries, obstacles := make([]*lane.Entry, len(requests)), make([]string, len(requests))
	err := lane.ForEach(len(requests), func(i int) (err error) {
		r := requests[i]
		isReplay := r.Kind == lane.RequestReplay && !r.Force
		isRead := isReplay || r.Kind == lane.RequestCancel && !r.Done ||
			r.Kind == lane.RequestDiscard
		if !isRead {
			return nil
		}

		entries[i], err = h.store.ReadMessage(ctx, h.lane, r.Seq)
		if storage.Is(err, storage.NotFound) {
			return nil // retention has removed the message
		}

		if err == nil && isReplay && entries[i].Stage == weir.Dead {
			obstacles[i], err = h.store.ReplayObstacle(ctx, entries[i])
		}

		return err
	})
	if err != nil {
		return askedPage{}, err
	}

	page := askedPage{messages: map[int64]*lane.Entry{}, obstacles: map[int64]string{},
		held: map[string][]lane.HeldMessage{}}
	var blocks []string
	for i, e := range entries {
		if e == nil {
			continue
		}

		page.messages[requests[i].Seq], page.obstacles[requests[i].Seq] = e, obstacles[i]
		if k := h.keys.findHolding(e); e.IsHeld && k != nil && !slices.Contains(blocks, k.ID) {
			blocks = append(blocks, k.ID)
		}
	}

	held := make([][]lane.HeldMessage, len(blocks))
	err = lane.ForEach(len(blocks), func(i int) (err error) {
		held[i], err = h.store.DeliveryState().ReadHeld(ctx, h.lane, blocks[i], requestPage+1)
		if isQueueDamaged(err) {
			return nil // withdrawHeld refuses to change the queue
		}
		return err
	})

	for i, id := range blocks {
		page.held[id] = held[i]
	}

	return page, err
}

// cancelMessage cancels a message if it still waits.
func (h *requestHandler) cancelMessage(r lane.Request, ch *lane.Change) error {
	e := h.asked.messages[r.Seq]
	if e == nil {
		return nil
	}

	waits := h.withdrawMessage(e, ch)
	h.log.Debug("drain: cancel asked", "message_id", e.Message.Public().String(), "seq", r.Seq,
		"fence", h.fence, "outcome", describeOutcome(waits))
	if !waits {
		return nil
	}

	h.breaker.forgetMessage(e)
	at := storedTime(h.now())
	h.reportFinal(e, weir.Cancelled, at)

	return ch.Finish(e, weir.Cancelled, at)
}

// discardMessage discards a message if it is still dead.
func (h *requestHandler) discardMessage(r lane.Request, ch *lane.Change) {
	e := h.asked.messages[r.Seq]
	if e == nil {
		return
	}

	isDead := e.Stage == weir.Dead
	h.log.Debug("drain: discard asked", "message_id", e.Message.Public().String(), "seq", r.Seq,
		"fence", h.fence, "outcome", describeOutcome(isDead))
	if !isDead {
		return
	}

	at := storedTime(h.now())
	h.reportFinal(e, weir.Discarded, at)
	ch.Discard(e, r, at)
}

func describeOutcome(isGranted bool) string {
	if isGranted {
		return "granted"
	}
	return "refused"
}

// withdrawMessage removes a message from the read-ahead or from its block, and reports whether the
// message was still waiting. If the message was not read from the log yet, the read-ahead will skip
// the message.
func (h *requestHandler) withdrawMessage(e *lane.Entry, ch *lane.Change) bool {
	switch {
	case e.Stage.Final() || e.Stage == weir.Scheduled:
		return false
	case e.IsHeld:
		return h.withdrawHeld(e, ch)
	case e.Seq() >= h.readAhead.nextRead:
		h.readAhead.skipSeq(e.Seq())
		return true
	}

	return h.readAhead.removeSeq(e.Seq())
}

// withdrawHeld removes a message from its block. If the block waited for the retry of this message,
// the next message of the block can be sent at once.
func (h *requestHandler) withdrawHeld(e *lane.Entry, ch *lane.Change) bool {
	k := h.keys.findHolding(e)
	if k == nil || len(h.asked.held[k.ID]) == 0 {
		return false // there is no such queue, or its rows contradict each other (see setAside)
	}

	held := h.asked.held[k.ID]
	next, isAwaited := k.NextAt, held[0].Seq == e.Seq()

	// a message with Supersede can wait for its retry behind other messages
	if e.Message.Supersede {
		isAwaited = next.Sub(e.NextAttempt()).Abs() < time.Millisecond
	}

	h.asked.held[k.ID] = slices.DeleteFunc(held,
		func(m lane.HeldMessage) bool { return m.Seq == e.Seq() })
	h.keys.unpark(k, ch, e.AsHeld())

	if !isAwaited && k.MissingContract == "" && k.HeldCount > 0 {
		k.waitUntil(next)
		ch.SaveBlock(k.KeyBlock)
	}

	return true
}

// replayMessage puts a dead message back at its old position, before the waiting messages of its
// key. An unforced replay is refused if a later message of the key was delivered, or if no complete
// record of the deliveries exists.
func (h *requestHandler) replayMessage(ctx context.Context, r lane.Request, ch *lane.Change) error {
	e, reason := h.asked.messages[r.Seq], h.asked.obstacles[r.Seq]
	if r.Force {
		// An earlier unforced replay may have changed the message, so all changes are committed
		// before the read.
		if err := h.journal.waitBelow(ctx, 1); err != nil {
			return err
		}

		var err error
		if e, err = h.store.ReadMessage(ctx, h.lane, r.Seq); err != nil &&
			!storage.Is(err, storage.NotFound) {
			return err
		}

		reason = ""
	}

	if e == nil || e.Stage != weir.Dead {
		return nil
	}

	h.log.Debug("drain: replay asked", "message_id", e.Message.Public().String(), "seq", r.Seq,
		"fence", h.fence, "outcome", describeOutcome(reason == ""))

	if reason != "" {
		ch.RefuseReplay(e, reason)
		return nil
	}

	if old := e.EditedBlob(); old != "" && r.HasEdit() {
		h.replaced = append(h.replaced, old)
	}

	h.guard.pardon(r.Seq)
	ch.Replay(e, r, storedTime(h.now()))
	ch.SaveBlock(h.keys.requeueDead(e).KeyBlock)

	return nil
}

// removeReplaced removes bodies that edits have replaced. It is called after the edits are
// committed. It only logs a failure, because a body that remains does no harm.
func (h *requestHandler) removeReplaced(ctx context.Context) {
	for _, blob := range h.replaced {
		if err := h.store.RemoveBody(ctx, blob); err != nil {
			h.log.Warn("drain: edited body not removed", "err", err)
		}
	}
	h.replaced = nil
}

// forgetVersion grants a request to forget the version that was delivered last for a key and
// contract. When the change is committed, this version supersedes no message any more.
// forgetVersion also removes the version from the session's memory. Otherwise the session would
// still supersede messages because of that version.
func (h *requestHandler) forgetVersion(ctx context.Context, r lane.Request, ch *lane.Change) error {
	key := r.SupersedeKey()
	latest, err := h.store.DeliveryState().ReadLatestVersion(ctx, h.lane, key)
	if err != nil {
		return err
	}

	h.versions.remember(key, lane.LatestVersion{})
	if latest.IsZero() {
		return nil
	}

	ch.ForgetVersion(key)
	h.log.Info("drain: version forgotten", "message_id", latest.ID.String(), "fence", h.fence)

	return nil
}
