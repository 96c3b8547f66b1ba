package overview_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/internal/overview"
	"weir/internal/weir"
)

// near fails if a time is not about the wanted one.
func near(t *testing.T, got, want time.Time) {
	t.Helper()
	if got.Sub(want).Abs() > 2*time.Second {
		t.Errorf("expected at %v, want %v", got, want)
	}
}

func TestForecast(t *testing.T) {
	t.Run("InTheLog", func(t *testing.T) {
		simulate(t, 1, func(t *testing.T, w *world) {
			first := w.post("a")
			for range 9 {
				w.post("b")
			}
			second := w.post("a")
			if o := w.outlook(first); o.Position != 1 || o.WaitsFor != "its turn in the lane" {
				t.Errorf("the first: %+v", o)
			}
			o := w.outlook(second)
			if o.Position != 2 || o.WaitsFor != "behind "+first.String()+" of its key" || !o.ExpectedAt.IsZero() {
				t.Errorf("without a rate: %+v", o)
			}
			w.rates[pace] = 5
			near(t, w.outlook(second).ExpectedAt, time.Now().Add(2*time.Minute))
			near(t, w.outlook(first).ExpectedAt, time.Now())
			other := w.post("c")
			if o := w.outlook(other); o.Position != 1 ||
				o.WaitsFor != "its turn in the lane, behind about 11 messages" {
				t.Errorf("another key: %+v", o)
			}
		})
	})
	t.Run("FarBackInTheLog", func(t *testing.T) {
		simulate(t, 1, func(t *testing.T, w *world) {
			w.many(1500, func(_ int, m *weir.Message) { m.Key = "a" })
			last := w.post("a")
			w.rates[pace] = 1500
			o := w.outlook(last)
			near(t, o.ExpectedAt, time.Now().Add(time.Minute))
			if o.Position != 0 || o.WaitsFor != "its turn in the lane, behind about 1500 messages" {
				t.Errorf("%+v", o)
			}
		})
	})
	t.Run("BehindARetry", func(t *testing.T) {
		simulate(t, 1, func(t *testing.T, w *world) {
			head := w.post("late/ '\"")
			var line []weir.ID
			for range 5 {
				line = append(line, w.post("late/ '\""))
			}
			w.drain(time.Minute)
			behind := w.post("late/ '\"") // in the log still
			free := w.post("a")
			next := w.status(head).NextAttemptAt
			at := next.UTC().Format(time.RFC3339)
			if o := w.outlook(head); o.Position != 1 || o.WaitsFor != "its next attempt at "+at ||
				!o.ExpectedAt.Equal(next) {
				t.Errorf("the head: %+v", o)
			}
			w.rates[pace] = 1
			for i, id := range append(line, behind) {
				o := w.outlook(id)
				near(t, o.ExpectedAt, next.Add(time.Duration(i+1)*time.Minute))
				if o.Position != i+2 || o.WaitsFor != "behind "+head.String()+" of its key, which is retried at "+at {
					t.Errorf("%d of the line: %+v", i, o)
				}
			}
			if o := w.outlook(free); o.Position != 1 {
				t.Errorf("another key: %+v", o)
			}
			last := w.post("late/ '\"")
			for what, id := range map[string]weir.ID{"held": line[4], "in the log": last} {
				st := w.status(id)
				looks := w.asked(func() {
					if _, err := w.all.Forecast(t.Context(), st); err != nil {
						t.Error(err)
					}
				})
				if looks > 4 {
					t.Errorf("%d queries for one %s", looks, what)
				}
			}
		})
	})
	t.Run("Scheduled", func(t *testing.T) {
		simulate(t, 1, func(t *testing.T, w *world) {
			id := w.post("a", due(time.Hour))
			at := time.Now().Add(time.Hour).UTC()
			if o := w.outlook(id); o.Position != 0 || !o.ExpectedAt.Equal(w.status(id).Message.DueAt) ||
				o.WaitsFor != "its time, "+at.Format(time.RFC3339) {
				t.Errorf("%+v", o)
			}
		})
	})
	t.Run("FinalCostsNothing", func(t *testing.T) {
		simulate(t, 1, func(t *testing.T, w *world) {
			id := w.post("a")
			w.drain(time.Minute)
			st := w.status(id)
			looks := w.asked(func() {
				if o, err := w.all.Forecast(t.Context(), st); err != nil || o != (overview.Forecast{}) {
					t.Errorf("%+v, %v", o, err)
				}
			})
			if looks != 0 {
				t.Errorf("%d queries", looks)
			}
		})
	})
}

