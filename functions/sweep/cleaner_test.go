package sweep_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/functions/sweep"
)

// endless is a Retention that always has more to remove in every lane.
type endless struct{}

func (endless) RunLane(ctx context.Context, _ int) (time.Time, error) {
	select {
	case <-time.After(5 * time.Second):
	case <-ctx.Done():
	}
	return time.Time{}, ctx.Err()
}
func (endless) RunEarlierEpochs(context.Context) (time.Time, error) {
	return time.Now().Add(time.Hour), nil
}
func (endless) RemoveForgottenBodies(context.Context) (time.Time, error) {
	return time.Now().Add(time.Hour), nil
}

// work is a Retention. A call of RunLane takes a second. It fails if ctx has ended, or if the map "failures" has a
// number above 0 for the lane.
type work struct {
	mu                       sync.Mutex
	left, runs, failures     map[int]int // by lane: successful calls still needed, calls so far, failures to come
	active, most             int         // calls of RunLane under way: now, and the most at the same time
	earlier, forgotten, cuts int         // calls: RunEarlierEpochs, RemoveForgottenBodies, and RunLane ended by ctx
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
func (w *work) RunEarlierEpochs(context.Context) (time.Time, error) {
	w.earlier++
	return time.Now().Add(time.Hour), nil
}
func (w *work) RemoveForgottenBodies(context.Context) (time.Time, error) {
	w.forgotten++
	return time.Now().Add(24 * time.Hour), nil
}

// runCleaner makes a Cleaner, and calls BeginRound once a minute for the given number of minutes. Then it calls the
// function "then", and closes the Cleaner.
func runCleaner(t *testing.T, w *work, lanes, minutes int, then func(*testing.T, *sweep.Cleaner)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		if w.runs = map[int]int{}; w.left == nil {
			w.left = map[int]int{}
		}
		c := &sweep.Cleaner{Retention: w, Lanes: lanes, Now: time.Now, Logger: slog.New(slog.DiscardHandler)}
		for range minutes {
			c.BeginRound()
			time.Sleep(time.Minute)
		}
		synctest.Wait()
		then(t, c)
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestCleaner_CallsWhenThereIsSomethingToDo(t *testing.T) {
	w := &work{}
	runCleaner(t, w, 20, 26*60, func(t *testing.T, _ *sweep.Cleaner) {
		for lane := range 20 {
			if runs := w.runs[lane]; runs != 26 {
				t.Errorf("got %[2]d calls for lane %[1]d in 26 hours, want 26", lane, runs)
			}
		}
		if w.earlier != 26 || w.forgotten != 2 {
			t.Errorf("got %d calls for earlier epochs, want 26; %d for forgotten bodies, want 2",
				w.earlier, w.forgotten)
		}
	})
}

func TestCleaner_LanesTakeTurns(t *testing.T) {
	w := &work{left: map[int]int{}}
	for lane := range 100 {
		w.left[lane] = 40
	}
	runCleaner(t, w, 100, 3, func(t *testing.T, _ *sweep.Cleaner) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for lane := range 100 {
			if runs := w.runs[lane]; runs < 8 || runs > 16 {
				t.Errorf("lane %d got %d turns, want 8 to 16, because each lane gets about 12", lane, runs)
			}
		}
		if w.most != 8 {
			t.Errorf("got %d lanes cleaned at the same time at most, want 8", w.most)
		}
		if w.earlier == 0 || w.forgotten == 0 {
			t.Error("got no call for earlier epochs, or none for forgotten bodies, while lanes have work; want both")
		}
	})
}

func TestCleaner_AFailureDelaysNoOtherLane(t *testing.T) {
	w := &work{failures: map[int]int{0: 5}}
	runCleaner(t, w, 3, 10, func(t *testing.T, _ *sweep.Cleaner) {
		if w.runs[0] != 6 || w.runs[1] != 1 || w.runs[2] != 1 {
			t.Errorf("got the turns %v by lane; want 6 of lane 0, which failed five times, and 1 of each other lane",
				w.runs)
		}
	})
}

func TestCleaner_OneRoundAtATime(t *testing.T) {
	w := &work{left: map[int]int{0: 1 << 20}}
	runCleaner(t, w, 1, 1, func(t *testing.T, c *sweep.Cleaner) {
		for range 100 {
			c.BeginRound()
		}
		time.Sleep(10 * time.Second)
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.most != 1 || w.runs[0] > 71 {
			t.Errorf("got %d turns of a lane at the same time, want 1; got %d turns in 70 s, want at most 71", w.most,
				w.runs[0])
		}
	})
}

func TestCleaner_Close(t *testing.T) {
	w := &work{left: map[int]int{0: 1 << 20}}
	runCleaner(t, w, 1, 0, func(t *testing.T, c *sweep.Cleaner) {
		c.BeginRound()
		time.Sleep(2500 * time.Millisecond)
		began := time.Now()
		if err := c.Close(t.Context()); err != nil || time.Since(began) > 0 {
			t.Errorf("closed after %s, %v, want 0 and no error", time.Since(began), err)
		}
		if w.cuts != 1 {
			t.Errorf("got %d turns that ctx ended, want 1", w.cuts)
		}
		runs := w.runs[0] // needs no lock, because no round is under way
		c.BeginRound()
		time.Sleep(time.Hour)
		if w.runs[0] != runs {
			t.Error("got another call for the lane after Close, want none")
		}
	})
}
