package notify_test

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/notify"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

// watcher is a receiver that wants to know of lanes.
func watcher(t *testing.T) func(*notify.Config) {
	return func(c *notify.Config) {
		c.Receivers = []notify.Receiver{{URL: "https://ops.example.com/", Secret: secretOf(t, knownSecret),
			Events: notify.Events, PausedFor: 10 * time.Minute, BehindBy: 15 * time.Minute}}
	}
}

// sweep has processes look at the lane each minute.
func (w *world) sweep(d time.Duration, processes ...*sender) {
	w.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		for _, p := range processes {
			c, err := w.store.ReadControl(w.t.Context(), 0)
			if err != nil {
				w.t.Fatal(err)
			}
			oldest, err := w.store.OldestWaitingSince(w.t.Context(), 0, c)
			if err != nil {
				w.t.Fatal(err)
			}
			p.ObserveLane(0, c)
			p.ReportLane(w.t.Context(), 0, c, oldest)
		}
		sleep(time.Minute)
	}
}

// heard are the events that were told, in order.
func (w *world) heard() string {
	text := ""
	for _, e := range w.receiver.all() {
		text += e.event.Type + " "
	}
	return text
}

func TestLook_TellsOfAPauseOnce(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		a, b := w.start(watcher(t)), w.start(watcher(t))
		began := time.Now()
		pause := weir.Pause{Lane: 0, Reason: "the CMS is moved", Since: began}
		if err := w.store.Pause(t.Context(), pause); err != nil {
			t.Fatal(err)
		}
		if w.sweep(9*time.Minute, a, b); w.heard() != "" {
			t.Errorf("told too early: %s", w.heard())
		}
		w.sweep(20*time.Minute, a, b)
		c := w.start(watcher(t)) // after a restart
		w.sweep(20*time.Minute, c)
		if w.heard() != "lane.paused " {
			t.Fatalf("told: %q", w.heard())
		}
		got := w.receiver.all()[0]
		if d := got.event.Data; d["by"] != "operator" || d["reason"] != "the CMS is moved" || d["lane"] != 0.0 ||
			d["since"] != began.UTC().Format(time.RFC3339Nano) || at(got, began) != "10m0s" {
			t.Errorf("%s after %s", got.body, at(got, began))
		}
		if err := w.store.Resume(t.Context(), 0, ""); err != nil {
			t.Fatal(err)
		}
		if w.sweep(5*time.Minute, b, c); w.heard() != "lane.paused lane.resumed " {
			t.Errorf("told: %q", w.heard())
		}
		w.empty()
		if err := w.store.Pause(t.Context(), weir.Pause{Lane: 0, Reason: "again", Since: time.Now()}); err != nil {
			t.Fatal(err)
		}
		w.sweep(30*time.Minute, b, c)
		all := w.receiver.all()
		if w.heard() != "lane.paused lane.resumed lane.paused " || all[0].id == all[2].id {
			t.Errorf("told: %q", w.heard())
		}
	})
}

func TestLook_TellsOfACMSThatIsAway(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start(watcher(t))
		id := w.file("")
		w.away(3)
		w.sweep(9*time.Minute, p)
		p = w.start(watcher(t)) // what it had seen so far is not lost
		if w.sweep(3*time.Minute, p); w.heard() != "lane.paused " {
			t.Fatalf("told: %q", w.heard())
		}
		if d := w.receiver.all()[0].event.Data; d["by"] != "cms" || d["reason"] != "connection refused" {
			t.Errorf("got %v, want d[\"by\"] == \"cms\" && d[\"reason\"] == \"connection refused\"", d)
		}
		w.away(0)
		w.end(weir.Delivered, id)
		if w.sweep(3*time.Minute, p); w.heard() != "lane.paused lane.resumed " {
			t.Errorf("told: %q", w.heard())
		}
		w.empty()
	})
}

