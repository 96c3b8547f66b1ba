package overview_test

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/overview"
	"weir/internal/storage"
	"weir/internal/weir"
)

var replay = lane.ReplayOptions{}

func TestClusters(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *world) {
		none, err := w.all.Clusters(t.Context(), 50)
		if err != nil || len(none.List) != 0 || !none.Complete {
			t.Fatalf("got %+v, %v, want no cluster, Complete true and no error", none, err)
		}

		began := time.Now()

		for i := range 60 {
			w.appendMessage(fmt.Sprint("bad/", i%20))
			if i%30 == 29 {
				w.drainFor(time.Minute)
			}
		}

		ended := time.Now()
		last := w.appendMessage("bad/of another", func(m *weir.Message) { m.Contract = "picture" })
		w.drainFor(time.Minute)
		all, err := w.all.Clusters(t.Context(), 50)
		if err != nil || len(all.List) != 2 || !all.Complete || all.Examined != 61 {
			t.Fatalf("got %+v, %v, want two clusters, Complete true, Examined 61 and no error", all,
				err)
		}

		if c := all.List[0]; c.Contract != "picture" || c.Count != 1 || c.Keys != 1 ||
			c.Sample.ID != last.String() ||
			c.Sample.Key != "bad/of another" || !c.First.Equal(c.Last) {
			t.Errorf("the newest cluster: got %+v, want Contract picture, Count 1, Keys 1, ID %v, Key \"bad/of "+
				"another\" and First %v", c, last.String(), c.Last)
		}

		c := all.List[1]
		want, normalised := weir.Fingerprint("article", 422, c.Sample.Reason)
		if c.Fingerprint != want || c.Message != normalised || c.CMSStatus != 422 ||
			c.Count != 60 || c.Keys != 20 ||
			c.First.Before(began) || c.Last.After(ended) || c.Last.Sub(c.First) < time.Minute {
			t.Errorf("got %+v, want Count 60, CMSStatus 422, Keys 20, Message %q, and times of the test", c, normalised)
		}

		id, err := weir.ParseID(c.Sample.ID)
		if st := w.readStatus(id); err != nil || st.Stage != weir.Dead ||
			st.Message.Key != c.Sample.Key ||
			st.LastError != c.Sample.Reason || !st.FinishedAt.Equal(c.Last) {
			t.Errorf("the sample: got %+v, %v, want Stage dead, Key %v, LastError %v, FinishedAt %v and no error", st,
				err, c.Sample.Key, c.Sample.Reason, c.Last)
		}

		if one, err := w.all.Clusters(t.Context(), 1); err != nil || len(one.List) != 1 ||
			one.Examined != 61 {
			t.Errorf("limit 1: got %+v, %v, want one cluster, Examined 61 and no error", one, err)
		}

		w.checkFound("its messages", w.searchAll(overview.Filter{Fingerprint: c.Fingerprint}, 17),
			func(st weir.Status) bool {
				return st.Stage == weir.Dead && st.Message.Contract == "article"
			}, w.readAll())
	})
}

func TestClusters_AreBounded(t *testing.T) {
	simulate(t, 1, func(t *testing.T, w *world) {
		w.insertRows("x_", 25_000,
			map[string]any{"Key": "bad", "Contract": "article", "DiedAt": time.Now(),
				"Reason": "asset 1 is missing"})
		if _, err := w.store.Table.Transact(t.Context(), "1.0",
			[]storage.Op{{Kind: storage.Merge, Key: "!tail",
				Values: map[string]any{"Dead": int64(25_000)}}}); err != nil {
			t.Fatal(err)
		}

		var all overview.Clusters
		var err error
		queries := w.countRequests(func() { all, err = w.all.Clusters(t.Context(), 50) })
		if err != nil || all.Complete || all.Examined < 15_000 || queries > 30 ||
			len(all.List) != 1 ||
			all.List[0].Count > all.Examined {
			t.Errorf("got %d queries, %+v, %v, want at most 30 queries, Complete false, Examined at least 15,000, one "+
				"cluster, Count at most %v and no error", queries, all, err, all.Examined)
		}
	})
}
