package overview_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/overview"
	"weir/internal/storage/azure"
	"weir/internal/storage/storagetest"
	"weir/internal/testkit/azurite"
	"weir/internal/weir"
)

// The other tests of this package use storage in memory. TestOverview_OnAzurite repeats the main
// cases on Azurite, the emulator of Azure Storage.
func TestOverview_OnAzurite(t *testing.T) {
	t.Parallel()
	account, err := azure.Open(azure.Config{ConnectionString: azurite.Shared(t),
		Prefix: fmt.Sprintf("view%d", time.Now().UnixNano())})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(account.Close)
	if err := account.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}

	w := newWorld(
		t,
		&lane.Store{Table: storagetest.Patient(account.Table()), Bodies: account.Bodies(), Lanes: 2,
			Now: time.Now},
		account.Leases(),
	)

	file := func(n int, change func(i int, m *weir.Message)) {
		var wg sync.WaitGroup
		slots := make(chan struct{}, 50) // so that no post waits for many transactions
		for i := range n {
			slots <- struct{}{}
			wg.Go(func() {
				w.appendMessage(fmt.Sprint("ok/", i), func(m *weir.Message) { change(i, m) })
				<-slots
			})
		}

		wg.Wait()
	}

	file(800, func(i int, m *weir.Message) {
		switch {
		case i%100 == 0:
			m.Key = fmt.Sprint("bad/ '", i)
		case i%101 == 0:
			m.Key = "late/ \"ü\""
		case i%50 == 1:
			m.DueAt = time.Now().Add(time.Hour).UTC()
		case i%50 == 2:
			m.Contract, m.Body = "picture", []byte("<a>Needle</a>")
		}
	})

	w.drainUntilPassed(800)
	middle := time.Now().UTC()
	file(30, func(int, *weir.Message) {})
	all := w.readAll()
	for what, f := range map[string]struct {
		overview.Filter
		want func(weir.Status) bool
	}{
		"all": {overview.Filter{}, func(weir.Status) bool { return true }},
		"dead": {overview.Filter{Stage: weir.Dead},
			func(st weir.Status) bool { return st.Stage == weir.Dead }},
		"retrying": {overview.Filter{Stage: weir.Retrying},
			func(st weir.Status) bool { return st.Stage == weir.Retrying }},
		"queued": {overview.Filter{Stage: weir.Queued},
			func(st weir.Status) bool { return st.Stage == weir.Queued }},
		"scheduled": {overview.Filter{Stage: weir.Scheduled},
			func(st weir.Status) bool { return st.Stage == weir.Scheduled }},
		"key": {overview.Filter{Key: "late/ \"ü\""},
			func(st weir.Status) bool { return st.Message.Key == "late/ \"ü\"" }},
		"text": {overview.Filter{Text: "needle"},
			func(st weir.Status) bool { return st.Message.Contract == "picture" }},
		"before": {overview.Filter{To: middle},
			func(st weir.Status) bool { return st.Message.AcceptedAt.Before(middle) }},
	} {
		found := w.searchAll(f.Filter, 199)
		w.checkFound(what, found, f.want, all)
		if len(found) == 0 {
			t.Errorf("%s: got no message, want at least one", what)
		}
	}

	lanes, err := w.all.Lanes(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	sum := overview.SumLanes(lanes)
	retrying := lanes[0].Retrying + lanes[1].Retrying
	if sum.Accepted != 830 || sum.Counts.Dead != 8 || retrying != 1 ||
		lanes[0].Scheduled+lanes[1].Scheduled != 15 {
		t.Errorf("got %+v, want 830 accepted, 8 dead, 1 retrying and 15 scheduled", lanes)
	}

	clusters, err := w.all.Clusters(t.Context(), 10)
	if err != nil || len(clusters.List) != 1 || clusters.List[0].Count != 8 ||
		clusters.List[0].Keys != 8 {
		t.Errorf("got %+v, %v, want one cluster with Count 8 and Keys 8, and no error",
			clusters, err)
	}

	held := w.searchAll(overview.Filter{Stage: weir.Queued, Key: "late/ \"ü\""}, 1)
	if o := w.readForecast(held[0].Message.ID); o.Position < 2 || !o.ExpectedAt.IsZero() ||
		!strings.HasPrefix(o.WaitsFor, "behind ") {
		t.Errorf("got %+v, want Position at least 2, no ExpectedAt and WaitsFor to begin with \"behind \"", o)
	}
}
