package drain

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/lane"
	"weir/internal/lease"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

// fakeHost is an attemptHost that moves no messages.
type fakeHost struct {
	isPaused bool
	err      error
}

func (h *fakeHost) canSend(context.Context, *lane.Entry) (bool, error) { return !h.isPaused, h.err }

func (h *fakeHost) moveDueUntil(_ context.Context, _ *lane.Entry,
	sent <-chan weir.Result) weir.Result {
	return <-sent
}

// recordingSender is a Sender that records the deliveries.
type recordingSender struct {
	mu         sync.Mutex
	deliveries []weir.Delivery
	answer     func() weir.Result // nil = delivered
}

// Send implements Sender.
func (s *recordingSender) Send(_ context.Context, d weir.Delivery) weir.Result {
	s.mu.Lock()
	s.deliveries = append(s.deliveries, d)
	s.mu.Unlock()
	if s.answer != nil {
		return s.answer()
	}
	return fine
}

// testAttempter is an attempter with the parts that a test changes or checks.
type testAttempter struct {
	*attempter
	parts     *sessionParts
	sender    *recordingSender
	host      *fakeHost
	isTrusted bool
	log       *strings.Builder
}

// runWithAttempter runs f in virtual time, with an attempter and the entry of a message that can be
// sent.
func runWithAttempter(t *testing.T, f func(t *testing.T, a *testAttempter, e *lane.Entry)) {
	t.Helper()
	runWithParts(t, func(t *testing.T, p *sessionParts) {
		a := &testAttempter{parts: p, sender: &recordingSender{}, host: &fakeHost{},
			isTrusted: true, log: &strings.Builder{}}
		p.laneScope.log = slog.New(slog.NewTextHandler(a.log, nil))
		d := New(Config{Sender: a.sender, Now: time.Now, AtOnce: 1})
		t.Cleanup(func() {
			if err := d.Close(context.Background()); err != nil {
				t.Errorf("Close = %v, want no error", err)
			}
		})

		a.attempter = &attempter{laneScope: p.laneScope, drainer: d, guard: p.guard,
			history: p.history, prefetch: &bodyPrefetch{store: p.store, room: newPrefetchRoom()},
			leastTime: leastTime{d.retryFor}, remembered: p.remembered,
			missing:   &missingContracts{laneScope: p.laneScope, patience: time.Hour},
			isTrusted: func() bool { return a.isTrusted }, host: a.host}

		p.appendMessages("a")
		f(t, a, p.readLog()[0])
	})
}

// expectFreeSeat checks that no attempt has the only seat.
func (a *testAttempter) expectFreeSeat(t *testing.T) {
	t.Helper()
	if !a.drainer.seats.TryAcquire(1) {
		t.Fatal("got a seat that is taken after the attempt, want it free")
	}
	a.drainer.seats.Release(1)
}

// expectUnsent checks that the attempt made no request and left no seat taken.
func (a *testAttempter) expectUnsent(t *testing.T) {
	t.Helper()
	if n := len(a.sender.deliveries); n != 0 {
		t.Errorf("got %d requests, want none", n)
	}
	a.expectFreeSeat(t)
}

func TestAttempter_Sends(t *testing.T) {
	runWithAttempter(t, func(t *testing.T, a *testAttempter, e *lane.Entry) {
		result, err := a.sendMessage(t.Context(), &candidate{entry: e})
		if err != nil || result.Outcome != weir.OutcomeDelivered || len(a.sender.deliveries) != 1 {
			t.Fatalf("got %+v (%v) and %d requests, want one that is delivered", result, err,
				len(a.sender.deliveries))
		}

		d := a.sender.deliveries[0]
		if string(d.Message.Body) != "<a/>" || d.Fence != a.fence || d.Attempt != 1 ||
			!d.Since.Equal(e.Message.AcceptedAt) {
			t.Errorf("got the delivery %+v, want the body, fence %d, attempt 1, since the acceptance", d, a.fence)
		}

		a.expectFreeSeat(t)
	})
}

// For a retry, Delivery.Since is the end of the previous attempt.
func TestAttempter_Retry(t *testing.T) {
	runWithAttempter(t, func(t *testing.T, a *testAttempter, e *lane.Entry) {
		last := weir.Result{Outcome: weir.OutcomeRetry, StartedAt: a.now().Add(time.Minute),
			Duration: time.Second}
		e.Record(last, a.fence, true)
		if _, err := a.sendMessage(t.Context(), &candidate{entry: e}); err != nil {
			t.Fatal(err)
		}

		want := last.StartedAt.Add(last.Duration)
		if d := a.sender.deliveries[0]; d.Attempt != 2 || !d.Since.Equal(want) {
			t.Errorf("got attempt %d since %s, want attempt 2 since %s", d.Attempt, d.Since, want)
		}
	})
}

