package process_test

import (
	"context"
	"encoding/json"
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

// drains are the drains of one process: each goes on until the test ends it.
type drains map[int]chan drain.Report

func (d drains) Look(context.Context, int) drain.Report { return drain.Report{State: drain.Working} }

func (d drains) Join(ctx context.Context, lane int) drain.Report {
	select {
	case r := <-d[lane]:
		return r
	case <-ctx.Done():
		return drain.Report{State: drain.Working}
	}
}

// rung notes the lanes that were rung, and when since the start.
type rung struct {
	mu    sync.Mutex
	start time.Time
	lanes []int
	after []time.Duration
}

func (r *rung) add(lane int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lanes, r.after = append(r.lanes, lane), append(r.after, time.Since(r.start))
	return nil
}

func (r *rung) Seen(int)                                                {}
func (r *rung) Ring(_ context.Context, lane int) error                  { return r.add(lane) }
func (r *rung) RingAt(_ context.Context, lane int, _ time.Time) error   { return r.add(lane) }
func (r *rung) PutBack(context.Context, int, time.Duration) (err error) { return nil }

// want checks the lanes rung so far.
func (r *rung) want(t *testing.T, lanes ...int) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if got := slices.Sorted(slices.Values(r.lanes)); !slices.Equal(got, lanes) {
		t.Errorf("rang for lanes %v after %v, want %v", got, r.after, lanes)
	}
}

// office is a process with its invocations.
type office struct {
	f      *process.Function
	drains drains
	rung   *rung
}

func newOffice(lanes int) *office {
	o := &office{drains: drains{}, rung: &rung{start: time.Now()}}
	for lane := range lanes {
		o.drains[lane] = make(chan drain.Report)
	}
	o.f = &process.Function{Drainer: o.drains, Bell: o.rung, Lanes: lanes, Lease: 30 * time.Second, Now: time.Now, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
	return o
}

// invoke answers a ticket, and returns a channel that gets its result.
func (o *office) invoke(ctx context.Context, lane int) <-chan error {
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
	for name, test := range map[string]func(t *testing.T, o *office){
		"UntilTheLastOfTheLanesIsDone": func(t *testing.T, o *office) {
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
		"AMinuteAndThenItRingsForEachLaneOnce": func(t *testing.T, o *office) {
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
		"AndThenTheNext": func(t *testing.T, o *office) {
			first := o.invoke(t.Context(), 0)
			time.Sleep(time.Minute)
			ended(t, "the first", first, true)
			second := o.invoke(t.Context(), 0)
			ended(t, "the second", second, false)
			o.drains[0] <- drain.Report{State: drain.Idle}
			ended(t, "the second", second, true)
		},
		"TheSameLaneAgainOnceItWasDone": func(t *testing.T, o *office) {
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
			synctest.Test(t, func(t *testing.T) { test(t, newOffice(3)) })
		})
	}
}
