package overview_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/overview"
	"weir/internal/relane"
	"weir/internal/testkit/lanetest"
	"weir/internal/weir"
)

// changeLanes changes the number of lanes, and returns a world with the lanes of the next epoch.
func (w *world) changeLanes(n int) *world {
	w.t.Helper()
	fresh := func(lanes int) *lane.Store {
		return &lane.Store{Table: w.store.Table, Bodies: w.store.Bodies, Lanes: lanes,
			Now: time.Now}
	}

	c := relane.Resharder{
		Store: fresh(w.store.Lanes), Leases: w.leases, Lease: 15 * time.Second,
		Settle: 2 * time.Second, Log: quiet,
		Progress: func(string) {},
		Drainer: func(s *lane.Store) relane.Drainer {
			return drain.New(drain.Config{Store: s, Leases: w.leases, Sender: byKey{},
				Tickets: lanetest.NoTickets{}, Lease: 15 * time.Second, Settle: 2 * time.Second,
				Attempts: 9, Backoff: drain.Backoff{Min: time.Hour, Max: time.Hour}, Now: time.Now,
				Log: quiet})
		},
	}
	if err := c.Run(w.t.Context(), relane.Target{Lanes: n}); err != nil {
		w.t.Fatal(err)
	}

	return newWorld(w.t, fresh(n), w.leases)
}

// A change of the number of lanes copies scheduled messages, one old lane after the other. So the
// copies in a new lane are not sorted by their times of acceptance. A search by time must still
// find all copies.
func TestSearch_OfCopies(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *world) {
		for i := range 1800 {
			w.appendMessage(fmt.Sprint("scheduled/", i), withDelay(1000*time.Hour))
			time.Sleep(time.Second)
		}

		w = w.changeLanes(1)
		all := w.readAll()
		began := all[0].Message.AcceptedAt
		for _, st := range all {
			if st.Message.AcceptedAt.Before(began) {
				began = st.Message.AcceptedAt
			}
		}

		for minutes := range 6 {
			from, to := began.Add(time.Duration(5*minutes)*time.Minute),
				began.Add(time.Duration(5*minutes+3)*time.Minute)
			if got := w.searchAll(overview.Filter{From: from, To: to}, 200); len(got) != 180 {
				t.Errorf("got %d of the messages of three minutes, want 180", len(got))
			}
		}
	})
}

// A change of the number of lanes copies scheduled and dead messages into the next epoch, but does
// not remove the originals. A search must find each message once: a copied message as its latest
// copy, and any other message as the original.
func TestSearch_OverEpochs(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *world) {
		ids := map[string]weir.ID{}
		note := func(key string, change ...func(*weir.Message)) {
			ids[key] = w.appendMessage(key,
				change...)
		}

		for i := range 150 {
			note(fmt.Sprint("ok/", i))
			if i%3 == 0 {
				note(fmt.Sprint("bad/", i))
				note(fmt.Sprint("scheduled/", i), withDelay(1000*time.Hour))
			}
		}

		w.drainFor(time.Minute)

		for _, n := range []int{2, 5} {
			w = w.changeLanes(n)
			time.Sleep(time.Hour)
			for i := range 50 {
				note(fmt.Sprint("ok/of ", n, " lanes/", i))
			}
			w.drainFor(time.Minute)
		}

		if len(w.store.EarlierEpochs) != 2 {
			t.Fatalf("got the earlier epochs %v, want 2", w.store.EarlierEpochs)
		}

		all := make(map[weir.Stage]int)
		for _, limit := range []int{7, 100, 200} {
			seen := map[string]bool{}
			for _, st := range w.searchAll(overview.Filter{}, limit) {
				key := st.Message.Key
				if seen[key] || st.Message.Public() != ids[key] {
					t.Errorf("found key %q as %s, found before: %t; want it once, as %s", key,
						st.Message.Public(), seen[key], ids[key])
				}

				seen[key] = true
				all[st.Stage]++

				if truth := w.readStatus(ids[key]); truth.Stage != st.Stage ||
					truth.Message.ID != st.Message.ID {
					t.Errorf("%q: search found %+v, want the Stage and the ID of Status: %+v",
						key, st, truth)
				}
			}

			if len(seen) != len(ids) {
				t.Errorf("pages of %d: found %d messages, want %d", limit, len(seen), len(ids))
			}
		}

		if all[weir.Delivered] != 3*250 || all[weir.Dead] != 3*50 || all[weir.Scheduled] != 3*50 {
			t.Errorf("got %v, want %v delivered, %v dead and %v scheduled", all,
				3*250, 3*50, 3*50)
		}

		if got := w.searchAll(overview.Filter{Stage: weir.Dead}, 13); len(got) != 50 {
			t.Errorf("got %d dead messages, want 50", len(got))
		}

		if got := w.searchAll(overview.Filter{Key: "ok/7"}, 13); len(got) != 1 ||
			got[0].Stage != weir.Delivered {
			t.Errorf("by a key of the first epoch: got %+v, want one delivered message", got)
		}

		recent := time.Now().Add(-30 * time.Minute)
		if got := w.searchAll(overview.Filter{From: recent}, 13); len(got) != 50 {
			t.Errorf("got %d messages of the last half hour, want 50", len(got))
		}

		if got := w.searchAll(overview.Filter{To: recent.Add(-time.Hour)}, 13); len(got) != 250 {
			t.Errorf("got %d messages from before both changes, want 250", len(got))
		}

		if clusters, err := w.all.Clusters(t.Context(), 5); err != nil || len(clusters.List) != 1 ||
			clusters.List[0].Count != 50 ||
			clusters.List[0].Sample.ID != ids[clusters.List[0].Sample.Key].String() {
			t.Errorf("got %+v, %v, want one cluster with Count 50 and the sample %v, and no error",
				clusters, err, ids[clusters.List[0].Sample.Key].String())
		}

		sum := overview.Totals{}
		if lanes, err := w.all.Lanes(t.Context()); err == nil {
			sum = overview.SumLanes(lanes)
		}

		if sum.Counts.Dead != 50 || sum.Waiting != 50 || sum.Counts.Moved != 0 {
			t.Errorf("got %+v, want Dead 50, Waiting 50 and Moved 0", sum)
		}
	})
}

