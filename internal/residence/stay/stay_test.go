package stay_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/drain"
	"weir/internal/residence/stay"
	"weir/internal/ticket"
)

// drains has a channel for each lane of one process. A drain or a claim goes on until the test
// sends a report for the lane. A claim also ends after 15 s.
type drains map[int]chan drain.Report

func (d drains) Look(_ context.Context, lane int) drain.Report {
	if lane == elsewhere || lane == putBack {
		return drain.Report{State: drain.Busy}
	}
	return drain.Report{State: drain.Working}
}

func (d drains) Join(ctx context.Context, lane int) drain.Report {
	select {
	case r := <-d[lane]:
		return r
	case <-ctx.Done():
		return drain.Report{State: drain.Working}
	}
}

// elsewhere and putBack are lanes that another process holds. The queue always has a requeued
// ticket for putBack.
const elsewhere, putBack = 3, 2

func (d drains) Claim(ctx context.Context, lane int) drain.Report {
	limited, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()

	select {
	case r := <-d[lane]:
		return r
	case <-limited.Done():
		return drain.Report{State: drain.Busy}
	}
}

// heldDrains extends drains: Held returns lanes that the test sets, and Look reports a fence for
// the lanes that another process holds.
type heldDrains struct {
	drains
	mu          sync.Mutex
	lanes       []int // the lanes that Held returns
	holderFence int64 // the fence of the process that holds elsewhere and putBack
}

func (d *heldDrains) Look(ctx context.Context, lane int) drain.Report {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.drains.Look(ctx, lane)
	if r.State == drain.Busy {
		r.HolderFence = d.holderFence
	}
	return r
}

func (d *heldDrains) setHolderFence(fence int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.holderFence = fence
}

func (d *heldDrains) Held() []int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lanes
}

func (d *heldDrains) setHeld(lanes ...int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lanes = lanes
}

// calls implements stay.Permit, stay.Tickets and HandOver of stay.Drainer. It records all calls
// except MarkReceived and AwaitsRequeued.
type calls struct {
	mu    sync.Mutex
	start time.Time
	lanes []int           // the lane of each call of Enqueue and EnqueueAt
	after []time.Duration // the time from start to each call in lanes
	other []string        // all other calls; each text begins with the time since start
}

func (r *calls) addLane(lane int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lanes, r.after = append(r.lanes, lane), append(r.after, time.Since(r.start))
	return nil
}

// recordCall records a call other than Enqueue and EnqueueAt.
func (r *calls) recordCall(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.other = append(r.other, fmt.Sprintf("%s ", time.Since(r.start))+fmt.Sprintf(format, args...))
}

func (r *calls) EnqueueNow(_ context.Context, lane int) error {
	r.recordCall("enqueue %d", lane)
	return nil
}
func (r *calls) EnqueueRelief(_ context.Context, lane int) error {
	r.recordCall("relieve %d", lane)
	return nil
}
func (r *calls) Attend()           { r.recordCall("attend") }
func (r *calls) Yield()            { r.recordCall("yield") }
func (r *calls) StopTaking()       { r.recordCall("stop taking") }
func (r *calls) HandOver(lane int) { r.recordCall("hand over %d", lane) }

func (r *calls) checkCalls(t *testing.T, want ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.other, want) {
		t.Errorf("got the calls %q, want %q", r.other, want)
	}
}

func (r *calls) MarkReceived(int)                                         {}
func (r *calls) Enqueue(_ context.Context, lane int) error                { return r.addLane(lane) }
func (r *calls) EnqueueAt(_ context.Context, lane int, _ time.Time) error { return r.addLane(lane) }
func (r *calls) AwaitsRequeued(lane int) bool                             { return lane == putBack }
func (r *calls) Requeue(_ context.Context, lane int, about time.Duration) error {
	r.recordCall("requeue %d after %s", lane, about)
	return nil
}

// checkLanes compares the lanes of all calls of Enqueue and EnqueueAt with the wanted lanes, which
// must be sorted.
func (r *calls) checkLanes(t *testing.T, lanes ...int) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if got := slices.Sorted(slices.Values(r.lanes)); !slices.Equal(got, lanes) {
		t.Errorf("got tickets of lanes %v after %v, want %v", got, r.after, lanes)
	}
}

// recordedDrains has HandOver of calls, and all other methods of heldDrains.
type recordedDrains struct {
	*heldDrains
	*calls
}

// instance is a stay.Answerer with its fakes.
type instance struct {
	f      *stay.Answerer
	drains *heldDrains
	calls  *calls
}

func (o *instance) endDrain(lane int) { o.drains.drains[lane] <- drain.Report{State: drain.Idle} }

