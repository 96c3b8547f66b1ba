package sweep_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/functions/sweep"
	"weir/internal/lane"
)

var noon = time.Date(2026, 1, 8, 12, 0, 0, 0, time.UTC)

// fake stands for everything that a sweep uses.
type fake struct {
	controls []lane.Control
	broken   int           // lane that cannot be read; -1 = none
	each     time.Duration // of a look
	hangs    bool          // every look, until its context ends

	mu     sync.Mutex
	woken  []int
	nudges int
	loaded int
}

func (f *fake) ReadControl(ctx context.Context, number int) (lane.Control, error) {
	if f.hangs {
		<-ctx.Done()
		return lane.Control{}, ctx.Err()
	}
	time.Sleep(f.each)
	if number == f.broken {
		return lane.Control{}, errors.New("away")
	}
	return f.controls[number], nil
}

func (f *fake) Wake(number int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.woken = append(f.woken, number)
}
func (f *fake) BeginRound()                { f.nudges++ }
func (f *fake) Load(context.Context) error { f.loaded++; return nil }

func (f *fake) function(lanes int, now func() time.Time) *sweep.Function {
	return &sweep.Function{
		Log:       f,
		Waker:     f,
		Cleaner:   f,
		Schedules: f,
		Lanes:     lanes,
		Now:       now,
		Logger:    slog.New(slog.DiscardHandler),
	}
}

func TestFunction_Sweep(t *testing.T) {
	t.Parallel()
	idle := lane.Control{Head: lane.Head{Next: 5}, Tail: lane.Tail{Cursor: 5}}
	work, soon, later, paused := idle, idle, idle, idle
	work.Head.Next = 6
	soon.Tail.NextDueAt = noon.Add(time.Minute)
	later.Tail.NextDueAt = noon.Add(time.Hour)
	paused.Head.Next, paused.Tail.PausedUntil = 6, noon.Add(time.Hour)
	f := &fake{controls: []lane.Control{idle, work, soon, later, paused, work}, broken: 3}
	fn := f.function(6, func() time.Time { return noon })
	if err := fn.Sweep(t.Context()); err == nil {
		t.Error("a lane that cannot be read must fail the sweep")
	}
	if slices.Sort(f.woken); !slices.Equal(f.woken, []int{1, 2, 5}) {
		t.Errorf("woken %v, want [1 2 5]", f.woken)
	}
	f.broken = -1
	for range 3 {
		if err := fn.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if f.loaded != 4 || f.nudges != 4 {
		t.Errorf("in 4 sweeps schedules were read %d times, and %d rounds of the cleaner begun", f.loaded, f.nudges)
	}
}

func TestFunction_ManyLanesInSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const lanes = 256
		f := &fake{
			controls: make([]lane.Control, lanes),
			broken:   -1,
			each:     50 * time.Millisecond,
		} // five operations of 10 ms
		for i := range f.controls {
			f.controls[i] = lane.Control{Head: lane.Head{Next: 6}, Tail: lane.Tail{Cursor: 5}}
		}
		fn := f.function(lanes, time.Now)
		cleaner := &sweep.Cleaner{Retention: &endless{}, Lanes: lanes, Now: time.Now, Logger: fn.Logger}
		fn.Cleaner = cleaner
		began := time.Now()
		for range 3 { // retention is at work from the first one on
			if err := fn.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began) / 3; took > 2*time.Second || len(f.woken) != 3*lanes {
			t.Errorf("a sweep over %d lanes took %s, want at most 2s; %d of them were woken, want %d",
				lanes, took, len(f.woken), 3*lanes)
		}
		if err := cleaner.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A sweep ends far below functionTimeout even if storage hangs, and so does a sweep that waits
// for it.
func TestFunction_StorageHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{hangs: true}
		fn := f.function(32, time.Now)
		began := time.Now()
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if err := fn.Sweep(t.Context()); err == nil {
					t.Error("no lane was looked at, and the sweep did not fail")
				}
			})
		}
		both.Wait()
		if took := time.Since(began); took > time.Minute {
			t.Errorf("two sweeps at once took %s, want at most 1m", took)
		}
	})
}
