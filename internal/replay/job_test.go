package replay_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/lane/jobrow"
	"weir/internal/lane/lists"
	"weir/internal/replay"
	"weir/internal/storage"
	"weir/internal/weir"
)

func newInt(n int) *int { return &n }

func TestSpec(t *testing.T) {
	simulate(t, 4, func(t *testing.T, w *world) {
		p := w.startProcess()
		now := time.Now()
		for name, c := range map[string]struct {
			change   func(*replay.Spec)
			problems int
		}{
			"Plain":          {func(*replay.Spec) {}, 0},
			"LaneOutOfRange": {func(s *replay.Spec) { s.Filter.Lane = newInt(4) }, 1},
			"NegativeLane":   {func(s *replay.Spec) { s.Filter.Lane = newInt(-1) }, 1},
			"LastLane":       {func(s *replay.Spec) { s.Filter.Lane = newInt(3) }, 0},
			"EmptySpan":      {func(s *replay.Spec) { s.Filter.From, s.Filter.To = now, now }, 1},
			"YearTenThousand": {
				func(s *replay.Spec) {
					s.Filter.To = time.Date(10000, 1, 1, 4, 59, 59, 0,
						time.UTC)
				},
				1},
			"BeforeAllYears": {
				func(s *replay.Spec) {
					s.Filter.From = time.Date(-1, 12, 31, 19, 0, 0, 0,
						time.UTC)
				},
				1},
			"Fingerprint":    {func(s *replay.Spec) { s.Filter.Fingerprint = "0123456789ab" }, 0},
			"BadFingerprint": {func(s *replay.Spec) { s.Filter.Fingerprint = "0123456789AB" }, 1},
			"LongKey": {func(s *replay.Spec) { s.Filter.Key = strings.Repeat("x", 1025) },
				1},
			"NoRate":          {func(s *replay.Spec) { s.RatePerMinute = 0 }, 1},
			"RateTooHigh":     {func(s *replay.Spec) { s.RatePerMinute = 6001 }, 1},
			"ErrorRate":       {func(s *replay.Spec) { s.StopAtErrorRate = 1.01 }, 1},
			"NegativeError":   {func(s *replay.Spec) { s.StopAtErrorRate = -0.01 }, 1},
			"NaN":             {func(s *replay.Spec) { s.StopAtErrorRate = math.NaN() }, 1},
			"LongReason":      {func(s *replay.Spec) { s.Reason = strings.Repeat("x", 501) }, 1},
			"ReasonOfLetters": {func(s *replay.Spec) { s.Reason = strings.Repeat("ü", 500) }, 0},
			"Several": {func(s *replay.Spec) { s.RatePerMinute, s.StopAtErrorRate = -1, 2 },
				2},
		} {
			s := plain
			c.change(&s)
			_, err := p.Plan(t.Context(), s)
			var e *weir.Error
			if err != nil {
				e, _ = err.(*weir.Error)
			}

			if c.problems == 0 && err != nil ||
				c.problems > 0 &&
					(e == nil || e.Kind != weir.Invalid || len(e.Problems) != c.problems) {
				t.Errorf("%s: got %v, want %d problems", name, err, c.problems)
			}

			if _, err := p.Start(t.Context(), s); (err != nil) != (c.problems > 0) {
				t.Errorf("%s: Start: got %v, want %d problems", name, err, c.problems)
			}

			if jobs, _ := jobrow.ReadAll(t.Context(), w.store); c.problems > 0 && len(jobs) != 0 {
				t.Errorf("%s: got the jobs %+v, want none", name, jobs)
			}

			time.Sleep(time.Minute) // the job ends in this time, because no message is dead
		}
	})
}

func TestFilter(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *world) {
		began := time.Now()
		hour := func(n int) time.Time { return began.Add(time.Duration(n) * time.Hour) }
		w.addDeadMessage("/a", "article", 422, `line 3: "x" is bad`, hour(0))
		w.addDeadMessage("/a", "article", 422, `line 9: "y" is bad`, hour(1))
		w.addDeadMessage("/b", "article", 500, `line 3: "x" is bad`, hour(2))
		w.addDeadMessage("/b", "picture", 422, `line 3: "x" is bad`, hour(3))
		w.addDeadMessage("/c", "article", 422, `something else`, hour(4))
		time.Sleep(5 * time.Hour)
		bad, _ := weir.Fingerprint("article", 422, `line 1: "z" is bad`)
		p := w.startProcess()
		for name, c := range map[string]struct {
			filter replay.Filter
			count  int64
			keys   int64
		}{
			"All":           {replay.Filter{}, 5, 3},
			"Key":           {replay.Filter{Key: "/a"}, 2, 1},
			"KeyAndItsLane": {replay.Filter{Key: "/a", Lane: newInt(lane.Of("/a", 3))}, 2, 1},
			"KeyAndAnotherLane": {replay.Filter{Key: "/a",
				Lane: newInt((lane.Of("/a", 3) + 1) % 3)}, 0, 0},
			"Contract":    {replay.Filter{Contract: "picture"}, 1, 1},
			"Fingerprint": {replay.Filter{Fingerprint: bad}, 2, 1},
			"From":        {replay.Filter{From: hour(1)}, 4, 3},
			"To":          {replay.Filter{To: hour(1)}, 1, 1},
			"FromAndTo":   {replay.Filter{From: hour(1), To: hour(3)}, 2, 2},
			"EverythingAtOnce": {replay.Filter{Key: "/a", Contract: "article", Fingerprint: bad,
				From: hour(0), To: hour(1)}, 1, 1},
			"NothingAtAll":         {replay.Filter{Contract: "other"}, 0, 0},
			"FingerprintAndStatus": {replay.Filter{Fingerprint: bad, Key: "/b"}, 0, 0},
		} {
			s := plain
			s.Filter = c.filter
			plan, err := p.Plan(t.Context(), s)
			if err != nil || plan.Count != c.count || plan.Keys != c.keys || !plan.Complete {
				t.Errorf("%s: got %+v, %v, want Count %v, Keys %v, Complete true and no error",
					name, plan, err, c.count, c.keys)
			}
		}

		s := plain
		s.Filter.Fingerprint = bad
		if j := p.waitForState(p.startJob(s).ID, replay.Done, time.Minute); j.Matched != 2 ||
			j.Delivered != 2 ||
			j.Filter != s.Filter {
			t.Errorf("got %+v, want Matched 2, Delivered 2 and Filter %v", j, s.Filter)
		}
	})
}

