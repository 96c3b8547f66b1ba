package drain

import (
	"context"
	"slices"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/weir"
)

// requestPage is how many requests are handled at once.
const requestPage = 30

// requestHandler does what others ask the holder for: cancel, replay, resume.
type requestHandler struct {
	laneScope
	journal   *journal
	readAhead *readAhead
	keys      *keyStates
	breaker   *breaker
	guard     *crashGuard
	history   *deliveryHistory
	due       interface {
		finishWrites(ctx context.Context) error
		invalidateDueTimes()
	}

	seen      int64         // head's request number as last read
	handled   int64         // the request number up to which requests were handled
	cancelled cancelledPage // by the page of requests that is being handled
	replaced  []string      // blobs of bodies that were edited anew
}

// cancelledPage are the messages that one page of requests is to cancel, and the first rows of the
// blocks that hold them, as storage has them before any of these requests is handled. Thousands may
// be cancelled at a time while no message is sent: they are read side by side.
type cancelledPage struct {
	messages map[int64]*lane.Entry
	held     map[string][]lane.HeldMessage // by block; shortened as messages are withdrawn
}

// hasNew reports whether there are requests to handle.
func (h *requestHandler) hasNew() bool { return h.seen != h.handled }

// handleNew handles all requests up to the request number that was seen. The number is raised for a
// rescheduled message, too, so the due times are read again afterwards.
func (h *requestHandler) handleNew(ctx context.Context) error {
	for h.hasNew() {
		target := h.seen
		// All decisions must be in storage, so that the rows of messages are up to date.
		if err := h.due.finishWrites(ctx); err != nil {
			return err
		}
		requests, err := h.store.PendingRequests(ctx, h.lane, requestPage)
		if err != nil {
			return err
		}
		if h.cancelled, err = h.readCancelled(ctx, requests); err != nil {
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

// handleOne grants or refuses a request, and removes it.
func (h *requestHandler) handleOne(ctx context.Context, r lane.Request) error {
	ch := &lane.Change{}
	ch.ResolveRequest(r)
	var err error
	switch r.Kind {
	case lane.RequestCancel:
		err = h.cancelMessage(r, ch)
	case lane.RequestReplay:
		err = h.replayMessage(ctx, r, ch)
	case lane.RequestResume:
		h.log.Info("drain: pause of the cms lifted", "fence", h.fence, "delay", h.breaker.pausedUntil.Sub(h.now()))
		h.breaker.liftPause()
	default: // of a later version of this program
		h.log.Error("drain: unknown wish refused", "seq", r.Seq, "err", "kind "+string(r.Kind))
	}
	if err != nil {
		return err
	}
	h.journal.record(ch, true)
	return nil
}

// readCancelled reads the messages that requests are to cancel.
func (h *requestHandler) readCancelled(ctx context.Context, requests []lane.Request) (cancelledPage, error) {
	entries := make([]*lane.Entry, len(requests))
	err := lane.ForEach(len(requests), func(i int) (err error) {
		r := requests[i]
		if r.Kind != lane.RequestCancel || r.Done {
			return nil
		}
		entries[i], err = h.store.ReadMessage(ctx, h.lane, r.Seq)
		if storage.Is(err, storage.NotFound) {
			return nil // final long ago, and removed by retention
		}
		return err
	})
	if err != nil {
		return cancelledPage{}, err
	}
	page := cancelledPage{messages: map[int64]*lane.Entry{}, held: map[string][]lane.HeldMessage{}}
	var blocks []string
	for i, e := range entries {
		if e == nil {
			continue
		}
		page.messages[requests[i].Seq] = e
		if k := h.keys.findHolding(e); e.IsHeld && k != nil && !slices.Contains(blocks, k.ID) {
			blocks = append(blocks, k.ID)
		}
	}
	held := make([][]lane.HeldMessage, len(blocks))
	err = lane.ForEach(len(blocks), func(i int) (err error) {
		held[i], err = h.store.ReadHeld(ctx, h.lane, blocks[i], requestPage+1)
		return err
	})
	for i, id := range blocks {
		page.held[id] = held[i]
	}
	return page, err
}

// cancelMessage cancels a message that is not final yet.
func (h *requestHandler) cancelMessage(r lane.Request, ch *lane.Change) error {
	e := h.cancelled.messages[r.Seq]
	if e == nil {
		return nil
	}
	waits := h.withdrawMessage(e, ch)
	h.log.Debug("drain: cancel asked", "message_id", e.Message.Public().String(), "seq", r.Seq, "fence", h.fence,
		"outcome", describeOutcome(waits))
	if !waits {
		return nil
	}
	h.breaker.forgetMessage(e)
	at := storedTime(h.now())
	h.reportFinal(e, weir.Cancelled, at)
	return ch.Finish(e, weir.Cancelled, at)
}

func describeOutcome(isGranted bool) string {
	if isGranted {
		return "granted"
	}
	return "refused"
}

// withdrawMessage takes a message out of the read-ahead or out of its block, and reports whether it
// was still waiting.
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

// withdrawHeld takes a message out of its block. Only if the block waited for this message may the
// others go before that time.
func (h *requestHandler) withdrawHeld(e *lane.Entry, ch *lane.Change) bool {
	k := h.keys.findHolding(e)
	if k == nil {
		return false
	}
	held := h.cancelled.held[k.ID]
	next, isAwaited := k.NextAt, len(held) > 0 && held[0].Seq == e.Seq()
	if e.Message.Supersede { // then it is not always the first that is tried
		isAwaited = next.Sub(e.NextAttempt()).Abs() < time.Millisecond
	}
	h.cancelled.held[k.ID] = slices.DeleteFunc(held, func(m lane.HeldMessage) bool { return m.Seq == e.Seq() })
	h.keys.unpark(k, ch, e.AsHeld())
	if !isAwaited && k.HeldCount > 0 {
		k.NextAt = next
		ch.SaveBlock(k.KeyBlock)
	}
	return true
}

// replayMessage takes a dead message back: to its old position, so in front of all that waits of
// its key. It is refused if a later message of its key was delivered meanwhile.
func (h *requestHandler) replayMessage(ctx context.Context, r lane.Request, ch *lane.Change) error {
	if r.Force { // the same may have been asked for before it without force
		if err := h.journal.waitBelow(ctx, 1); err != nil {
			return err
		}
	}
	e, err := h.store.ReadMessage(ctx, h.lane, r.Seq)
	if storage.Is(err, storage.NotFound) || (err == nil && e.Stage != weir.Dead) {
		return nil
	}
	if err != nil {
		return err
	}
	reason := ""
	if !r.Force {
		if reason, err = h.store.ReplayObstacle(ctx, e, h.history.sinceFence); err != nil {
			return err
		}
	}
	h.log.Debug("drain: replay asked", "message_id", e.Message.Public().String(), "seq", r.Seq, "fence", h.fence,
		"outcome", describeOutcome(reason == ""))
	if reason != "" {
		ch.RefuseReplay(e, reason)
		return nil
	}
	if old := e.EditedBlob(); old != "" && r.HasEdit() {
		h.replaced = append(h.replaced, old)
	}
	h.guard.pardon(r.Seq)
	ch.Replay(e, r, storedTime(h.now()), h.history.sinceFence)
	ch.SaveBlock(h.keys.requeueDead(e).KeyBlock)
	return nil
}

// removeReplaced removes the bodies that edits have replaced, once that is committed. One that
// stays is of no harm.
func (h *requestHandler) removeReplaced(ctx context.Context) {
	for _, blob := range h.replaced {
		if err := h.store.RemoveBody(ctx, blob); err != nil {
			h.log.Warn("drain: edited body not removed", "err", err)
		}
	}
	h.replaced = nil
}