// A search by the Idempotency-Key of a post must find the posted message, even if the number of
// lanes was changed after the post.
func TestSearch_ByIdempotencyKeyOverEpochs(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *world) {
		posted := map[string]weir.ID{}
		post := func(key string, change ...func(*weir.Message)) {
			m := weir.Message{Contract: "article", Key: key, ContentType: "application/xml",
				Body: []byte("<a/>")}
			for _, f := range change {
				f(&m)
			}

			r, err := w.append.Append(t.Context(), m, "post of "+key)
			if err != nil {
				t.Fatal(err)
			}

			posted[key] = r.Message.Public()
		}

		for i := range 10 {
			post(fmt.Sprint("ok/", i))
			post(fmt.Sprint("bad/", i))
			post(fmt.Sprint("scheduled/", i), withDelay(1000*time.Hour))
		}

		w.drainFor(time.Minute)

		for _, n := range []int{2, 5} {
			w = w.changeLanes(n)
			post(fmt.Sprint("ok/of ", n, " lanes"))

			for key, id := range posted {
				for _, f := range []overview.Filter{{Key: key, IdempotencyKey: "post of " + key},
					{IdempotencyKey: "post of " + key}} {
					found := w.searchAll(f, 50)
					if len(found) != 1 || found[0].Message.Public() != id {
						t.Errorf("%d lanes, %+v: found %+v, want message %s alone", n, f, found, id)
					}
				}
			}

			f := overview.Filter{Key: "bad/3", IdempotencyKey: "post of bad/3", Stage: weir.Dead}
			if found := w.searchAll(f, 50); len(found) != 1 {
				t.Errorf("%d lanes: found %+v, want the dead message of bad/3", n, found)
			}

			if found := w.searchAll(overview.Filter{Key: "ok/3", IdempotencyKey: "post of ok/4"}, 50); len(found) != 0 {
				t.Errorf("%d lanes: found %+v, want no message of another key", n, found)
			}
		}
	})
}

// A client reads a list page by page, and the number of lanes changes between two pages. Each list
// then answers that it must be begun anew. It must not answer that it is complete.
func TestContinuedLists_WhileTheLanesChange(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *world) {
		for i := range 40 {
			w.appendMessage(fmt.Sprint("bad/", i))
			w.appendMessage(fmt.Sprint("ok/", i))
			w.appendMessage(fmt.Sprint("scheduled/", i), withDelay(1000*time.Hour))
		}

		w.drainFor(time.Minute)
		continued := map[string]func(token string) (overview.SearchResult, error){}
		for name, f := range map[string]overview.Filter{"All": {}, "Dead": {Stage: weir.Dead},
			"Scheduled": {Stage: weir.Scheduled}, "Delivered": {Stage: weir.Delivered},
			"Text": {Text: "bad"}} {
			continued[name] = func(token string) (overview.SearchResult, error) {
				return w.all.Search(t.Context(), f, 10, token)
			}
		}

		continued["ByDueTime"] = func(token string) (overview.SearchResult, error) {
			return w.all.Scheduled(t.Context(), overview.DueFilter{}, 10, token)
		}
		tokens := map[string]string{}
		for name, read := range continued {
			page, err := read("")
			if err != nil || page.Continue == "" {
				t.Fatalf("%s: got %+v, %v, want a first page and a token", name, page, err)
			}

			tokens[name] = page.Continue
			if _, err := read(page.Continue); err != nil {
				t.Errorf("%s: got %v before the change, want no error", name, err)
			}
		}

		w = w.changeLanes(2)

		for name, read := range continued {
			page, err := read(tokens[name])
			if weir.KindOf(err) != weir.Malformed || !strings.Contains(err.Error(), "begin anew") {
				t.Errorf("%s: got %d messages, complete %t, %v, want the error that begins anew",
					name, len(page.Messages), page.Complete, err)
			}

			if page, err = read(""); err != nil || page.Continue == "" {
				t.Errorf("%s: got %+v, %v from the beginning, want a first page and a token",
					name, page, err)
			}
		}
	})
}
