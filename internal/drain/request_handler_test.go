package drain

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

// fakeDueMover counts the calls of its methods. finishWrites returns err.
type fakeDueMover struct {
	finished, invalidated int
	err                   error
}

func (f *fakeDueMover) finishWrites(context.Context) error {
	f.finished++
	return f.err
}

func (f *fakeDueMover) invalidateDueTimes() { f.invalidated++ }

// newHandler returns a requestHandler that has read head's present request number. It also returns
// the handler's due mover.
func (p *sessionParts) newHandler() (*requestHandler, *fakeDueMover) {
	due := &fakeDueMover{}
	braked := &brakedMessages{laneScope: p.laneScope, brakes: newBrakes(0, 0, Backoff{}),
		keys: p.keys, journal: p.journal}
	return &requestHandler{laneScope: p.laneScope, journal: p.journal, readAhead: p.readAhead,
		keys: p.keys, braked: braked,
		breaker: p.breaker, guard: p.guard, history: p.history, due: due,
		seen: p.readControl().Head.RequestSeq}, due
}

// handleAll makes a new requestHandler handle all stored requests.
func (p *sessionParts) handleAll() {
	p.t.Helper()
	h, due := p.newHandler()
	if err := h.handleNew(p.t.Context()); err != nil {
		p.t.Fatalf("handleNew: %v", err)
	}

	if h.hasNew() || due.finished == 0 || due.invalidated != 1 {
		p.t.Errorf("after handleNew: new requests %t, moves finished %d times, due times read anew %d times; "+
			"want none, at least once, and once", h.hasNew(), due.finished, due.invalidated)
	}

	left, err := p.store.DeliveryState().PendingRequests(p.t.Context(), 0, 1)
	if err != nil || len(left) > 0 {
		p.t.Errorf("got the requests %v (%v), want none left", left, err)
	}
}

func (p *sessionParts) requestCancel(ids ...weir.ID) {
	p.t.Helper()
	for _, id := range ids {
		if _, err := p.store.Requests().Cancel(p.t.Context(), id); err != nil {
			p.t.Fatalf("cancel: %v", err)
		}
	}
}

func (p *sessionParts) requestReplay(id weir.ID, force bool) {
	p.t.Helper()
	if _, err := p.store.Requests().Replay(p.t.Context(), id, lane.ReplayOptions{Force: force}); err != nil {
		p.t.Fatalf("replay: %v", err)
	}
}

func TestRequestHandler_NothingNew(t *testing.T) {
	t.Parallel()
	due := &fakeDueMover{}
	h := &requestHandler{seen: 3, handled: 3, due: due} // without storage, so a read would panic
	if err := h.handleNew(t.Context()); err != nil || due.finished != 0 {
		t.Errorf("got the error %v and %d calls, want none", err, due.finished)
	}
}

// A request can cancel a message in the read-ahead, and a message that was not read yet. A final
// message keeps its stage.
func TestRequestHandler_CancelFromLog(t *testing.T) {
	runWithParts(t, func(t *testing.T, p *sessionParts) {
		ids := p.appendMessages("a", "b", "c")
		entries := p.readLog()

		// these two messages are not in the read-ahead
		ids = append(ids, p.appendMessages("d", "e")...)
		p.requestCancel(ids[0], ids[1], ids[3])
		p.commitFinal(entries[1], weir.Delivered)
		p.handleAll()
		p.expectStages(ids, weir.Cancelled, weir.Delivered, weir.Queued, weir.Cancelled,
			weir.Queued)

		if len(p.readAhead.entries) != 1 || p.readAhead.entries[0] != entries[2] ||
			!p.readAhead.skipped[4] {
			t.Errorf("got the read-ahead %v, skipped %v; want message 3 alone, and 4 skipped",
				p.readAhead.entries, p.readAhead.skipped)
		}

		p.finals.expectFinals(t, weir.Cancelled, weir.Cancelled)
	})
}

// A block waits for the retry of one message. If that message is cancelled, the next message of the
// block can be sent at once. If another message of the block is cancelled, the block still waits.
func TestRequestHandler_CancelHeld(t *testing.T) {
	for name, c := range map[string]struct {
		cancelled int // index of the message
		waits     bool
	}{"First": {0, false}, "Second": {1, true}} {
		t.Run(name, func(t *testing.T) {
			runWithParts(t, func(t *testing.T, p *sessionParts) {
				ids := p.appendMessages("a", "a", "a")
				retryAt := p.now().Add(time.Hour)
				k := p.holdMessages(retryAt, p.readLog()...)
				p.requestCancel(ids[c.cancelled])
				p.handleAll()
				if stage := p.readStatus(ids[c.cancelled]).Stage; stage != weir.Cancelled {
					t.Errorf("got the stage %s, want cancelled", stage)
				}

				if waits := k.NextAt.Equal(retryAt); waits != c.waits || k.HeldCount != 2 {
					t.Errorf("the block waits for the retry: %t, with %d messages; want %t, 2",
						waits, k.HeldCount, c.waits)
				}

				stored, err := p.store.DeliveryState().ReadBlocks(t.Context(), 0)
				if err != nil || len(stored) != 1 || stored[0].HeldCount != 2 ||
					!stored[0].NextAt.Equal(k.NextAt) {
					t.Errorf("got the stored blocks %+v (%v), want one like %+v", stored, err,
						k.KeyBlock)
				}
			})
		})
	}
}

