package overview_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/fold"
	"weir/internal/lane"
	"weir/internal/overview"
	"weir/internal/weir"
)

// checkNear checks that a time differs from the wanted time by at most 2 s.
func checkNear(t *testing.T, got, want time.Time) {
	t.Helper()
	if got.Sub(want).Abs() > 2*time.Second {
		t.Errorf("got ExpectedAt %v, want %v", got, want)
	}
}

func TestForecast_InTheLog(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		first := w.appendMessage("a")
		for range 9 {
			w.appendMessage("b")
		}

		second := w.appendMessage("a")
		if o := w.readForecast(first); o.Position != 1 || o.WaitsFor != "its turn in the lane" {
			t.Errorf("the first message: got %+v, want Position 1 and WaitsFor \"its turn in the lane\"", o)
		}

		o := w.readForecast(second)
		if o.Position != 2 || o.WaitsFor != "behind "+first.String()+" of its key" ||
			!o.ExpectedAt.IsZero() {
			t.Errorf("without a pace: got %+v, want Position 2, WaitsFor \"behind %s\" and no ExpectedAt", o, first)
		}

		w.rates[pace] = 5
		checkNear(t, w.readForecast(second).ExpectedAt, time.Now().Add(2*time.Minute))
		checkNear(t, w.readForecast(first).ExpectedAt, time.Now())
		other := w.appendMessage("c")
		if o := w.readForecast(other); o.Position != 1 ||
			o.WaitsFor != "its turn in the lane, behind about 11 messages" {
			t.Errorf("another key: got %+v, want Position 1 and WaitsFor \"its turn in the lane, behind about 11 "+
				"messages\"", o)
		}
	})
}

func TestForecast_FarBackInTheLog(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.appendMany(1500, func(_ int, m *weir.Message) { m.Key = "a" })
		last := w.appendMessage("a")
		w.rates[pace] = 1500
		o := w.readForecast(last)
		checkNear(t, o.ExpectedAt, time.Now().Add(time.Minute))
		if o.Position != 0 || o.WaitsFor != "its turn in the lane, behind about 1500 messages" {
			t.Errorf("got %+v, want Position 0 and WaitsFor \"its turn in the lane, behind about 1500 messages\"", o)
		}
	})
}

func TestForecast_BehindARetry(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		first := w.appendMessage("late/ '\"")
		var line []weir.ID
		for range 5 {
			line = append(line, w.appendMessage("late/ '\""))
		}

		w.drainFor(time.Minute)
		behind := w.appendMessage("late/ '\"") // stays in the log, because no drain follows
		free := w.appendMessage("a")
		next := w.readStatus(first).NextAttemptAt
		at := next.UTC().Format(time.RFC3339)
		if o := w.readForecast(first); o.Position != 1 || o.WaitsFor != "its next attempt at "+at ||
			!o.ExpectedAt.Equal(next) {
			t.Errorf("the first of the queue: got %+v, want Position 1, WaitsFor %v and ExpectedAt %v", o,
				"its next attempt at "+at,
				next)
		}

		w.rates[pace] = 1
		for i, id := range append(line, behind) {
			o := w.readForecast(id)
			checkNear(t, o.ExpectedAt, next.Add(time.Duration(i+1)*time.Minute))

			if o.Position != i+2 ||
				o.WaitsFor != "behind "+first.String()+" of its key, which is retried at "+at {
				t.Errorf("message %d behind the first: got %+v, want Position %v and WaitsFor %v",
					i+1, o, i+2, "behind "+first.String()+" of its key, which is retried at "+at)
			}
		}

		if o := w.readForecast(free); o.Position != 1 {
			t.Errorf("another key: got %+v, want Position 1", o)
		}

		last := w.appendMessage("late/ '\"")
		for what, id := range map[string]weir.ID{"held": line[4], "in the log": last} {
			st := w.readStatus(id)
			queries := w.countRequests(func() {
				if _, err := w.all.Forecast(t.Context(), st); err != nil {
					t.Error(err)
				}
			})
			if queries > 4 {
				t.Errorf("the forecast of a message %s made %d queries, want at most 4",
					what, queries)
			}
		}
	})
}

func TestForecast_Scheduled(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		id := w.appendMessage("a", withDelay(time.Hour))
		at := time.Now().Add(time.Hour).UTC()
		if o := w.readForecast(id); o.Position != 0 ||
			!o.ExpectedAt.Equal(w.readStatus(id).Message.DueAt) ||
			o.WaitsFor != "its due time, "+at.Format(time.RFC3339) {
			t.Errorf("got %+v, want Position 0, ExpectedAt %s and WaitsFor with that time", o, at)
		}
	})
}

