package sweep_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"weir/functions/sweep"
	"weir/internal/lane"
)

var noon = time.Date(2026, 1, 8, 12, 0, 0, 0, time.UTC)

type fake struct {
	controls  []lane.Control
	broken    int // lane that cannot be read; -1 = none
	woken     []int
	retained  []int
	earlier   int
	forgotten int
	loaded    int
}

func (f *fake) Control(_ context.Context, number int) (lane.Control, error) {
	if number == f.broken {
		return lane.Control{}, errors.New("away")
	}
	return f.controls[number], nil
}
func (f *fake) Wake(number int) { f.woken = append(f.woken, number) }
func (f *fake) Run(_ context.Context, number int) (time.Time, error) {
	f.retained = append(f.retained, number)
	return noon.Add(time.Hour), nil
}
func (f *fake) Earlier(context.Context) (time.Time, error) {
	f.earlier++
	return noon.Add(time.Hour), nil
}
func (f *fake) Load(context.Context) error      { f.loaded++; return nil }
func (f *fake) Forgotten(context.Context) error { f.forgotten++; return nil }

func TestFunction_ForgottenAtMostHourlyOverProcesses(t *testing.T) {
	t.Parallel()
	f := &fake{broken: -1}
	fn := &sweep.Function{Log: f, Waker: f, Retention: f, Schedules: f, Now: func() time.Time { return noon }, Logger: slog.New(slog.DiscardHandler), Forgotten: noon.Add(-59 * time.Minute)}
	for _, want := range []int{0, 1, 1} {
		if err := fn.Sweep(t.Context()); err != nil || f.forgotten != want {
			t.Errorf("looked %d times, want %d; %v", f.forgotten, want, err)
		}
		fn.Forgotten = fn.Forgotten.Add(-time.Minute)
		if want == 1 {
			fn.Forgotten = noon
		}
	}
}

func TestFunction_Sweep(t *testing.T) {
	t.Parallel()
	idle := lane.Control{Head: lane.Head{Next: 5}, Tail: lane.Tail{Cursor: 5}}
	work, soon, later, paused := idle, idle, idle, idle
	work.Head.Next = 6
	soon.Tail.NextDue = noon.Add(time.Minute)
	later.Tail.NextDue = noon.Add(time.Hour)
	paused.Head.Next, paused.Tail.PausedUntil = 6, noon.Add(time.Hour)
	f := &fake{controls: []lane.Control{idle, work, soon, later, paused, work}, broken: 3}
	now := noon
	fn := &sweep.Function{Log: f, Waker: f, Retention: f, Schedules: f, Lanes: 6, Now: func() time.Time { return now }, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}

	if err := fn.Sweep(t.Context()); err == nil {
		t.Error("a lane that cannot be read must fail the sweep")
	}
	if !slices.Equal(f.woken, []int{1, 2, 5}) || len(f.retained) != 5 {
		t.Errorf("woken %v, retained %v", f.woken, f.retained)
	}
	f.broken = -1
	for range 3 {
		now = now.Add(time.Minute)
		if err := fn.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if f.loaded != 4 {
		t.Errorf("schedules were read %d times in 4 sweeps", f.loaded)
	}
	if fmt.Sprint(f.retained) != "[0 1 2 4 5 3]" || f.forgotten != 1 || f.earlier != 1 {
		t.Errorf("retained %v, forgotten %d, earlier %d: what has nothing to do before an hour must not be asked each minute", f.retained, f.forgotten, f.earlier)
	}
}
