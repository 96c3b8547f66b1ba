package rabbitmq

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

// The process stands still for a minute while it appends the first message of a key. Meanwhile the
// broker gives the deliveries to another consumer, so this process must not append the later ones,
// and acknowledges none of them.
func TestWorker_FilesNoOldDeliveryAfterAStall(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stall time.Duration
		filed []string
	}{"none": {0, []string{"1", "2", "3"}}, "short": {4 * time.Second, []string{"1", "2", "3"}},
		"long": {time.Minute, []string{"1"}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var passed atomic.Int64
				var filed []string
				r := newWorkerRig(t,
					func(_ context.Context, m weir.Message, id string) (lane.Receipt, error) {
						if filed = append(filed, id); id == "1" {
							passed.Add(int64(c.stall))
						}
						return lane.Receipt{Message: m, Stage: weir.Queued}, nil
					})

				r.guard = newStallGuard(
					func() time.Time { return testNow.Add(time.Duration(passed.Load())) },
					10*time.Second)
				for tag := range uint64(3) {
					r.deliverMessage(t.Context(), tag+1, "/a")
				}

				r.tasks.Wait()

				if !slices.Equal(filed, c.filed) || len(r.channel.acked) != len(c.filed) ||
					r.refused.refused > 0 {
					t.Errorf("got the messages %v, %d acknowledged and %d refused; want %v, acknowledged", filed,
						len(r.channel.acked), r.refused.refused, c.filed)
				}
			})
		})
	}
}

func TestStallGuard_Watch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		heartbeat, jump time.Duration
		want            bool
	}{"no stall": {10 * time.Second, 0, false}, "stall": {10 * time.Second, 6 * time.Second, true},
		"short heartbeat": {time.Second, 0, false}, "no heartbeats": {0, time.Hour, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var jump atomic.Int64 // what the wall clock is ahead after a sleep of the machine
				g := newStallGuard(
					func() time.Time { return time.Now().Add(time.Duration(jump.Load())) },
					c.heartbeat)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				time.AfterFunc(30*time.Second, func() { jump.Store(int64(c.jump)) })
				if got := g.watch(ctx); got != c.want {
					t.Errorf("got a stall: %v, want %v", got, c.want)
				}
			})
		})
	}
}