func newInstance(lanes int) *instance {
	o := &instance{drains: &heldDrains{drains: drains{}}, calls: &calls{start: time.Now()}}
	for lane := range lanes {
		o.drains.drains[lane] = make(chan drain.Report)
	}

	o.f = &stay.Answerer{
		Drainer: recordedDrains{o.drains, o.calls},
		Permit:  o.calls,
		Tickets: o.calls,
		Lanes:   lanes,
		Lease:   30 * time.Second,
		Now:     time.Now,
		Logger:  slog.New(slog.NewTextHandler(io.Discard, nil)),
	}

	return o
}

// answerTicket begins an invocation for a ticket. The returned channel gets the invocation's
// result.
func (o *instance) answerTicket(ctx context.Context, lane int) <-chan error {
	done := make(chan error, 1)
	go func() {
		done <- o.f.Answer(ctx, lane)
	}()
	synctest.Wait()
	return done
}

func checkAnswered(t *testing.T, what string, done <-chan error, want bool) {
	t.Helper()
	synctest.Wait()

	select {
	case err := <-done:
		if !want || err != nil {
			t.Errorf("%s: got an answer with the error %v; want an answer: %t, and no error",
				what, err, want)
		}

	default:
		if want {
			t.Errorf("%s: its invocation stays; want an answer", what)
		}
	}
}

func TestAnswerer_OneInvocationStays(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T, o *instance){
		"UntilAllItsLanesAreDrained": func(t *testing.T, o *instance) {
			first := o.answerTicket(t.Context(), 0)
			checkAnswered(t, "the ticket of another lane", o.answerTicket(t.Context(), 1), true)
			checkAnswered(t, "the ticket of all lanes",
				o.answerTicket(t.Context(), ticket.AllLanes), true)
			o.endDrain(0)
			checkAnswered(t, "the first ticket", first, false)
			o.drains.drains[1] <- drain.Report{State: drain.Waiting,
				Until: time.Now().Add(time.Minute)}
			synctest.Wait()
			o.calls.checkLanes(t, 1)
			o.endDrain(2)
			checkAnswered(t, "the first ticket", first, true)
			o.calls.checkLanes(t, 1)
		},
		"ForAMinuteAndThenEnqueuesATicketForEachLane": func(t *testing.T, o *instance) {
			first := o.answerTicket(t.Context(), 0)
			for range 3 {
				checkAnswered(t, "another ticket", o.answerTicket(t.Context(), 1), true)
			}

			time.Sleep(time.Minute - 1)
			checkAnswered(t, "the first ticket", first, false)
			o.calls.checkLanes(t)
			time.Sleep(time.Nanosecond)
			checkAnswered(t, "the first ticket", first, true)
			o.calls.checkLanes(t, 0, 1)
		},
		"AndTheNextOneAfterIt": func(t *testing.T, o *instance) {
			first := o.answerTicket(t.Context(), 0)
			time.Sleep(time.Minute)
			checkAnswered(t, "the first ticket", first, true)
			second := o.answerTicket(t.Context(), 0)
			checkAnswered(t, "the second ticket", second, false)
			o.endDrain(0)
			checkAnswered(t, "the second ticket", second, true)
		},
		"WithALaneThatHasWorkAgain": func(t *testing.T, o *instance) {
			first := o.answerTicket(t.Context(), 0)
			checkAnswered(t, "another ticket", o.answerTicket(t.Context(), 1), true)
			o.endDrain(1)
			synctest.Wait()
			checkAnswered(t, "another ticket", o.answerTicket(t.Context(), 1), true)
			time.Sleep(time.Minute)
			checkAnswered(t, "the first ticket", first, true)
			o.calls.checkLanes(t, 0, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, newInstance(3)) })
		})
	}
}

