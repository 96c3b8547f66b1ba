package drain

import (
	"strings"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

// newRecorder returns an outcomeRecorder that allows three attempts, with retries after a minute.
func (p *sessionParts) newRecorder() *outcomeRecorder {
	return &outcomeRecorder{laneScope: p.laneScope, attempts: 3,
		braked: &brakedMessages{laneScope: p.laneScope, brakes: newBrakes(0, 0, Backoff{}),
			keys: p.keys, journal: p.journal},
		leastTime: leastTime{func(*lane.Entry) time.Duration { return 0 }},
		backoff:   Backoff{Steps: []time.Duration{time.Minute}, Rand: func() float64 { return 1 }},
		journal:   p.journal,
		readAhead: p.readAhead, keys: p.keys, breaker: p.breaker, guard: p.guard,
		history:    p.history,
		versions:   &latestVersions{store: p.store, byKey: map[string]lane.LatestVersion{}},
		remembered: p.remembered}
}

func (p *sessionParts) recordAndCommit(o *outcomeRecorder, c *candidate, result weir.Result) {
	p.t.Helper()
	result.StartedAt = p.now()
	if err := o.recordOutcome(p.t.Context(), c, result, result.Outcome); err != nil {
		p.t.Fatalf("recordOutcome: %v", err)
	}
	p.commitAll()
}

var rejected = newResult(weir.OutcomeRejected, 400)

// An outcome makes a message final, makes it wait for its retry, or does not change it.
func TestOutcomeRecorder_FromLog(t *testing.T) {
	for name, c := range map[string]struct {
		result   weir.Result
		attempts int // number of earlier attempts
		stage    weir.Stage
		isKept   bool // the message stays in readAhead.entries
		blocks   int
	}{
		"Delivered":       {fine, 0, weir.Delivered, false, 0},
		"DeliveredAtLast": {fine, 2, weir.Delivered, false, 0},
		"Rejected":        {rejected, 0, weir.Dead, false, 0},
		"Retry":           {flaky, 0, weir.Retrying, false, 1},
		"LastRetry":       {flaky, 2, weir.Dead, false, 0},
		"Unavailable":     {down, 0, weir.Queued, true, 0},
		"CutOff":          {weir.Result{Outcome: weir.OutcomeNone}, 0, weir.Queued, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			runWithParts(t, func(t *testing.T, p *sessionParts) {
				ids := p.appendMessages("a", "b")
				entries := p.readLog()
				for range c.attempts {
					entries[0].Record(flaky, p.fence, true)
				}

				p.recordAndCommit(p.newRecorder(), &candidate{entry: entries[0]}, c.result)
				p.expectStages(ids, c.stage, weir.Queued)

				if isKept := len(p.readAhead.entries) == 2; isKept != c.isKept ||
					len(p.keys.byID) != c.blocks {
					t.Errorf("kept in the read-ahead: %t, %d blocks; want %t, %d", isKept,
						len(p.keys.byID), c.isKept, c.blocks)
				}

				var want []weir.Stage
				if c.stage.Final() {
					want = append(want, c.stage)
				}

				p.finals.expectFinals(t, want...)
			})
		})
	}
}

// A retry comes after the backoff, or after Retry-After if that is longer. The key waits for the
// retry.
func TestOutcomeRecorder_SchedulesRetry(t *testing.T) {
	for name, c := range map[string]struct{ asked, want time.Duration }{
		"Backoff": {0, time.Minute}, "AskedForLater": {time.Hour, time.Hour},
		"AskedForEarlier": {time.Second, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			runWithParts(t, func(t *testing.T, p *sessionParts) {
				ids := p.appendMessages("a")
				result := flaky
				result.RetryAfter = c.asked
				e := p.readLog()[0]
				p.recordAndCommit(p.newRecorder(), &candidate{entry: e}, result)
				status, k := p.readStatus(ids[0]), p.keys.findHolding(e)
				if k == nil || k.HeldCount != 1 || k.NextAt.Sub(p.now()) != c.want ||
					!status.NextAttemptAt.Equal(k.NextAt) {
					t.Errorf("got the block %+v, next attempt %s; want one message in %s", k,
						status.NextAttemptAt, c.want)
				}
			})
		})
	}
}

// When the first message of a block is final, the next message may be sent at once. When the last
// message is final, the block is removed.
func TestOutcomeRecorder_FromBlock(t *testing.T) {
	runWithParts(t, func(t *testing.T, p *sessionParts) {
		ids := p.appendMessages("a", "a")
		entries, o := p.readLog(), p.newRecorder()
		k := p.holdMessages(p.now().Add(time.Hour), entries...)
		p.recordAndCommit(o, &candidate{entry: entries[0], block: k}, rejected)

		if k.HeldCount != 1 || k.NextAt.After(p.now()) {
			t.Errorf("after the first: got %d held, next at %s; want one that may go at %s",
				k.HeldCount, k.NextAt, p.now())
		}

		p.recordAndCommit(o, &candidate{entry: entries[1], block: k}, fine)
		p.expectStages(ids, weir.Dead, weir.Delivered)
		stored, err := p.store.DeliveryState().ReadBlocks(t.Context(), 0)
		if err != nil || len(stored) != 0 || len(p.keys.byID) != 0 {
			t.Errorf("after the last: got the blocks %v (%v), %d in memory; want none", stored, err,
				len(p.keys.byID))
		}

		// The later message of the key was delivered, so a replay of the dead message must be
		// refused.
		if _, err := p.store.Requests().Replay(t.Context(), ids[0],
			lane.ReplayOptions{}); weir.KindOf(err) != weir.Conflict {
			t.Errorf("replay: got %v, want a conflict, because a later message of the key was delivered", err)
		}
	})
}