func TestForecast_FinalCostsNothing(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		id := w.appendMessage("a")
		w.drainFor(time.Minute)
		st := w.readStatus(id)
		queries := w.countRequests(func() {
			if o, err := w.all.Forecast(t.Context(), st); err != nil || o != (overview.Forecast{}) {
				t.Errorf("got %+v, %v, want the zero forecast of a final message and no error", o,
					err)
			}
		})
		if queries != 0 {
			t.Errorf("got %d queries, want 0", queries)
		}
	})
}

// closedUntil is a calendar that is closed until a time.
type closedUntil time.Time

func (c closedUntil) At(t time.Time) (bool, string, time.Time) {
	return t.Before(time.Time(c)), "night freeze", time.Time(c)
}

// With folding, the spellings of a key have one order and one pause, and a filter for a key selects
// exactly this key.
func TestForecast_Spellings(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.store.Fold = fold.All
		first, second := w.appendMessage("Café"), w.appendMessage("cafe")
		o := w.readForecast(second)
		if o.Position != 2 || !strings.HasPrefix(o.WaitsFor,
			"behind "+first.String()+" of its key") {
			t.Errorf("got %+v, want position 2, behind %s", o, first)
		}

		err := w.store.Pauses().Pause(t.Context(),
			weir.Pause{Key: "CAFE", Reason: "legal", Since: time.Now()})
		if err != nil {
			t.Fatal(err)
		}

		if o := w.readForecast(second); o.WaitsFor != "its key is paused: legal" {
			t.Errorf("got %+v, want the pause of CAFE", o)
		}

		for key, want := range map[string][]weir.ID{"Café": {first}, "cafe": {second},
			"CAFE": nil} {
			var got []weir.ID
			for _, st := range w.searchAll(overview.Filter{Key: key}, 10) {
				got = append(got, st.Message.ID)
			}

			if !slices.Equal(got, want) {
				t.Errorf("the filter %s: got %v, want %v", key, got, want)
			}
		}
	})
}

func TestForecast_PauseCauses(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		id, now := w.appendMessage("a"), time.Now().UTC()
		pause := func(p weir.Pause) {
			t.Helper()
			p.Since = now
			if err := w.store.Pauses().Pause(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}

		says := func(words string, at time.Time) {
			t.Helper()
			o := w.readForecast(id)
			if !strings.HasPrefix(o.WaitsFor, words) || at.IsZero() != o.ExpectedAt.IsZero() {
				t.Errorf("got %+v, want WaitsFor to begin with %q, and ExpectedAt %v", o, words, at)
			}
			checkNear(t, o.ExpectedAt, at)
		}

		says("its turn", now)
		hours := func(n int) time.Time {
			return now.Add(time.Duration(n) * time.Hour).Truncate(time.Second)
		}
		pause(weir.Pause{Key: "a", Reason: "legal", Until: hours(1)})
		says("its key is paused until "+hours(1).Format(time.RFC3339)+": legal", hours(1))
		pause(weir.Pause{Key: "b", Reason: "of another key"})
		says("its key is paused until", hours(1))
		w.all.Calendar = closedUntil(hours(2))
		says("the calendar is closed until "+hours(2).Format(time.RFC3339)+
			": night freeze", hours(2))
		pause(weir.Pause{Reason: "release", Until: hours(3)})
		says("the lane is paused until "+hours(3).Format(time.RFC3339)+": release", hours(3))
		later := w.appendMessage("b2", withDelay(90*time.Minute))
		if o := w.readForecast(later); !o.ExpectedAt.Equal(hours(3)) {
			t.Errorf("due while the lane is paused: got %+v, want ExpectedAt %s", o, hours(3))
		}

		pause(weir.Pause{Reason: "release"})
		says("the lane is paused: release", time.Time{})

		if o := w.readForecast(later); !o.ExpectedAt.IsZero() ||
			!strings.HasPrefix(o.WaitsFor, "its due time") {
			t.Errorf("scheduled in a lane that is paused without an end: got %+v, want no ExpectedAt and WaitsFor to "+
				"begin with \"its due time\"", o)
		}

		if l := w.readLane(0); l.PauseCause.By != overview.ByOperator || len(l.Pauses) != 3 {
			t.Errorf("got %+v, want By %v and 3 Pauses", l, overview.ByOperator)
		}
	})
}

// Some upstreams use a due time in the year 9999 for "never". If the calendar is closed at this
// time, it can open in the year 10000, which RFC 3339 cannot express. Then the forecast must have
// no expected time.
func TestForecast_PastTheLastYear(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		last := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
		id := w.appendMessage("a", func(m *weir.Message) { m.DueAt = last })
		if o := w.readForecast(id); !o.ExpectedAt.Equal(last) {
			t.Errorf("got %+v, want ExpectedAt %v", o, last)
		}

		w.all.Calendar = closedUntil(last.Add(6 * time.Hour))
		if o := w.readForecast(id); !o.ExpectedAt.IsZero() {
			t.Errorf("got %+v, want no ExpectedAt", o)
		}
	})
}