func TestPlan(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *world) {
		w.addDead(20, keys...)
		w.hasLater["/a"] = true
		p := w.startProcess()
		plan := func(change func(*replay.Spec)) replay.Plan {
			t.Helper()
			s := plain
			change(&s)
			plan, err := p.Plan(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}

			return plan
		}

		lanes := map[int]bool{}
		for _, key := range keys {
			lanes[lane.Of(key, 3)] = true
		}

		// The last attempt of each message took three seconds.
		parallel := float64(80 * 3 / len(lanes))
		if got, want := plan(func(*replay.Spec) {}), (replay.Plan{Count: 100, Complete: true,
			EstimatedSeconds: parallel, Keys: 5, Refused: 20}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}

		if got := plan(func(s *replay.Spec) { s.Force = true }); got.Refused != 0 ||
			got.EstimatedSeconds != float64(100*3/len(lanes)) {
			t.Errorf("with Force: got %+v, want Refused 0 and EstimatedSeconds %d", got,
				100*3/len(lanes))
		}

		if got := plan(func(s *replay.Spec) { s.RatePerMinute = 1 }); got.EstimatedSeconds !=
			80*60 {
			t.Errorf("at a low rate: got %+v, want EstimatedSeconds %v", got, 80*60)
		}

		if got := plan(func(s *replay.Spec) { s.Filter.Key = "/b" }); got.Count != 20 ||
			got.EstimatedSeconds != 20*3 {
			t.Errorf("for one key: got %+v, want Count 20 and EstimatedSeconds %v", got, 20*3)
		}

		contracts := p.Store.Contracts
		p.Store.Contracts = lane.NewContracts(map[string][]string{"other": nil})
		if got := plan(func(*replay.Spec) {}); got.MissingContract != 100 {
			t.Errorf("without the contract: got %+v, want MissingContract 100", got)
		}

		p.Store.Contracts = contracts
		w.addDead(50, "/b", "/c", "/d")
		if got := plan(func(*replay.Spec) {}); got.Count != 250 || got.Complete {
			t.Errorf("for 250 messages: got %+v, want Count 250 and Complete false", got)
		}

		if jobs, err := jobrow.ReadAll(t.Context(), w.store); err != nil || len(jobs) != 0 ||
			len(w.listRequested()) != 0 {
			t.Errorf("after the plans: got the jobs %v, the requests %v, %v; want none and no error", jobs,
				w.listRequested(), err)
		}
	})
}

// If storage fails, Plan returns an error instead of an incomplete plan.
func TestPlan_StorageAway(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		p := w.startProcess()
		p.kill()
		if _, err := p.Plan(t.Context(), plain); weir.KindOf(err) != weir.Unavailable {
			t.Errorf("got %v, want an error of kind Unavailable", err)
		}

		if _, err := p.List(t.Context()); weir.KindOf(err) != weir.Unavailable {
			t.Errorf("got %v, want an error of kind Unavailable", err)
		}

		if _, err := p.Get(t.Context(), "00000000000000abcdef0"); weir.KindOf(err) !=
			weir.Unavailable {
			t.Errorf("got %v, want an error of kind Unavailable", err)
		}
	})
}

// TestReadStates reads the states of messages that are far apart in the log, so that ReadStates
// needs several pages.
func TestReadStates(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.addDead(250, "/a", "/b")
		for _, seq := range []int64{100, 499} {
			if _, err := w.account.Table().Transact(t.Context(), partitionOf(0),
				[]storage.Op{{Kind: storage.Delete, Key: rowKey("m_", seq)}}); err != nil {
				t.Fatal(err)
			}
		}

		states, err := lists.Reader{Store: w.store}.ReadStates(t.Context(), 0,
			[]int64{1, 99, 100, 101, 450, 499, 500, 501})
		if err != nil {
			t.Fatal(err)
		}

		for i, want := range []weir.Stage{"dead", "dead", "", "dead", "dead", "", "dead", ""} {
			if states[i].Stage != want || states[i].FinishedAt.IsZero() != (want == "") {
				t.Errorf("state %d: got %+v, want stage %q, and a FinishedAt if the stage is not empty", i, states[i],
					want)
			}
		}
	})
}
