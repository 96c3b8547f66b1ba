package notify_test

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/lane/epochs"
	"weir/internal/lane/lists"
	"weir/internal/notify"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

// withLaneReceiver sets a receiver of all events, with thresholds for a pause and for a backlog.
func withLaneReceiver(t *testing.T) func(*notify.Config) {
	return func(c *notify.Config) {
		c.Receivers = []notify.Receiver{{URL: "https://ops.example.com/",
			Secret: secretOf(t, knownSecret),
			Events: notify.Events, PausedFor: 10 * time.Minute, BehindBy: 15 * time.Minute}}
	}
}

// sweepEachMinute lets each process observe and report the lane once a minute, for the duration d.
func (w *world) sweepEachMinute(d time.Duration, processes ...*sender) {
	w.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		for _, p := range processes {
			c, err := w.store.ReadControl(w.t.Context(), 0)
			if err != nil {
				w.t.Fatal(err)
			}

			oldest, err := lists.Reader{Store: w.store}.OldestWaitingSince(w.t.Context(), 0, c)
			if err != nil {
				w.t.Fatal(err)
			}

			p.ObserveLane(0, c)
			p.ReportLane(w.t.Context(), 0, c, oldest)
		}

		passTime(time.Minute)
	}
}

// joinEventTypes returns the types of the events that the receiver got, in the order in which they
// arrived.
func (w *world) joinEventTypes() string {
	text := ""
	for _, e := range w.receiver.listEvents() {
		text += e.event.Type + " "
	}
	return text
}

func TestSender_ReportLane_APauseOnce(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		a, b := w.startSender(withLaneReceiver(t)), w.startSender(withLaneReceiver(t))
		began := time.Now()
		pause := weir.Pause{Lane: 0, Reason: "the CMS is moved", Since: began}
		if err := w.store.Pauses().Pause(t.Context(), pause); err != nil {
			t.Fatal(err)
		}

		if w.sweepEachMinute(9*time.Minute, a, b); w.joinEventTypes() != "" {
			t.Errorf("got the events %s within 9 minutes, want no event before 10 minutes",
				w.joinEventTypes())
		}

		w.sweepEachMinute(20*time.Minute, a, b)
		c := w.startSender(withLaneReceiver(t)) // a process that starts later
		w.sweepEachMinute(20*time.Minute, c)
		if w.joinEventTypes() != "lane.paused " {
			t.Fatalf("got the events %q, want \"lane.paused \"", w.joinEventTypes())
		}

		got := w.receiver.listEvents()[0]
		if d := got.event.Data; d["by"] != "operator" || d["reason"] != "the CMS is moved" ||
			d["lane"] != 0.0 ||
			d["since"] != began.UTC().Format(time.RFC3339Nano) ||
			formatDelay(got, began) != "10m0s" {
			t.Errorf("got %s after %s, want the operator's pause after 10 min", got.body,
				formatDelay(got, began))
		}

		if err := w.store.Pauses().Resume(t.Context(), 0, ""); err != nil {
			t.Fatal(err)
		}

		if w.sweepEachMinute(5*time.Minute, b, c); w.joinEventTypes() !=
			"lane.paused lane.resumed " {
			t.Errorf("got the events %q, want \"lane.paused lane.resumed \"", w.joinEventTypes())
		}

		w.checkOutboxEmpty()

		if err := w.store.Pauses().Pause(t.Context(), weir.Pause{Lane: 0, Reason: "again",
			Since: time.Now()}); err != nil {
			t.Fatal(err)
		}

		w.sweepEachMinute(30*time.Minute, b, c)
		all := w.receiver.listEvents()
		if w.joinEventTypes() != "lane.paused lane.resumed lane.paused " || all[0].id == all[2].id {
			t.Errorf("got the events %q, the first with the id %v and the third with the id %v; want "+
				"\"lane.paused lane.resumed lane.paused \" with two ids", w.joinEventTypes(),
				all[0].id, all[2].id)
		}
	})
}

func TestSender_ReportLane_ACMSThatIsAway(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.startSender(withLaneReceiver(t))
		id := w.appendMessage("")
		w.saveUnavailable(3)
		w.sweepEachMinute(9*time.Minute, p)
		p = w.startSender(withLaneReceiver(t)) // must count the 9 minutes before its start
		if w.sweepEachMinute(3*time.Minute, p); w.joinEventTypes() != "lane.paused " {
			t.Fatalf("got the events %q, want \"lane.paused \"", w.joinEventTypes())
		}

		if d := w.receiver.listEvents()[0].event.Data; d["by"] != "cms" ||
			d["reason"] != "connection refused" {
			t.Errorf("got %v, want by cms and reason \"connection refused\"", d)
		}

		w.saveUnavailable(0)
		w.commitFinal(weir.Delivered, id)
		if w.sweepEachMinute(3*time.Minute, p); w.joinEventTypes() != "lane.paused lane.resumed " {
			t.Errorf("got the events %q, want \"lane.paused lane.resumed \"", w.joinEventTypes())
		}

		w.checkOutboxEmpty()
	})
}

// saveUnavailable writes to tail how many consecutive times the CMS was unavailable; 0 = the CMS
// has answered.
func (w *world) saveUnavailable(pauses int64) {
	w.t.Helper()
	if w.writer == nil {
		var err error
		if w.writer, err = w.store.RaiseFence(w.t.Context(), 0, "holder", lane.Tail{},
			func(*lane.Tail) {}); err != nil {
			w.t.Fatal(err)
		}
	}

	ch, b := &lane.Change{}, &lane.Transaction{}
	ch.UpdateTail(func(t *lane.Tail) {
		t.PauseCount, t.PauseReason, t.PausedUntil = pauses, "connection refused", time.Now()
		if pauses == 0 {
			t.PauseReason, t.PausedUntil = "", time.Time{}
		}
	})

	b.TryAdd(ch)
	w.commitBatch(b)
}

