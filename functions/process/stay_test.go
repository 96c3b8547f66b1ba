package process_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/functions/process"
	"weir/internal/drain"
	"weir/internal/invoke"
	"weir/internal/ticket"
)

// drains are the drains of one process. Each goes on until the test sends its report.
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

// elsewhere is a lane that another process holds, and putBack one that this process has also claimed
// a moment ago.
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

// rung records the lanes that were rung, and the times since the start.
type rung struct {
	mu    sync.Mutex
	start time.Time
	lanes []int
	after []time.Duration
	calls []string // the other calls, each with its time
}

func (r *rung) add(lane int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lanes, r.after = append(r.lanes, lane), append(r.after, time.Since(r.start))
	return nil
}

// note notes a call of another kind.
func (r *rung) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, fmt.Sprintf("%s ", time.Since(r.start))+fmt.Sprintf(format, args...))
}

func (r *rung) EnqueueNow(_ context.Context, lane int) error { r.note("ring %d", lane); return nil }
func (r *rung) EnqueueRelief(_ context.Context, lane int) error {
	r.note("relieve %d", lane)
	return nil
}
func (r *rung) Attend()           { r.note("attend") }
func (r *rung) Yield()            { r.note("yield") }
func (r *rung) HandOver(lane int) { r.note("hand over %d", lane) }

// did checks the calls other than Ring and RingAt.
func (r *rung) did(t *testing.T, want ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.calls, want) {
		t.Errorf("did %q, want %q", r.calls, want)
	}
}

func (r *rung) MarkReceived(int)                                         {}
func (r *rung) Enqueue(_ context.Context, lane int) error                { return r.add(lane) }
func (r *rung) EnqueueAt(_ context.Context, lane int, _ time.Time) error { return r.add(lane) }
func (r *rung) AwaitsRequeued(lane int) bool                             { return lane == putBack }
func (r *rung) Requeue(_ context.Context, lane int, about time.Duration) error {
	r.note("put back %d after %s", lane, about)
	return nil
}

// want checks the lanes that were rung so far.
func (r *rung) want(t *testing.T, lanes ...int) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if got := slices.Sorted(slices.Values(r.lanes)); !slices.Equal(got, lanes) {
		t.Errorf("rang for lanes %v after %v, want %v", got, r.after, lanes)
	}
}

// instance is a process that gets invocations.
type instance struct {
	f      *process.Function
	drains drains
	rung   *rung
}

func newInstance(lanes int) *instance {
	o := &instance{drains: drains{}, rung: &rung{start: time.Now()}}
	for lane := range lanes {
		o.drains[lane] = make(chan drain.Report)
	}
	o.f = &process.Function{
		Drainer: o.drains,
		Holder:  o.rung,
		Tickets: o.rung,
		Lanes:   lanes,
		Lease:   30 * time.Second,
		Now:     time.Now,
		Logger:  slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	return o
}

// invoke answers a ticket, and returns a channel that gets its result.
func (o *instance) invoke(ctx context.Context, lane int) <-chan error {
	text, _ := json.Marshal(ticket.Encode(1, lane))
	done := make(chan error, 1)
	go func() {
		done <- o.f.Process(ctx, invoke.Invocation{Data: map[string]json.RawMessage{"ticket": text}})
	}()
	synctest.Wait()
	return done
}

// ended checks whether an invocation has been answered.
func ended(t *testing.T, what string, done <-chan error, want bool) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-done:
		if !want || err != nil {
			t.Errorf("%s was answered (%v), want it to stay", what, err)
		}
	default:
		if want {
			t.Errorf("%s stays, want it answered", what)
		}
	}
}