// When the last held message of a block is cancelled, the block is removed.
func TestRequestHandler_CancelAllHeld(t *testing.T) {
	runWithParts(t, func(t *testing.T, p *sessionParts) {
		ids := p.appendMessages("a", "a")
		p.holdMessages(p.now().Add(time.Hour), p.readLog()...)
		p.requestCancel(ids...)
		p.handleAll()
		p.expectStages(ids, weir.Cancelled, weir.Cancelled)

		if stored, err := p.store.DeliveryState().ReadBlocks(t.Context(), 0); err != nil ||
			len(stored) != 0 ||
			len(p.keys.byID) != 0 {
			t.Errorf("got the blocks %+v (%v) and %d in memory, want none", stored, err,
				len(p.keys.byID))
		}
	})
}

// One call of handleNew handles all requests, even if they fill several pages.
func TestRequestHandler_Pages(t *testing.T) {
	runWithParts(t, func(t *testing.T, p *sessionParts) {
		ids := p.appendMessages(slices.Repeat([]string{"a", "b", "c"}, requestPage)...)
		p.readLog()
		p.requestCancel(ids...)
		p.handleAll()

		if got := p.readControl().Tail.Counts.Cancelled; got != int64(len(ids)) ||
			len(p.readAhead.entries) != 0 {
			t.Errorf("got %d cancelled and %d left in the read-ahead, want all %d cancelled", got,
				len(p.readAhead.entries), len(ids))
		}
	})
}

// A replayed message is held. The crash guard no longer takes the message for the cause of a crash.
func TestRequestHandler_Replay(t *testing.T) {
	runWithParts(t, func(t *testing.T, p *sessionParts) {
		ids := p.appendMessages("a", "a")
		entries := p.readLog()
		p.commitFinal(entries[0], weir.Dead)
		p.guard.poisonSeq = 1
		p.requestReplay(ids[0], false)
		p.handleAll()
		p.expectStages(ids, weir.Queued, weir.Queued)
		k := p.keys.findHolding(entries[0])
		if k == nil || k.HeldCount != 1 || k.NextAt.After(p.now()) || p.guard.poisonSeq != 0 {
			t.Errorf("got the block %+v and poison %d, want one message that may go now, and no poison", k,
				p.guard.poisonSeq)
		}
	})
}

// The holder refuses an unforced replay if a later message of the key was delivered after the
// request was made. It grants a forced replay.
func TestRequestHandler_ReplayBehindADelivery(t *testing.T) {
	for name, force := range map[string]bool{"Refused": false, "Forced": true} {
		t.Run(name, func(t *testing.T) {
			runWithParts(t, func(t *testing.T, p *sessionParts) {
				ids := p.appendMessages("a", "a")
				entries := p.readLog()
				p.commitFinal(entries[0], weir.Dead)
				p.requestReplay(ids[0], force)
				p.commitFinal(entries[1], weir.Delivered)
				p.handleAll()
				status := p.readStatus(ids[0])
				isRefused := status.Stage == weir.Dead &&
					strings.Contains(status.ReplayRefused, ids[1].String())
				if isRefused == force || !force && len(p.keys.byID) > 0 {
					t.Errorf("got the stage %s, refused because of %q, %d blocks; want it refused: %t", status.Stage,
						status.ReplayRefused, len(p.keys.byID), !force)
				}
			})
		})
	}
}

func TestRequestHandler_Resume(t *testing.T) {
	runWithParts(t, func(t *testing.T, p *sessionParts) {
		p.breaker.classifyResult(newEntry(1, "a"), down, p.now())
		p.breaker.classifyResult(newEntry(2, "b"), down, p.now())
		ch := &lane.Change{}
		ch.UpdateTail(func(tail *lane.Tail) { p.breaker.saveTo(tail) })
		p.journal.record(ch, true)
		p.commitAll()
		if err := p.store.Pauses().Resume(t.Context(), 0, ""); err != nil {
			t.Fatal(err)
		}

		p.handleAll()
		if until := p.breaker.closedUntil(); until.After(p.now()) {
			t.Errorf("the lane is closed until %s, want it open at %s", until, p.now())
		}
	})
}

// If storage fails, the requests stay new, and the next call of handleNew handles them.
func TestRequestHandler_StorageFails(t *testing.T) {
	runWithParts(t, func(t *testing.T, p *sessionParts) {
		ids := p.appendMessages("a")
		p.readLog()
		p.requestCancel(ids...)

		for name, isFailing := range map[string]func(storagetest.Call) bool{
			"list of requests": func(c storagetest.Call) bool {
				return c.Op == "Range" && strings.HasPrefix(c.Key,
					"w_")
			},
			"row of a cancelled one": func(c storagetest.Call) bool {
				return c.Op == "Get" && strings.HasPrefix(c.Key,
					"m_")
			},
		} {
			h, due := p.newHandler()
			p.faults.Once(isFailing, storagetest.Fault{Kind: storagetest.FailBefore})
			if err := h.handleNew(t.Context()); err == nil || !h.hasNew() || due.invalidated != 0 {
				t.Errorf("%s: got the error %v, new requests %t; want an error and the requests still new", name, err,
					h.hasNew())
			}
		}

		moves := errors.New("moves not written") // the error of finishWrites
		h, due := p.newHandler()
		if due.err = moves; !errors.Is(h.handleNew(t.Context()), moves) || !h.hasNew() {
			t.Errorf("want the error of the moves, and the requests still new: %t", h.hasNew())
		}

		p.handleAll()
		p.expectStages(ids, weir.Cancelled)
	})
}
