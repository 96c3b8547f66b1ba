package upkeep_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/memory"
	"weir/internal/upkeep"
)

// pile is a job with a number of things to remove, of which each takes a second.
type pile struct {
	left    int
	at      int // number of things that were removed or passed over
	calls   int
	markers []string
}

func (p *pile) job(name string, limit time.Duration) upkeep.Job {
	return upkeep.Job{Name: name, Every: 24 * time.Hour, Limit: limit, Run: p.run}
}

func (p *pile) run(ctx context.Context, marker string) (upkeep.Step, error) {
	p.calls++
	p.markers = append(p.markers, marker)
	at, _ := strconv.Atoi(marker)
	for ; at < p.left; at++ {
		select {
		case <-time.After(time.Second):
			p.at = max(p.at, at+1)
		case <-ctx.Done():
			return upkeep.Step{Marker: strconv.Itoa(at)}, ctx.Err()
		}
	}

	return upkeep.Step{IsDone: true}, nil
}

// rig is a Keeper's table and clock.
type rig struct {
	t     *testing.T
	table storage.Table
}

func (r *rig) start(jobs ...upkeep.Job) *upkeep.Keeper {
	return upkeep.New(upkeep.Config{Retention: &work{runs: map[int]int{}}, Jobs: jobs,
		Table: r.table, Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
}

// sweepFor begins a pass each minute, and returns when all work waits.
func (r *rig) sweepFor(k *upkeep.Keeper, span time.Duration) {
	for range span / time.Minute {
		k.BeginPass()
		time.Sleep(time.Minute)
	}
	synctest.Wait()
}

func (r *rig) stop(k *upkeep.Keeper) {
	r.t.Helper()
	if err := k.Close(r.t.Context()); err != nil {
		r.t.Error(err)
	}
}

func simulate(t *testing.T, f func(t *testing.T, r *rig)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { f(t, &rig{t, memory.New(time.Now).Table()}) })
}

// A job with more work than its limit neither keeps another job from its work nor begins anew.
func TestKeeper_ALargeJobDelaysNoOtherAndReachesItsEnd(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		large, small := &pile{left: 3600}, &pile{left: 1}
		k := r.start(large.job("large", 30*time.Second), small.job("small", 30*time.Second))
		r.sweepFor(k, time.Minute)

		if small.at != 1 || small.calls != 1 {
			t.Errorf("after a pass: got %d of the small job in %d calls, want 1 in 1", small.at,
				small.calls)
		}

		r.sweepFor(k, 3*time.Hour)
		if large.at != 3600 {
			t.Errorf("after three hours: got %d of the large job, want 3600", large.at)
		}

		if !slices.IsSortedFunc(large.markers, compareNumbers) {
			t.Errorf("got the markers %v, want each call to go on where the last one ended",
				large.markers)
		}

		r.stop(k)
	})
}

func compareNumbers(a, b string) int {
	x, _ := strconv.Atoi(a)
	y, _ := strconv.Atoi(b)
	return x - y
}

// The next process goes on from the stored marker, and does not repeat a job that is done.
func TestKeeper_MarkersAndTimesAreStored(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		p := &pile{left: 100}
		first := r.start(p.job("walk", 30*time.Second))
		r.sweepFor(first, time.Minute)
		r.stop(first)
		second := r.start(p.job("walk", 30*time.Second))
		r.sweepFor(second, 10*time.Minute)
		r.stop(second)

		if p.at != 100 || p.calls != 4 || p.markers[1] == "" {
			t.Errorf("got %d in %d calls from the markers %q, want 100 in 4 calls", p.at,
				p.calls, p.markers)
		}

		third := r.start(p.job("walk", 30*time.Second))
		r.sweepFor(third, 23*time.Hour)
		if p.calls != 4 {
			t.Errorf("within a day: got %d calls, want 4", p.calls)
		}

		r.sweepFor(third, 2*time.Hour)

		if p.calls != 8 || p.markers[4] != "" {
			t.Errorf("a day later: got the markers %q, want four more calls, the first from the beginning",
				p.markers)
		}

		r.stop(third)
	})
}

var errAway = errors.New("away")

// A job that fails or panics is tried again in the next pass, from its last marker. The other jobs
// go on.
func TestKeeper_GoesOnAfterAFailure(t *testing.T) {
	for name, fail := range map[string]func() error{
		"Error": func() error { return errAway },
		"Panic": func() error { panic("boom") },
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, r *rig) {
				calls, other := 0, &pile{left: 1}
				job := upkeep.Job{Name: "bad", Every: time.Hour, Limit: time.Minute,
					Run: func(_ context.Context, marker string) (upkeep.Step, error) {
						switch calls++; calls {
						case 1:
							return upkeep.Step{Marker: "half"}, nil
						case 2, 3, 4:
							return upkeep.Step{Marker: marker}, fail()
						}

						if marker != "half" {
							t.Errorf("got the marker %q, want half", marker)
						}

						return upkeep.Step{IsDone: true}, nil
					}}

				k := r.start(job, other.job("other", time.Minute))
				r.sweepFor(k, 6*time.Minute)
				if calls != 5 || other.at != 1 {
					t.Errorf("got %d calls, and %d of the other job; want 5 and 1", calls, other.at)
				}

				r.stop(k)
			})
		})
	}
}

// A process whose clock was fast must not stop a job for long.
func TestKeeper_IgnoresATimeFarAhead(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		p := &pile{left: 1}
		fast := upkeep.New(upkeep.Config{Retention: &work{runs: map[int]int{}}, Table: r.table,
			Jobs:   []upkeep.Job{p.job("walk", time.Minute)},
			Now:    func() time.Time { return time.Now().Add(1000 * 24 * time.Hour) },
			Logger: slog.New(slog.DiscardHandler)})

		r.sweepFor(fast, time.Minute)
		r.stop(fast)
		k := r.start(p.job("walk", time.Minute))
		r.sweepFor(k, 2*time.Minute)
		if p.calls != 2 {
			t.Errorf("got %d calls, want 2", p.calls)
		}

		r.stop(k)
	})
}

// Blobs of leases that are used for one batch or one bulk replay only are removed when they are
// old, and not held.
func TestUnusedLeases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		account := memory.New(time.Now)
		const id = "01234567-89ab-cdef-0123-456789abcdef"
		acquire := func(name string) {
			if err := account.Leases().Acquire(t.Context(), name, id, time.Minute); err != nil {
				t.Fatal(err)
			}
		}

		for i := range 1500 {
			acquire("batch-" + strconv.Itoa(i))
			acquire("replay-" + strconv.Itoa(i))
		}

		acquire("lane-1.0")
		time.Sleep(25 * time.Hour)
		acquire("batch-7")
		acquire("batch-new")

		step, err := upkeep.UnusedLeases(account.Leases(), time.Now).Run(t.Context(), "")
		if err != nil || !step.IsDone {
			t.Fatalf("got %+v, %v; want the walk done", step, err)
		}

		page, err := account.Leases().List(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}

		var got []string
		for _, blob := range page.Infos {
			got = append(got, blob.Name)
		}

		if want := []string{"batch-7", "batch-new", "lane-1.0"}; !slices.Equal(got, want) {
			t.Errorf("got the leases %v, want %v", got, want)
		}
	})
}