func TestFunction_OneInvocationStays(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T, o *instance){
		"UntilAllItsLanesAreDrained": func(t *testing.T, o *instance) {
			first := o.invoke(t.Context(), 0)
			ended(t, "the ticket of another lane", o.invoke(t.Context(), 1), true)
			ended(t, "the ticket of all lanes", o.invoke(t.Context(), ticket.AllLanes), true)
			o.drains[0] <- drain.Report{State: drain.Idle}
			ended(t, "the first", first, false)
			o.drains[1] <- drain.Report{State: drain.Waiting, Until: time.Now().Add(time.Minute)}
			synctest.Wait()
			o.rung.want(t, 1)
			o.drains[2] <- drain.Report{State: drain.Idle}
			ended(t, "the first", first, true)
			o.rung.want(t, 1)
		},
		"ForAMinuteAndThenItRingsForEachLaneOnce": func(t *testing.T, o *instance) {
			first := o.invoke(t.Context(), 0)
			for range 3 {
				ended(t, "another ticket", o.invoke(t.Context(), 1), true)
			}
			time.Sleep(time.Minute - 1)
			ended(t, "the first", first, false)
			o.rung.want(t)
			time.Sleep(time.Nanosecond)
			ended(t, "the first", first, true)
			o.rung.want(t, 0, 1)
		},
		"AndAfterItTheNext": func(t *testing.T, o *instance) {
			first := o.invoke(t.Context(), 0)
			time.Sleep(time.Minute)
			ended(t, "the first", first, true)
			second := o.invoke(t.Context(), 0)
			ended(t, "the second", second, false)
			o.drains[0] <- drain.Report{State: drain.Idle}
			ended(t, "the second", second, true)
		},
		"WithALaneThatHasWorkAgain": func(t *testing.T, o *instance) {
			first := o.invoke(t.Context(), 0)
			ended(t, "another ticket", o.invoke(t.Context(), 1), true)
			o.drains[1] <- drain.Report{State: drain.Idle}
			synctest.Wait()
			ended(t, "another ticket", o.invoke(t.Context(), 1), true)
			time.Sleep(time.Minute)
			ended(t, "the first", first, true)
			o.rung.want(t, 0, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, newInstance(3)) })
		})
	}
}

func TestFunction_InvocationsRelieveEachOther(t *testing.T) {
	t.Parallel()
	working := drain.Report{State: drain.Working}
	for name, test := range map[string]func(t *testing.T, o *instance){
		"NextTakesThePlace": func(t *testing.T, o *instance) {
			first := o.invoke(t.Context(), 1)
			o.invoke(t.Context(), 0)
			time.Sleep(10 * time.Second)
			ended(t, "the first", first, false)
			second := o.invoke(t.Context(), 0)
			ended(t, "the first", first, true)
			time.Sleep(time.Minute - 1)
			ended(t, "the second", second, false)
			o.rung.did(t, "0s attend", "10s relieve 0", "10s attend", "20s relieve 0", "35s relieve 0", "50s relieve 0",
				"55s yield", "55s ring 0", "55s ring 1", "1m8s yield", "1m8s hand over 0", "1m8s hand over 1")
			o.rung.want(t)
		},
		"NextHasALaneThatIsHeldElsewhere": func(t *testing.T, o *instance) {
			first := o.invoke(t.Context(), 0)
			o.invoke(t.Context(), 1)
			o.drains[1] <- drain.Report{State: drain.Idle}
			time.Sleep(50 * time.Second)
			second := o.invoke(t.Context(), elsewhere)
			ended(t, "the first", first, true)
			time.Sleep(9 * time.Second)
			o.drains[0] <- drain.Report{State: drain.Idle}
			ended(t, "the second", second, false)
			time.Sleep(6 * time.Second)
			ended(t, "the second", second, true)
			o.rung.did(t, "0s attend", "10s relieve 0", "25s relieve 0", "40s relieve 0", "45s yield",
				"45s ring 0", "50s attend",
				fmt.Sprintf("1m5s put back %d after 30s", elsewhere), "1m5s yield")
		},
		"ClaimedLaneKeepsItsInvocation": func(t *testing.T, o *instance) {
			claiming := o.invoke(t.Context(), elsewhere)
			time.Sleep(3 * time.Second)
			o.drains[elsewhere] <- working
			time.Sleep(8 * time.Second)
			o.drains[elsewhere] <- drain.Report{State: drain.Idle}
			ended(t, "the claiming one", claiming, true)
			o.rung.did(t, "0s attend", fmt.Sprintf("10s relieve %d", elsewhere), "11s yield")
		},
		"LaneWhoseTicketWasPutBackIsNotClaimedAgain": func(t *testing.T, o *instance) {
			again := o.invoke(t.Context(), putBack)
			ended(t, "the invocation", again, true)
			o.rung.did(t)
		},
		"InvocationThatTheHostGivesUpHandsItsLanesOver": func(t *testing.T, o *instance) {
			ctx, giveUp := context.WithCancel(t.Context())
			first := o.invoke(ctx, 0)
			time.Sleep(time.Second)
			giveUp()
			ended(t, "the first", first, true)
			o.rung.did(t, "0s attend", "1s yield", "1s hand over 0", "1s yield")
			o.rung.want(t, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, newInstance(4)); time.Sleep(2 * time.Minute) })
		})
	}
}