// away writes into tail that the CMS was unavailable a number of times in a row.
func (w *world) away(pauses int64) {
	w.t.Helper()
	if w.writer == nil {
		var err error
		if w.writer, err = w.store.RaiseFence(w.t.Context(), 0, "holder", lane.Tail{}, func(*lane.Tail) {}); err != nil {
			w.t.Fatal(err)
		}
	}
	ch, b := &lane.Change{}, &lane.Batch{}
	ch.UpdateTail(func(t *lane.Tail) {
		t.PauseCount, t.PauseReason, t.PausedUntil = pauses, "connection refused", time.Now()
		if pauses == 0 {
			t.PauseReason, t.PausedUntil = "", time.Time{}
		}
	})
	b.TryAdd(ch)
	w.commit(b)
}

func TestLook_TellsOfALaneThatIsBehind(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		a, b := w.start(watcher(t)), w.start(watcher(t))
		began := time.Now()
		id := w.file("")
		w.sweep(40*time.Minute, a, b)
		if w.heard() != "lane.behind " || at(w.receiver.all()[0], began) != "15m0s" {
			t.Fatalf("told: %q", w.heard())
		}
		if d := w.receiver.all()[0].event.Data; d["waiting"] != 1.0 || d["oldestWaitingSeconds"] != 900.0 {
			t.Errorf("got %v, want d[\"waiting\"] == 1.0 && d[\"oldestWaitingSeconds\"] == 900.0", d)
		}
		w.end(weir.Delivered, id)
		if w.sweep(10*time.Minute, a, b); w.heard() != "lane.behind lane.caught_up " {
			t.Errorf("told: %q", w.heard())
		}
		w.empty()
	})
}

// A lane without a pause or a backlog causes no request to storage, even if a receiver wants its events.
func TestSender_ReportLane_IdleLaneIsFree(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start(watcher(t))
		calls := 0
		p.faults.Set(func(storagetest.Call) storagetest.Fault { calls++; return storagetest.Fault{} })
		w.sweep(30*time.Minute, p)
		if calls != 0 {
			t.Errorf("%d calls of storage", calls)
		}
	})
}

func TestReplayFinished(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start(watcher(t))
		at := time.Now()
		for range 2 {
			if err := p.ReplayFinished(t.Context(), "job-1", at,
				map[string]any{"id": "job-1", "state": "done"}); err != nil {
				t.Fatal(err)
			}
		}
		sleep(time.Minute)
		ids := map[string]bool{}
		for _, e := range w.receiver.all() {
			ids[e.id] = true
			if e.event.Type != "replay.finished" || fmt.Sprint(e.event.Data["state"]) != "done" {
				t.Errorf("got %s, want e.event.Type == \"replay.finished\" && "+
					"fmt.Sprint(e.event.Data[\"state\"]) == \"done\"", e.body)
			}
		}
		if len(ids) != 1 {
			t.Errorf("told under the ids %v", ids)
		}
		w.empty()
	})
}

// Events left in the lanes of an earlier epoch are found when a process starts.
func TestSender_ScanEarlierEpochs(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		first := w.start()
		first.faults.Set(func(storagetest.Call) storagetest.Fault {
			return storagetest.Fault{Kind: storagetest.FailBefore}
		})
		id := w.file(hook)
		w.end(weir.Delivered, id)
		sleep(time.Second)
		if len(w.receiver.all()) != 0 {
			t.Fatal("it was told by a process without storage")
		}
		later := *w.store
		later.Epoch, later.Lanes, later.EarlierEpochs = 2, 3, []lane.Epoch{{Number: 1, Lanes: 1}}
		p := w.start(func(c *notify.Config) {
			table := c.Store.Table
			*c.Store = later
			c.Store.Table = table
		})
		if err := p.ScanEarlierEpochs(t.Context()); err != nil {
			t.Fatal(err)
		}
		if sleep(time.Minute); len(w.receiver.all()) != 1 || w.receiver.all()[0].event.Data["id"] != id.String() {
			t.Errorf("told: %q", w.heard())
		}
		w.empty()
	})
}