// closedUntil is a calendar that is closed until a time.
type closedUntil time.Time

func (c closedUntil) At(t time.Time) (bool, string, time.Time) {
	return t.Before(time.Time(c)), "night freeze", time.Time(c)
}

func TestForecast_PauseCauses(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		id, now := w.post("a"), time.Now().UTC()
		pause := func(p weir.Pause) {
			t.Helper()
			p.Since = now
			if err := w.store.Pause(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
		says := func(words string, at time.Time) {
			t.Helper()
			o := w.outlook(id)
			if !strings.HasPrefix(o.WaitsFor, words) || at.IsZero() != o.ExpectedAt.IsZero() {
				t.Errorf("%+v, want %q", o, words)
			}
			near(t, o.ExpectedAt, at)
		}
		says("its turn", now)
		hours := func(n int) time.Time { return now.Add(time.Duration(n) * time.Hour).Truncate(time.Second) }
		pause(weir.Pause{Key: "a", Reason: "legal", Until: hours(1)})
		says("its key is paused until "+hours(1).Format(time.RFC3339)+": legal", hours(1))
		pause(weir.Pause{Key: "b", Reason: "of another key"})
		says("its key is paused until", hours(1))
		w.all.Calendar = closedUntil(hours(2))
		says("the calendar is closed until "+hours(2).Format(time.RFC3339)+": night freeze", hours(2))
		pause(weir.Pause{Reason: "release", Until: hours(3)})
		says("the lane is paused until "+hours(3).Format(time.RFC3339)+": release", hours(3))
		later := w.post("b2", due(90*time.Minute))
		if o := w.outlook(later); !o.ExpectedAt.Equal(hours(3)) {
			t.Errorf("one that falls due while the lane is paused: %+v", o)
		}
		pause(weir.Pause{Reason: "release"})
		says("the lane is paused: release", time.Time{})
		if o := w.outlook(later); !o.ExpectedAt.IsZero() || !strings.HasPrefix(o.WaitsFor, "its time") {
			t.Errorf("one that falls due in a lane paused for good: %+v", o)
		}
		if l := w.lane(0); l.PauseCause.By != overview.ByOperator || len(l.Pauses) != 3 {
			t.Errorf("%+v", l)
		}
	})
}

// JSON has no year of five digits. A message that is due in the year 9999, as upstreams write for
// "never", and then meets a closed calendar, has no expected time.
func TestForecast_PastTheLastYear(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		last := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
		id := w.post("a", func(m *weir.Message) { m.DueAt = last })
		if o := w.outlook(id); !o.ExpectedAt.Equal(last) {
			t.Errorf("%+v", o)
		}
		w.all.Calendar = closedUntil(last.Add(6 * time.Hour))
		if o := w.outlook(id); !o.ExpectedAt.IsZero() {
			t.Errorf("%+v", o)
		}
	})
}

func TestForecast_UnavailableCMS(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		id := w.post("away")
		w.drain(2 * time.Second)
		c, err := w.store.ReadControl(t.Context(), 0)
		if err != nil || c.Tail.PausedUntil.IsZero() {
			t.Fatalf("%+v, %v", c.Tail, err)
		}
		want := fmt.Sprint("the CMS is unavailable until ", c.Tail.PausedUntil.UTC().Format(time.RFC3339), ": down")
		if o := w.outlook(id); o.WaitsFor != want || !o.ExpectedAt.Equal(c.Tail.PausedUntil) {
			t.Errorf("%+v, want %q", o, want)
		}
		if l := w.lane(0); l.PauseCause.By != overview.ByCMS || l.PauseCause.Reason != c.Tail.PauseReason {
			t.Errorf("%+v", l)
		}
	})
}

// A pause also delays the messages in front.
func TestForecast_PausesDelayTheQueue(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		for i := range 30 {
			w.post(fmt.Sprint("before", i))
		}
		id, now := w.post("a"), time.Now().UTC()
		w.rates[pace] = 1
		near(t, w.outlook(id).ExpectedAt, now.Add(30*time.Minute))
		until := now.Add(time.Hour)
		if err := w.store.Pause(t.Context(), weir.Pause{Reason: "release", Since: now, Until: until}); err != nil {
			t.Fatal(err)
		}
		near(t, w.outlook(id).ExpectedAt, until.Add(30*time.Minute))
		w.rates[pace] = 15
		near(t, w.outlook(id).ExpectedAt, until.Add(2*time.Minute))
	})
}