func TestSender_ReportLane_ALaneThatIsBehind(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		a, b := w.startSender(withLaneReceiver(t)), w.startSender(withLaneReceiver(t))
		began := time.Now()
		id := w.appendMessage("")
		w.sweepEachMinute(40*time.Minute, a, b)

		if w.joinEventTypes() != "lane.behind " ||
			formatDelay(w.receiver.listEvents()[0], began) != "15m0s" {
			t.Fatalf("got the events %q, want \"lane.behind \" after 15 min", w.joinEventTypes())
		}

		if d := w.receiver.listEvents()[0].event.Data; d["waiting"] != 1.0 ||
			d["oldestWaitingSeconds"] != 900.0 {
			t.Errorf("got %v, want waiting 1 and oldestWaitingSeconds 900", d)
		}

		w.commitFinal(weir.Delivered, id)

		if w.sweepEachMinute(10*time.Minute, a, b); w.joinEventTypes() !=
			"lane.behind lane.caught_up " {
			t.Errorf("got the events %q, want \"lane.behind lane.caught_up \"", w.joinEventTypes())
		}

		w.checkOutboxEmpty()
	})
}

// A lane without a pause or a backlog causes no request to storage, although a receiver has
// subscribed to events of lanes.
func TestSender_ReportLane_IdleLaneIsFree(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.startSender(withLaneReceiver(t))
		calls := 0
		p.faults.Set(func(storagetest.Call) storagetest.Fault { calls++; return storagetest.Fault{} })
		w.sweepEachMinute(30*time.Minute, p)
		if calls != 0 {
			t.Errorf("got %d calls of storage, want 0", calls)
		}
	})
}

func TestReplayFinished(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.startSender(withLaneReceiver(t))
		at := time.Now()
		for range 2 {
			if err := p.ReplayFinished(t.Context(), "job-1", at,
				map[string]any{"id": "job-1", "state": "done"}); err != nil {
				t.Fatal(err)
			}
		}

		passTime(time.Minute)
		ids := map[string]bool{}
		for _, e := range w.receiver.listEvents() {
			ids[e.id] = true
			if e.event.Type != "replay.finished" || fmt.Sprint(e.event.Data["state"]) != "done" {
				t.Errorf("got %s, want Type replay.finished and state done", e.body)
			}
		}

		if len(ids) != 1 {
			t.Errorf("got the event with the ids %v, want one id", ids)
		}

		w.checkOutboxEmpty()
	})
}

// ScanEarlierEpochs finds the events that are left in the lanes of an earlier epoch.
func TestSender_ScanEarlierEpochs(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		first := w.startSender()
		first.faults.Set(func(storagetest.Call) storagetest.Fault {
			return storagetest.Fault{Kind: storagetest.FailBefore}
		})
		id := w.appendMessage(hook)
		w.commitFinal(weir.Delivered, id)
		passTime(time.Second)

		if len(w.receiver.listEvents()) != 0 {
			t.Fatalf("a process without storage sent %d events, want none",
				len(w.receiver.listEvents()))
		}

		later := *w.store
		later.Epoch, later.Lanes, later.EarlierEpochs = 2, 3, []epochs.Epoch{{Number: 1, Lanes: 1}}
		p := w.startSender(func(c *notify.Config) {
			table := c.Store.Table
			*c.Store = later
			c.Store.Table = table
		})
		if err := p.ScanEarlierEpochs(t.Context()); err != nil {
			t.Fatal(err)
		}

		if passTime(time.Minute); len(w.receiver.listEvents()) != 1 ||
			w.receiver.listEvents()[0].event.Data["id"] != id.String() {
			t.Errorf("got the events %q, want 1 event about the message %v", w.joinEventTypes(),
				id.String())
		}

		w.checkOutboxEmpty()
	})
}

// saveBrakes writes closed brakes to tail.
func (w *world) saveBrakes(brakes ...lane.Brake) {
	w.t.Helper()
	if w.writer == nil {
		w.saveUnavailable(0)
	}

	ch, b := &lane.Change{}, &lane.Transaction{}
	ch.UpdateTail(func(t *lane.Tail) { t.Brakes = brakes })
	b.TryAdd(ch)
	w.commitBatch(b)
}

// A receiver gets one event about a brake, and another one if the brake closes again later.
func TestSender_ContractRejected(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.startSender(withLaneReceiver(t))
		brake := lane.Brake{Contract: "article", Fingerprint: "f1", CMSStatus: 422,
			Reason: "no teaser", Since: time.Now().UTC()}
		w.saveBrakes(brake)
		w.sweepEachMinute(3*time.Minute, p)
		if w.joinEventTypes() != "contract.rejected " {
			t.Fatalf("got the events %q, want \"contract.rejected \"", w.joinEventTypes())
		}

		if d := w.receiver.listEvents()[0].event.Data; d["contract"] != "article" ||
			d["reason"] != "no teaser" {
			t.Errorf("got %v, want the contract article and the reason \"no teaser\"", d)
		}

		w.saveBrakes()
		w.sweepEachMinute(2*time.Minute, p)
		brake.Since = time.Now().UTC()
		w.saveBrakes(brake)
		w.sweepEachMinute(2*time.Minute, p)
		if w.joinEventTypes() != "contract.rejected contract.rejected " {
			t.Errorf("got the events %q, want two of contract.rejected", w.joinEventTypes())
		}

		w.checkOutboxEmpty()
	})
}
