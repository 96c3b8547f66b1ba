package upkeep_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/storage/memory"
	"weir/internal/upkeep"
)

// work is a LaneRetention. A call of RunLane takes a second. It fails if ctx has ended, or if the
// map "failures" has a number above 0 for the lane.
type work struct {
	mu sync.Mutex
	// by lane: successful calls still needed, calls so far, failures to come
	left, runs, failures map[int]int
	// calls of RunLane under way: now, and the most at the same time
	active, most int
	cuts         int // calls that ctx ended
}

func (w *work) RunLane(ctx context.Context, lane int) (time.Time, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.active++
	w.most = max(w.most, w.active)
	w.runs[lane]++
	w.mu.Unlock()

	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
	}

	w.mu.Lock()
	w.active--
	if ctx.Err() != nil {
		w.cuts++
		return time.Time{}, ctx.Err()
	}

	if w.failures[lane] > 0 {
		w.failures[lane]--
		return time.Time{}, errors.New("away")
	}

	if w.left[lane]--; w.left[lane] > 0 {
		return time.Time{}, nil
	}

	return time.Now().Add(time.Hour), nil
}

// runLanes makes a Keeper without jobs, and calls BeginPass once a minute for the given number of
// minutes. Then it calls the function "then", and closes the Keeper.
func runLanes(t *testing.T, w *work, lanes, minutes int, then func(*testing.T, *upkeep.Keeper)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		if w.runs = map[int]int{}; w.left == nil {
			w.left = map[int]int{}
		}

		c := upkeep.New(upkeep.Config{Retention: w, Lanes: lanes,
			Table: memory.New(time.Now).Table(),
			Now:   time.Now, Logger: slog.New(slog.DiscardHandler)})

		for range minutes {
			c.BeginPass()
			time.Sleep(time.Minute)
		}

		synctest.Wait()
		then(t, c)
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestKeeper_CallsWhenThereIsSomethingToDo(t *testing.T) {
	w := &work{}
	runLanes(t, w, 20, 26*60, func(t *testing.T, _ *upkeep.Keeper) {
		for lane := range 20 {
			if runs := w.runs[lane]; runs != 26 {
				t.Errorf("got %[2]d calls for lane %[1]d in 26 hours, want 26", lane, runs)
			}
		}
	})
}

func TestKeeper_LanesTakeTurns(t *testing.T) {
	w := &work{left: map[int]int{}}
	for lane := range 100 {
		w.left[lane] = 40
	}

	runLanes(t, w, 100, 3, func(t *testing.T, _ *upkeep.Keeper) {
		w.mu.Lock()
		defer w.mu.Unlock()

		for lane := range 100 {
			if runs := w.runs[lane]; runs < 8 || runs > 16 {
				t.Errorf("lane %d got %d visits, want 8 to 16, because each lane gets about 12",
					lane, runs)
			}
		}

		if w.most != 8 {
			t.Errorf("got %d lanes cleaned at the same time at most, want 8", w.most)
		}
	})
}

func TestKeeper_AFailureDelaysNoOtherLane(t *testing.T) {
	w := &work{failures: map[int]int{0: 5}}
	runLanes(t, w, 3, 10, func(t *testing.T, _ *upkeep.Keeper) {
		if w.runs[0] != 6 || w.runs[1] != 1 || w.runs[2] != 1 {
			t.Errorf("got the visits %v by lane; want 6 of lane 0, which failed five times, and 1 of each other lane",
				w.runs)
		}
	})
}

func TestKeeper_OneRoundAtATime(t *testing.T) {
	w := &work{left: map[int]int{0: 1 << 20}}
	runLanes(t, w, 1, 1, func(t *testing.T, c *upkeep.Keeper) {
		for range 100 {
			c.BeginPass()
		}

		time.Sleep(10 * time.Second)
		w.mu.Lock()
		defer w.mu.Unlock()

		if w.most != 1 || w.runs[0] > 71 {
			t.Errorf("got %d visits of a lane at the same time, want 1; got %d visits in 70 s, want at most 71", w.most,
				w.runs[0])
		}
	})
}

func TestKeeper_Close(t *testing.T) {
	w := &work{left: map[int]int{0: 1 << 20}}
	runLanes(t, w, 1, 0, func(t *testing.T, c *upkeep.Keeper) {
		c.BeginPass()
		time.Sleep(2500 * time.Millisecond)
		began := time.Now()
		if err := c.Close(t.Context()); err != nil || time.Since(began) > 0 {
			t.Errorf("closed after %s, %v, want 0 and no error", time.Since(began), err)
		}

		if w.cuts != 1 {
			t.Errorf("got %d visits that ctx ended, want 1", w.cuts)
		}

		runs := w.runs[0] // needs no lock, because no pass is under way
		c.BeginPass()
		time.Sleep(time.Hour)
		if w.runs[0] != runs {
			t.Error("got another call for the lane after Close, want none")
		}
	})
}