// For each reason not to send a message, sendMessage returns the right outcome or error, and keeps
// no seat.
func TestAttempter_DoesNotSend(t *testing.T) {
	storageFails := func(c storagetest.Call) bool { return c.Op == "Get" }
	for name, c := range map[string]struct {
		prepare func(a *testAttempter, e *lane.Entry)
		outcome weir.Outcome
		reason  string
		err     error
	}{
		"Poison": {func(a *testAttempter, e *lane.Entry) { a.guard.poisonSeq = e.Seq() },
			weir.OutcomeRejected, "3 times in a row", nil},
		"Paused": {func(a *testAttempter, _ *lane.Entry) { a.host.isPaused = true },
			weir.OutcomeNone, "it was paused", nil},
		"PausesNotRead": {func(a *testAttempter, _ *lane.Entry) { a.host.err = context.Canceled },
			weir.OutcomeNone, "it was paused", context.Canceled},
		"LeaseNotTrusted": {func(a *testAttempter, _ *lane.Entry) { a.isTrusted = false }, "", "",
			lease.ErrLost},
		"PastDeadline": {func(a *testAttempter, _ *lane.Entry) { a.drainer.NotAfter = a.now().Add(-time.Second) },
			weir.OutcomeNone, "no time left", nil},
		"BodyNotRead": {func(a *testAttempter, e *lane.Entry) {
			e.DropBody()
			a.parts.faults.Once(storageFails,
				storagetest.Fault{Kind: storagetest.FailBefore, Err: errNotRead})
		}, weir.OutcomeUnavailable, "storage does not return the message's body at present", nil},
		"HistoryNotRead": {func(a *testAttempter, e *lane.Entry) {
			e.Message.Skip = true
			a.history.tracked.addKey(e.KeyHash())
			a.parts.faults.Once(storageFails,
				storagetest.Fault{Kind: storagetest.FailBefore, Err: errNotRead})
		}, "", "", errNotRead},
	} {
		t.Run(name, func(t *testing.T) {
			runWithAttempter(t, func(t *testing.T, a *testAttempter, e *lane.Entry) {
				c.prepare(a, e)
				result, err := a.sendMessage(t.Context(), &candidate{entry: e})
				if result.Outcome != c.outcome || !strings.Contains(result.Reason, c.reason) ||
					!errors.Is(err, c.err) {
					t.Errorf("got %q because of %q, error %v; want %q, %q, %v", result.Outcome,
						result.Reason, err, c.outcome, c.reason, c.err)
				}

				a.expectUnsent(t)
			})
		})
	}
}

var errNotRead = errors.New("not read")

// A message whose body is gone can never be sent. The attempter rejects the message, so that later
// messages of its key can be sent.
func TestAttempter_BodyIsGone(t *testing.T) {
	runWithAttempter(t, func(t *testing.T, a *testAttempter, e *lane.Entry) {
		gone := (&lane.Store{}).NewEntry(
			weir.Message{ID: weir.ID{Epoch: e.Message.ID.Epoch, Seq: 99}, Key: "a"})
		gone.DropBody()
		result, err := a.sendMessage(t.Context(), &candidate{entry: gone})
		if err != nil || result.Outcome != weir.OutcomeRejected ||
			!strings.Contains(result.Reason, "body is gone") {
			t.Errorf("got %+v (%v), want it rejected because of its body", result, err)
		}

		a.expectUnsent(t)
	})
}

// If an attempt would begin after Config.NotAfter, the attempter stops all new work of the Drainer.
func TestAttempter_DeadlineEndsTheDrainer(t *testing.T) {
	runWithAttempter(t, func(t *testing.T, a *testAttempter, e *lane.Entry) {
		a.drainer.NotAfter = a.now()
		if _, err := a.sendMessage(t.Context(), &candidate{entry: e}); err != nil ||
			a.drainer.openCtx.Err() != nil {
			t.Errorf("at the deadline: got error %v, new work %v; want the message sent", err,
				a.drainer.openCtx.Err())
		}

		time.Sleep(time.Nanosecond)

		if _, err := a.sendMessage(t.Context(), &candidate{entry: e}); err != nil ||
			a.drainer.openCtx.Err() == nil {
			t.Errorf("after the deadline: got error %v and new work, want none", err)
		}

		if n := len(a.sender.deliveries); n != 1 {
			t.Errorf("got %d requests, want one", n)
		}
	})
}

// A panic is no verdict about the message, which is tried again, and shows nothing about the CMS.
func TestAttempter_PanicIsNoVerdict(t *testing.T) {
	runWithAttempter(t, func(t *testing.T, a *testAttempter, e *lane.Entry) {
		a.sender.answer = func() weir.Result { panic("boom") }
		result, err := a.sendMessage(t.Context(), &candidate{entry: e})
		if err != nil || result.Outcome != weir.OutcomeRetry || !result.IsOwnFault ||
			result.StartedAt.IsZero() ||
			strings.Contains(result.Reason, "boom") {
			t.Errorf("got %+v (%v), want a retry of Weir's own fault, without the text of the panic", result, err)
		}

		if !strings.Contains(a.log.String(), "boom") {
			t.Errorf("got the log %q, want the panic in it", a.log)
		}
	})
}

// The Drainer of this test has one seat, which an attempt takes. So an attempt waits while an
// attempt of another lane is under way. If the context of the waiting attempt ends, sendMessage
// returns the context's cause.
func TestAttempter_WaitsForASeat(t *testing.T) {
	runWithAttempter(t, func(t *testing.T, a *testAttempter, e *lane.Entry) {
		// the seat of an attempt of another lane
		if err := a.drainer.seats.Acquire(t.Context(), 1); err != nil {
			t.Fatal(err)
		}

		limited, cancel := context.WithTimeoutCause(t.Context(), time.Second, lease.ErrLost)
		defer cancel()
		if _, err := a.sendMessage(limited, &candidate{entry: e}); !errors.Is(err, lease.ErrLost) {
			t.Errorf("got error %v while the seat is taken, want %v", err, lease.ErrLost)
		}

		done := make(chan error, 1)
		go func() {
			_, err := a.sendMessage(t.Context(), &candidate{entry: e})
			done <- err
		}()

		synctest.Wait()
		if n := len(a.sender.deliveries); n != 0 {
			t.Fatalf("got %d requests while the seat is taken, want none", n)
		}

		a.drainer.seats.Release(1)

		if err := <-done; err != nil || len(a.sender.deliveries) != 1 {
			t.Errorf("got error %v and %d requests, want the message sent once the seat is free",
				err, len(a.sender.deliveries))
		}
	})
}
