package overview_test

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/overview"
	"weir/internal/relane"
	"weir/internal/weir"
)

// relane changes the number of lanes, and returns the world of the next epoch.
func (w *world) relane(n int) *world {
	w.t.Helper()
	fresh := func(lanes int) *lane.Store {
		return &lane.Store{Table: w.store.Table, Bodies: w.store.Bodies, Lanes: lanes, Now: time.Now}
	}
	c := relane.Resharder{
		Store: fresh(w.store.Lanes), Leases: w.leases, Lease: 15 * time.Second, Settle: 2 * time.Second, Log: quiet,
		Progress: func(string) {},
		Drainer: func(s *lane.Store) relane.Drainer {
			return drain.New(drain.Config{Store: s, Leases: w.leases, Sender: byKey{}, Tickets: noBell{},
				Lease: 15 * time.Second, Settle: 2 * time.Second,
				Attempts: 9, Backoff: drain.Backoff{Min: time.Hour, Max: time.Hour}, Now: time.Now, Log: quiet})
		},
	}
	if err := c.Run(w.t.Context(), n); err != nil {
		w.t.Fatal(err)
	}
	return newWorld(w.t, fresh(n), w.leases)
}

// Copies are in the order of their old lanes, one lane after the other, so their times of acceptance
// are not in order.
func TestSearch_OfCopies(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *world) {
		for i := range 1800 {
			w.post(fmt.Sprint("scheduled/", i), due(1000*time.Hour))
			time.Sleep(time.Second)
		}
		w = w.relane(1)
		all := w.everything()
		began := all[0].Message.AcceptedAt
		for _, st := range all {
			if st.Message.AcceptedAt.Before(began) {
				began = st.Message.AcceptedAt
			}
		}
		for minutes := range 6 {
			from, to := began.Add(time.Duration(5*minutes)*time.Minute),
				began.Add(time.Duration(5*minutes+3)*time.Minute)
			if got := w.find(overview.Filter{From: from, To: to}, 200); len(got) != 180 {
				t.Errorf("%d of the 180 messages of three minutes", len(got))
			}
		}
	})
}

// A change of the number of lanes leaves final messages behind, and copies the others. Each message is
// found once, a copied one in its new lane.
func TestSearch_OverEpochs(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *world) {
		ids := map[string]weir.ID{}
		note := func(key string, change ...func(*weir.Message)) { ids[key] = w.post(key, change...) }
		for i := range 150 {
			note(fmt.Sprint("ok/", i))
			if i%3 == 0 {
				note(fmt.Sprint("bad/", i))
				note(fmt.Sprint("scheduled/", i), due(1000*time.Hour))
			}
		}
		w.drain(time.Minute)
		for _, n := range []int{2, 5} {
			w = w.relane(n)
			time.Sleep(time.Hour)
			for i := range 50 {
				note(fmt.Sprint("ok/of ", n, " lanes/", i))
			}
			w.drain(time.Minute)
		}
		if len(w.store.EarlierEpochs) != 2 {
			t.Fatalf("earlier epochs: %v", w.store.EarlierEpochs)
		}
		all := make(map[weir.Stage]int)
		for _, limit := range []int{7, 100, 200} {
			seen := map[string]bool{}
			for _, st := range w.find(overview.Filter{}, limit) {
				key := st.Message.Key
				if seen[key] || st.Message.Public() != ids[key] {
					t.Errorf("%q is found twice, or under another id", key)
				}
				seen[key] = true
				all[st.Stage]++
				if truth := w.status(ids[key]); truth.Stage != st.Stage || truth.Message.ID != st.Message.ID {
					t.Errorf("%q: %+v, and it is %+v", key, st, truth)
				}
			}
			if len(seen) != len(ids) {
				t.Errorf("%d of %d found, by %d", len(seen), len(ids), limit)
			}
		}
		if all[weir.Delivered] != 3*250 || all[weir.Dead] != 3*50 || all[weir.Scheduled] != 3*50 {
			t.Errorf("%v", all)
		}
		if got := w.find(overview.Filter{Stage: weir.Dead}, 13); len(got) != 50 {
			t.Errorf("%d dead", len(got))
		}
		if got := w.find(overview.Filter{Key: "ok/7"}, 13); len(got) != 1 || got[0].Stage != weir.Delivered {
			t.Errorf("one of the first epoch by its key: %+v", got)
		}
		recent := time.Now().Add(-30 * time.Minute)
		if got := w.find(overview.Filter{From: recent}, 13); len(got) != 50 {
			t.Errorf("%d since half an hour", len(got))
		}
		if got := w.find(overview.Filter{To: recent.Add(-time.Hour)}, 13); len(got) != 250 {
			t.Errorf("%d before both changes", len(got))
		}
		if clusters, err := w.all.Clusters(t.Context(), 5); err != nil || len(clusters.List) != 1 ||
			clusters.List[0].Count != 50 || clusters.List[0].Sample.ID != ids[clusters.List[0].Sample.Key].String() {
			t.Errorf("%+v, %v", clusters, err)
		}
		sum := overview.Totals{}
		if lanes, err := w.all.Lanes(t.Context()); err == nil {
			sum = overview.SumLanes(lanes)
		}
		if sum.Counts.Dead != 50 || sum.Waiting != 50 || sum.Counts.Moved != 0 {
			t.Errorf("%+v", sum)
		}
	})
}