// Tail has the text of the last error. A longer text is cut to at most maxLastError bytes, with a
// mark at its end, and the cut splits no character.
func TestOutcomeRecorder_LastError(t *testing.T) {
	runWithParts(t, func(t *testing.T, p *sessionParts) {
		p.appendMessages("a", "b")
		entries, o := p.readLog(), p.newRecorder()
		long := rejected
		long.Reason = "x" + strings.Repeat("ä", maxLastError)
		p.recordAndCommit(o, &candidate{entry: entries[0]}, long)
		failedAt := p.now()
		time.Sleep(time.Second)

		// a delivery does not clear the error
		p.recordAndCommit(o, &candidate{entry: entries[1]}, fine)
		tail := p.readControl().Tail
		if want := "x" + strings.Repeat("ä", maxLastError/2-1) + "…"; tail.LastError != want ||
			!tail.LastErrorAt.Equal(failedAt) {
			t.Errorf("got %q at %s, want %q at %s", tail.LastError, tail.LastErrorAt,
				want, failedAt)
		}
	})
}

// Thousands of messages can wait for an unavailable CMS, so none of them keeps its body in memory.
// A final message drops its body, too, because the commit can take a while.
func TestOutcomeRecorder_DropsBodies(t *testing.T) {
	for name, result := range map[string]weir.Result{"Unavailable": down, "Final": fine} {
		t.Run(name, func(t *testing.T) {
			runWithParts(t, func(t *testing.T, p *sessionParts) {
				p.appendMessages("a")
				e := p.readLog()[0]
				if err := p.store.LoadBody(t.Context(), e); err != nil || e.Message.Body == nil {
					t.Fatalf("LoadBody = %v with a body of %d bytes, want no error and a body", err,
						len(e.Message.Body))
				}

				p.recordAndCommit(p.newRecorder(), &candidate{entry: e}, result)
				if e.Message.Body != nil {
					t.Errorf("got %d bytes of the body in memory, want none", len(e.Message.Body))
				}
			})
		})
	}
}

// After crashes the holder is cautious: it names a message in tail before it sends the message, and
// commits the outcome before the next message. After that commit tail names no message.
func TestOutcomeRecorder_Cautious(t *testing.T) {
	runWithParts(t, func(t *testing.T, p *sessionParts) {
		p.appendMessages("a")
		e := p.readLog()[0]
		p.guard.cautiousLeft = 2
		if err := p.guard.recordInFlight(t.Context(), e.Seq()); err != nil || p.readControl().
			Tail.InFlightSeq != e.Seq() {
			t.Fatalf("before: got error %v, in flight %d; want %d", err,
				p.readControl().Tail.InFlightSeq, e.Seq())
		}

		if err := p.newRecorder().recordOutcome(t.Context(), &candidate{entry: e}, fine, fine.Outcome); err != nil {
			t.Fatal(err)
		}

		// the test calls no commitAll, because recordOutcome has already committed
		tail := p.readControl().Tail
		if tail.InFlightSeq != 0 || tail.Counts.Delivered != 1 || p.guard.cautiousLeft != 1 {
			t.Errorf("got in flight %d, %d delivered, %d left; want 0, 1, 1", tail.InFlightSeq,
				tail.Counts.Delivered, p.guard.cautiousLeft)
		}
	})
}

// A delivery removes the breaker's record of an earlier failure of the message, and records the
// message's version as the latest version.
func TestOutcomeRecorder_Delivered(t *testing.T) {
	runWithParts(t, func(t *testing.T, p *sessionParts) {
		p.appendMessage(weir.Message{Key: "a", Version: "7", Supersede: true})
		e, o := p.readLog()[0], p.newRecorder()
		p.breaker.suspects = map[int64]suspicion{e.Seq(): {}}
		p.recordAndCommit(o, &candidate{entry: e}, fine)
		latest, err := p.store.DeliveryState().ReadLatestVersion(t.Context(), 0, e.SupersedeKey())
		if err != nil || latest.Version != "7" || o.versions.byKey[e.SupersedeKey()] != latest {
			t.Errorf("got the latest version %+v (%v), remembered %+v; want 7, twice", latest, err,
				o.versions.byKey[e.SupersedeKey()])
		}

		if len(p.breaker.suspects) != 0 {
			t.Errorf("got the suspects %v, want none", p.breaker.suspects)
		}
	})
}