func TestAnswerer_InvocationsRelieveEachOther(t *testing.T) {
	t.Parallel()
	working := drain.Report{State: drain.Working}
	for name, test := range map[string]func(t *testing.T, o *instance){
		"NextTakesOver": func(t *testing.T, o *instance) {
			first := o.answerTicket(t.Context(), 1)
			o.answerTicket(t.Context(), 0)
			time.Sleep(10 * time.Second)
			checkAnswered(t, "the first ticket", first, false)
			second := o.answerTicket(t.Context(), 0)
			checkAnswered(t, "the first ticket", first, true)
			time.Sleep(time.Minute - 1)
			checkAnswered(t, "the second ticket", second, false)
			o.calls.checkCalls(t, "0s attend", "10s relieve 0", "10s attend", "20s relieve 0",
				"35s relieve 0", "50s relieve 0",
				"55s yield", "55s stop taking", "55s enqueue 0", "55s enqueue 1", "1m8s yield",
				"1m8s hand over 0",
				"1m8s hand over 1")

			o.calls.checkLanes(t)
		},
		"NextHasALaneThatIsHeldElsewhere": func(t *testing.T, o *instance) {
			first := o.answerTicket(t.Context(), 0)
			o.answerTicket(t.Context(), 1)
			o.endDrain(1)
			time.Sleep(50 * time.Second)
			second := o.answerTicket(t.Context(), elsewhere)
			checkAnswered(t, "the first ticket", first, true)
			time.Sleep(9 * time.Second)
			o.endDrain(0)
			checkAnswered(t, "the second ticket", second, false)
			time.Sleep(6 * time.Second)
			checkAnswered(t, "the second ticket", second, true)
			o.calls.checkCalls(t, "0s attend", "10s relieve 0", "25s relieve 0", "40s relieve 0",
				"45s yield", "45s stop taking", "45s enqueue 0", "50s attend",
				fmt.Sprintf("1m5s requeue %d after 30s", elsewhere), "1m5s yield")
		},
		"ClaimedLaneKeepsItsInvocation": func(t *testing.T, o *instance) {
			claiming := o.answerTicket(t.Context(), elsewhere)
			time.Sleep(3 * time.Second)
			o.drains.drains[elsewhere] <- working
			time.Sleep(8 * time.Second)
			o.endDrain(elsewhere)
			checkAnswered(t, "the claiming one", claiming, true)
			o.calls.checkCalls(t, "0s attend", fmt.Sprintf("10s relieve %d", elsewhere),
				"11s yield")
		},
		"LaneIsClaimedOnceFromEachHolder": func(t *testing.T, o *instance) {
			o.drains.setHolderFence(7)
			first := o.answerTicket(t.Context(), putBack)
			checkAnswered(t, "the first ticket", first, false)
			time.Sleep(15 * time.Second)
			checkAnswered(t, "the first ticket after its claim", first, true)
			checkAnswered(t, "a ticket that meets the same holder",
				o.answerTicket(t.Context(), putBack), true)
			o.drains.setHolderFence(8)
			checkAnswered(t, "a ticket that meets the next holder",
				o.answerTicket(t.Context(), putBack), false)
		},
		"InvocationThatTheHostGivesUpHandsItsLanesOver": func(t *testing.T, o *instance) {
			ctx, giveUp := context.WithCancel(t.Context())
			first := o.answerTicket(ctx, 0)
			time.Sleep(time.Second)
			giveUp()
			checkAnswered(t, "the first ticket", first, true)
			o.calls.checkCalls(t, "0s attend", "1s yield", "1s hand over 0", "1s yield")
			o.calls.checkLanes(t, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, newInstance(4)); time.Sleep(2 * time.Minute) })
		})
	}
}

// A process can hold a lane that no ticket named: it takes the lane after it has appended a message
// to the lane.
func TestAnswerer_StaysWithLanesThatNoTicketNamed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T, o *instance){
		"UntilTheyAreFree": func(t *testing.T, o *instance) {
			first := o.answerTicket(t.Context(), 0)
			o.drains.setHeld(1)
			o.endDrain(0)
			checkAnswered(t, "the invocation", first, false)
			o.drains.setHeld()
			o.endDrain(1)
			checkAnswered(t, "the invocation", first, true)
			o.calls.checkCalls(t, "0s attend", "0s yield")
		},
		"FromTheTicketOfAnotherLaneOn": func(t *testing.T, o *instance) {
			o.drains.setHeld(1)
			first := o.answerTicket(t.Context(), 0)
			o.endDrain(0)
			checkAnswered(t, "the invocation", first, false)
			o.drains.setHeld()
			o.endDrain(1)
			checkAnswered(t, "the invocation", first, true)
		},
		"AndHandsThemOver": func(t *testing.T, o *instance) {
			first := o.answerTicket(t.Context(), 0)
			time.Sleep(30 * time.Second)
			o.drains.setHeld(0, 1)
			time.Sleep(20 * time.Second)
			o.drains.setHeld(0, 1, 2)
			time.Sleep(10 * time.Second)
			checkAnswered(t, "the invocation", first, true)
			o.calls.checkCalls(t, "0s attend", "10s relieve 0", "25s relieve 0", "40s relieve 0",
				"45s yield", "45s stop taking",
				"45s enqueue 0", "45s enqueue 1", "58s yield", "58s hand over 0", "58s hand over 1",
				"58s hand over 2",
				"1m0s yield")

			o.calls.checkLanes(t, 0, 1, 2)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, newInstance(3)); time.Sleep(2 * time.Minute) })
		})
	}
}
