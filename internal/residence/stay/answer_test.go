package stay_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/residence/stay"
	"weir/internal/ticket"
)

var noon = time.Date(2026, 1, 8, 12, 0, 0, 0, time.UTC)

// fakes implements the interfaces that stay.Answerer needs. Each claim fails at once.
type fakes struct {
	looked map[int]drain.Report // Look's report, by lane; a lane without a report is idle
	joined drain.Report         // Join's report
	// the calls of Join, and of all methods of Tickets except AwaitsRequeued
	calls []string
}

func (f *fakes) Look(_ context.Context, lane int) drain.Report {
	if r, ok := f.looked[lane]; ok {
		return r
	}
	return drain.Report{State: drain.Idle}
}

func (f *fakes) Join(ctx context.Context, lane int) drain.Report {
	if _, limited := ctx.Deadline(); !limited {
		f.calls = append(f.calls, "join without limit")
	}
	f.calls = append(f.calls, fmt.Sprint("join ", lane))
	return f.joined
}
func (f *fakes) Claim(context.Context, int) drain.Report { return drain.Report{State: drain.Busy} }
func (f *fakes) Held() []int                             { return nil }
func (f *fakes) StopTaking()                             {}
func (f *fakes) Attend()                                 {}
func (f *fakes) Yield()                                  {}
func (f *fakes) HandOver(int)                            {}
func (f *fakes) EnqueueNow(_ context.Context, lane int) error {
	f.calls = append(f.calls, fmt.Sprintf("enqueue %d now", lane))
	return nil
}
func (f *fakes) EnqueueRelief(ctx context.Context, lane int) error {
	return f.EnqueueNow(ctx, lane)
}

func (f *fakes) MarkReceived(lane int) {
	f.calls = append(f.calls, fmt.Sprint("received ", lane))
}
func (f *fakes) Enqueue(_ context.Context, lane int) error {
	f.calls = append(f.calls, fmt.Sprint("enqueue ", lane))
	return nil
}
func (f *fakes) EnqueueAt(_ context.Context, lane int, at time.Time) error {
	f.calls = append(f.calls, fmt.Sprintf("enqueue %d at %s", lane, at.Sub(noon)))
	return nil
}
func (f *fakes) AwaitsRequeued(int) bool { return false }
func (f *fakes) Requeue(_ context.Context, lane int, about time.Duration) error {
	f.calls = append(f.calls, fmt.Sprintf("requeue %d %s", lane, about))
	return nil
}

func TestAnswerer_Answer(t *testing.T) {
	t.Parallel()
	idle, busy := drain.Report{State: drain.Idle}, drain.Report{State: drain.Busy}
	working := drain.Report{State: drain.Working}
	waiting := func(d time.Duration) drain.Report {
		return drain.Report{State: drain.Waiting, Until: noon.Add(d)}
	}
	idleHeld := drain.Report{State: drain.Idle, HolderFence: 3}
	waitingHeld := drain.Report{State: drain.Waiting, Until: noon.Add(time.Hour), HolderFence: 3}
	away := drain.Report{State: drain.Waiting, Err: errors.New("away")}
	const one, all = 0, ticket.AllLanes
	for name, c := range map[string]struct {
		ticket int
		looked map[int]drain.Report
		joined drain.Report
		want   string
		fails  bool
	}{
		"Idle":    {one, map[int]drain.Report{0: idle}, idle, "received 0", false},
		"Drained": {one, map[int]drain.Report{0: working}, idle, "received 0, join 0", false},
		"StillDrained": {one, map[int]drain.Report{0: working}, working,
			"received 0, join 0, enqueue 0", false},
		"DrainedUntilDue": {one, map[int]drain.Report{0: working}, waiting(time.Minute),
			"received 0, join 0, enqueue 0 at 1m0s", false},
		"LostWhileDrained": {one, map[int]drain.Report{0: working}, busy,
			"received 0, join 0, requeue 0 30s", false},
		"FailedWhileDrained": {one, map[int]drain.Report{0: working}, away,
			"received 0, join 0", true},
		"Busy": {one, map[int]drain.Report{0: busy}, idle,
			"received 0, requeue 0 30s", false},
		"IdleHeld": {one, map[int]drain.Report{0: idleHeld}, idle,
			"received 0, requeue 0 30s", false},
		"WaitingHeld": {one, map[int]drain.Report{0: waitingHeld}, idle,
			"received 0, requeue 0 30s", false},
		"WaitingSoon": {one, map[int]drain.Report{0: waiting(time.Minute)}, idle,
			"received 0, enqueue 0 at 1m0s", false},
		"WaitingLong": {one, map[int]drain.Report{0: waiting(time.Hour)}, idle,
			"received 0", false},
		"StorageAway": {one, map[int]drain.Report{0: away}, idle, "received 0", true},
		"AllIdle":     {all, nil, idle, "received -1", false},
		"OneOfAllDrained": {all, map[int]drain.Report{1: working}, idle,
			"received -1, join 1", false},
		"OneOfAllStill": {all, map[int]drain.Report{1: working}, working,
			"received -1, join 1, enqueue 1", false},
		"AllBusy": {all, map[int]drain.Report{0: busy, 1: busy}, idle,
			"received -1, requeue -1 30s", false},
		"AllIdleOneHeld": {all, map[int]drain.Report{1: idleHeld}, idle,
			"received -1, requeue -1 30s", false},
		"AllWaiting": {all, map[int]drain.Report{0: waiting(time.Minute), 1: waiting(time.Second)},
			idle, "received -1, enqueue -1 at 1s", false},
		"OneWaitingLongOneBusy": {all, map[int]drain.Report{0: waiting(time.Hour), 1: busy}, idle,
			"received -1, requeue -1 30s", false},
		"AllStorageAway": {all, map[int]drain.Report{1: away}, idle, "received -1", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fakes{looked: c.looked, joined: c.joined}
			fn := &stay.Answerer{
				Drainer: f,
				Permit:  f,
				Tickets: f,
				Lanes:   2,
				Lease:   30 * time.Second,
				Now:     func() time.Time { return noon },
				Logger:  slog.New(slog.NewTextHandler(io.Discard, nil)),
			}

			err := fn.Answer(t.Context(), c.ticket)
			if got := strings.Join(f.calls, ", "); got != c.want || (err != nil) != c.fails {
				t.Errorf("got the calls %q, %v, want %q and an error: %t", got, err,
					c.want, c.fails)
			}
		})
	}
}
