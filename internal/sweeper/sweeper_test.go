package sweeper_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/lane"
	"weir/internal/sweeper"
)

var noon = time.Date(2026, 1, 8, 12, 0, 0, 0, time.UTC)

// fake implements the interfaces of all fields of a sweeper.Sweeper except Inbox.
type fake struct {
	controls []lane.Control
	broken   int           // the lane that cannot be read; -1 = none
	each     time.Duration // the time that ReadControl takes
	hangs    bool          // true = ReadControl waits until its context ends

	mu     sync.Mutex
	woken  []int // the arguments of Wake
	passes int   // the number of calls of BeginPass
	loaded int   // the number of calls of Load
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
func (f *fake) BeginPass() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.passes++
}
func (f *fake) Load(context.Context) error { f.loaded++; return nil }

func (f *fake) newSweeper(lanes int, now func() time.Time) *sweeper.Sweeper {
	return &sweeper.Sweeper{
		Log:       f,
		Waker:     f,
		Upkeep:    f,
		Schedules: f,
		Lanes:     lanes,
		Now:       now,
	}
}

func TestSweeper_Sweep(t *testing.T) {
	t.Parallel()
	idle := lane.Control{Head: lane.Head{Next: 5}, Tail: lane.Tail{Cursor: 5}}
	work, soon, later, paused, open := idle, idle, idle, idle, idle
	work.Head.Next = 6
	soon.Tail.NextDueAt = noon.Add(time.Minute)
	later.Tail.NextDueAt = noon.Add(time.Hour)
	paused.Head.Next, paused.Tail.PausedUntil = 6, noon.Add(time.Hour)
	open.Tail.Fence, open.Tail.IsOpen = 7, true // the holder may have crashed
	f := &fake{controls: []lane.Control{idle, work, soon, later, paused, work, open}, broken: 3}
	s := f.newSweeper(7, func() time.Time { return noon })
	if err := s.Sweep(t.Context()); err == nil {
		t.Error("got no error, want one: lane 3 could not be read")
	}

	if slices.Sort(f.woken); !slices.Equal(f.woken, []int{1, 2, 5, 6}) {
		t.Errorf("got the woken lanes %v, want [1 2 5 6]", f.woken)
	}

	f.broken = -1

	for range 3 {
		if err := s.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	if f.loaded != 4 || f.passes != 4 {
		t.Errorf("schedules were read %d times, and %d passes of upkeep begun, want 4 of each in 4 sweeps",
			f.loaded, f.passes)
	}
}

func TestSweeper_ManyLanesInSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const lanes = 256
		f := &fake{
			controls: make([]lane.Control, lanes),
			broken:   -1,
			each:     50 * time.Millisecond,
		}
		for i := range f.controls {
			f.controls[i] = lane.Control{Head: lane.Head{Next: 6}, Tail: lane.Tail{Cursor: 5}}
		}

		s := f.newSweeper(lanes, time.Now)
		began := time.Now()

		for range 3 {
			if err := s.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
		}

		if took := time.Since(began) / 3; took > 2*time.Second || len(f.woken) != 3*lanes {
			t.Errorf("a sweep over %d lanes took %s, want at most 2s; %d of them were woken, want %d",
				lanes, took, len(f.woken), 3*lanes)
		}
	})
}

// Even if storage hangs, a sweep ends within a minute. A second sweep that begins at the same time
// takes no longer.
func TestSweeper_StorageHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{hangs: true}
		s := f.newSweeper(32, time.Now)
		began := time.Now()
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if err := s.Sweep(t.Context()); err == nil {
					t.Error("got no error, want one: no lane could be read")
				}
			})
		}

		both.Wait()
		if took := time.Since(began); took > time.Minute {
			t.Errorf("two sweeps at the same time took %s, want 1m at most", took)
		}
	})
}

// inbox counts the calls of Collect. Each call returns err.
type inbox struct {
	err   error
	calls int
}

func (i *inbox) Collect(context.Context) error { i.calls++; return i.err }

// A sweep takes files even if a lane cannot be read. It wakes lanes even if files cannot be taken.
func TestSweeper_TakesFiles(t *testing.T) {
	t.Parallel()
	work := lane.Control{Head: lane.Head{Next: 6}, Tail: lane.Tail{Cursor: 5}}
	f := &fake{controls: []lane.Control{work, work}, broken: 1}
	s, files := f.newSweeper(2, func() time.Time { return noon }),
		&inbox{err: errors.New("files away")}
	s.Inbox = files
	err := s.Sweep(t.Context())
	if err == nil || !strings.Contains(err.Error(), "inbox: files away") ||
		!strings.Contains(err.Error(), "lane 1") {
		t.Errorf("got %v, want the errors of the files and of lane 1", err)
	}

	if files.calls != 1 || !slices.Equal(f.woken, []int{0}) {
		t.Errorf("got %d looks at the inbox and the woken lanes %v; want 1 and [0]",
			files.calls, f.woken)
	}
}

func (f *fake) countWork() (woken, passes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.woken), f.passes
}

// hangingInbox is an Inbox whose Collect returns only when the sweep's time limit is over.
type hangingInbox struct{}

func (hangingInbox) Collect(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// Both sweeps of this test take files until their time limit is over. Long before that, each sweep
// wakes the lane and begins a pass of upkeep.
func TestSweeper_FilesDelayNoLane(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{controls: []lane.Control{{Head: lane.Head{Next: 6}, Tail: lane.Tail{Cursor: 5}}},
			broken: -1}
		s := f.newSweeper(1, time.Now)
		s.Inbox = hangingInbox{}
		var sweeps sync.WaitGroup
		for n := range 2 {
			sweeps.Go(func() { _ = s.Sweep(t.Context()) })
			time.Sleep(time.Second)
			synctest.Wait()

			if woken, passes := f.countWork(); woken != n+1 || passes != n+1 {
				t.Errorf("sweep %d: lanes were woken %d times, and %d passes begun; want %d", n+1,
					woken, passes, n+1)
			}
		}

		sweeps.Wait()
	})
}

// A sweep passes on the control rows of each lane that it has read. With those of lane 0, it
// resumes jobs.
func TestSweeper_ResumesJobsWithLane0(t *testing.T) {
	t.Parallel()
	f := &fake{controls: make([]lane.Control, 3), broken: 1}
	for number := range f.controls {
		f.controls[number].Head.Next = int64(number + 1)
	}

	s := f.newSweeper(3, func() time.Time { return noon })
	var mu sync.Mutex
	seen := map[int]int64{}
	s.Observe = func(_ context.Context, number int, c lane.Control) {
		mu.Lock()
		defer mu.Unlock()
		seen[number] = c.Head.Next
	}

	var resumed []int64
	s.Resume = func(_ context.Context, first lane.Control) {
		resumed = append(resumed,
			first.Head.Next)
	}

	_ = s.Sweep(t.Context())
	if want := map[int]int64{0: 1, 2: 3}; !maps.Equal(seen, want) {
		t.Errorf("got the control rows %v by lane, want %v", seen, want)
	}

	if !slices.Equal(resumed, []int64{1}) {
		t.Errorf("got jobs resumed with the control rows %v, want those of lane 0, once", resumed)
	}
}