// The CMS may be away for this message alone, because no other message shows that it is away for
// all.
func TestForecast_UnavailableCMS(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		id := w.appendMessage("away")
		w.drainFor(2 * time.Second)
		c, err := w.store.ReadControl(t.Context(), 0)
		if err != nil || c.Tail.PausedUntil.IsZero() {
			t.Fatalf("got %+v, %v, want a PausedUntil and no error", c.Tail, err)
		}

		want := fmt.Sprint("the CMS does not take it; next try at ",
			c.Tail.PausedUntil.UTC().Format(time.RFC3339), ": down")
		if o := w.readForecast(id); o.WaitsFor != want || !o.ExpectedAt.Equal(c.Tail.PausedUntil) {
			t.Errorf("got %+v, want WaitsFor %q, and ExpectedAt %v", o, want, c.Tail.PausedUntil)
		}

		if l := w.readLane(0); l.PauseCause.By != overview.ByCMS ||
			l.PauseCause.Reason != c.Tail.PauseReason {
			t.Errorf("got %+v, want By %v and Reason %v", l, overview.ByCMS, c.Tail.PauseReason)
		}
	})
}

// While a lane is paused, the messages ahead of a message wait, too. So the expected time must be
// the end of the pause plus the time that these messages take.
func TestForecast_PausesDelayTheQueue(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		for i := range 30 {
			w.appendMessage(fmt.Sprint("before", i))
		}

		id, now := w.appendMessage("a"), time.Now().UTC()
		w.rates[pace] = 1
		checkNear(t, w.readForecast(id).ExpectedAt, now.Add(30*time.Minute))
		until := now.Add(time.Hour)
		if err := w.store.Pauses().Pause(t.Context(), weir.Pause{Reason: "release", Since: now,
			Until: until}); err != nil {
			t.Fatal(err)
		}

		checkNear(t, w.readForecast(id).ExpectedAt, until.Add(30*time.Minute))
		w.rates[pace] = 15
		checkNear(t, w.readForecast(id).ExpectedAt, until.Add(2*time.Minute))
	})
}

func TestForecast_MissingContract(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		first := w.appendMessage("a")
		behind := w.appendMessage("a")
		w.all.Store.Contracts = lane.NewContracts(map[string][]string{"other": nil})
		name := w.readStatus(first).Message.Contract
		if o := w.readForecast(first); o.WaitsFor != "its contract "+name+
			", which is missing from the settings" ||
			!o.ExpectedAt.IsZero() {
			t.Errorf("got %+v, want no expected time, and the missing contract %q", o, name)
		}

		want := "behind " + first.String() + " of its key, whose contract " + name +
			" is missing from the settings"
		if o := w.readForecast(behind); o.WaitsFor != want || !o.ExpectedAt.IsZero() {
			t.Errorf("got %+v, want no expected time, and %q", o, want)
		}
	})
}

// The CMS has rejected two messages of a contract alike. The third waits, and the fourth waits
// behind it.
func TestForecast_Brake(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.brake = 2
		dead := []weir.ID{w.appendMessage("bad/1"), w.appendMessage("bad/2")}
		refused := w.appendMessage("bad/3")
		behind := w.appendMessage("bad/3")
		w.drainFor(time.Second)

		for _, id := range dead {
			if stage := w.readStatus(id).Stage; stage != weir.Dead {
				t.Fatalf("message %s is %s, want dead", id, stage)
			}
		}

		name := w.readStatus(refused).Message.Contract
		brakes := w.readLane(0).Brakes
		if len(brakes) != 1 || brakes[0].Contract != name || brakes[0].CMSStatus != 422 ||
			brakes[0].Messages != 2 {
			t.Errorf("got the brakes %+v, want one of the contract %s, for which two messages wait",
				brakes, name)
		}

		want := "the CMS to take a message of the contract " + name +
			": it rejects this one as it did others; " +
			"when the cause is corrected, weir resume --all sends it"
		if o := w.readForecast(refused); o.WaitsFor != want || !o.ExpectedAt.IsZero() {
			t.Errorf("got %+v, want no expected time, and %q", o, want)
		}

		want = "behind " + refused.String() +
			" of its key, and the CMS rejects messages of the contract " + name
		if o := w.readForecast(behind); o.WaitsFor != want || !o.ExpectedAt.IsZero() {
			t.Errorf("got %+v, want no expected time, and %q", o, want)
		}
	})
}
