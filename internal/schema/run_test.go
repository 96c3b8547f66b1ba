package schema_test

import (
	"context"
	"fmt"
	"time"

	"weir/internal/audit"
	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/recur"
	"weir/internal/relane"
	"weir/internal/replay"
	"weir/internal/ticket"
	"weir/internal/weir"
)

// run uses each feature once. The steps follow each other on one storage account.
func (w *world) run() {
	w.start(2)
	w.deliverMessages()
	w.deliverLater()
	w.retryMessages()
	w.supersedeVersions()
	w.killMessages()
	w.replayMessages()
	w.refuseReplay()
	w.pauseLanes()
	w.loseCMS()
	w.runSchedules()
	w.replayInBulk()
	w.recordChange()
	w.claimLane()
	w.crash()
	w.changeLanes()
	w.removeOldMessages()
	w.stop()
}

// deliverMessages delivers a message that has everything, and one with a large body.
func (w *world) deliverMessages() {
	w.refuses.Store(true) // so that the callback is tried again
	small := w.post(weir.Message{Key: "/a", Version: "1", Callback: hookURL,
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", TraceState: "a=1"})
	large := w.post(weir.Message{Key: "/b", Body: large()})
	w.awaitStage(small, weir.Delivered)
	w.awaitStage(large, weir.Delivered)
	time.Sleep(2 * time.Minute)
	w.refuses.Store(false)
	w.awaitRest()
	w.must(w.store.Pause(w.Context(), weir.Pause{Lane: 0, Reason: "test", Since: time.Now()}))
	var last weir.ID
	for n := range 40 { // first attempts that one commit takes are packed in one row
		last = w.post(weir.Message{Key: w.keyIn(0, fmt.Sprint("/burst/", n))})
	}
	w.must(w.store.Resume(w.Context(), 0, ""))
	w.awaitStage(last, weir.Delivered)
	w.must(w.bell.Enqueue(w.Context(), 0))
	for number := range 9 { // an instance with tickets of many lanes puts one for all
		w.must(w.bell.Enqueue(w.Context(), number))
	}
}

// deliverLater schedules messages, moves one, cancels one, and lets one fall due among others of
// its key.
func (w *world) deliverLater() {
	soon := time.Now().Add(time.Minute)
	due := w.post(weir.Message{Key: "/due", DueAt: soon})
	moved := w.post(weir.Message{Key: "/due", DueAt: soon.Add(time.Hour)})
	cancelled := w.post(weir.Message{Key: "/due", DueAt: soon.Add(time.Hour)})
	_, err := w.store.Reschedule(w.Context(), moved, soon, "")
	w.must(err)
	_, err = w.store.Cancel(w.Context(), cancelled)
	w.must(err)
	skipping := w.post(weir.Message{Key: "/due and skipping", Skip: true, DueAt: soon})
	w.awaitStage(skipping, weir.Delivered)
	w.awaitStage(due, weir.Delivered)
	w.awaitStage(moved, weir.Delivered)
	w.awaitStage(cancelled, weir.Cancelled)
	w.awaitRest()
}

// retryMessages lets a key wait for a retry with others behind it, and cancels one of these.
func (w *world) retryMessages() {
	w.answers(always(failed))
	key := w.keyIn(0, "/retry")
	first := w.post(weir.Message{Key: key})
	skipping := w.post(weir.Message{Key: "/skip", Skip: true})
	w.awaitStage(first, weir.Retrying)
	w.awaitStage(skipping, weir.Retrying)
	second := w.post(weir.Message{Key: key})
	third := w.post(weir.Message{Key: key})
	time.Sleep(100 * time.Millisecond)
	_, err := w.store.Cancel(w.Context(), second)
	w.must(err)
	w.drainer.Wake(0)
	w.awaitStage(second, weir.Cancelled)
	w.answers(nil)
	w.awaitStage(third, weir.Delivered)
	w.awaitRest()
}

// supersedeVersions lets newer versions take the place of older ones, while they wait for their
// turn and while they wait behind one that failed.
func (w *world) supersedeVersions() {
	key := w.keyIn(0, "/versions")
	version := func(v string) weir.Message {
		return weir.Message{Key: key, Version: v, Supersede: true, Callback: hookURL}
	}
	w.must(w.store.Pause(w.Context(), weir.Pause{Lane: 0, Reason: "test", Since: time.Now()}))
	old, newer := w.post(version("1")), w.post(version("2"))
	w.must(w.store.Resume(w.Context(), 0, ""))
	w.drainer.Wake(0)
	w.awaitStage(newer, weir.Delivered)
	w.awaitStage(old, weir.Superseded)
	w.answers(always(failed))
	waiting := w.post(version("3"))
	w.awaitStage(waiting, weir.Retrying)
	behind := w.post(version("4"))
	time.Sleep(200 * time.Millisecond)
	w.answers(nil)
	w.awaitStage(behind, weir.Delivered)
	w.awaitRest()
}

// killMessages makes messages dead, and delivers a later one of a key.
func (w *world) killMessages() {
	w.answers(always(rejected))
	w.refuses.Store(true) // so that both receivers are told again
	dead := w.post(weir.Message{Key: "/dead", Callback: hookURL})
	w.awaitStage(dead, weir.Dead)
	time.Sleep(2 * time.Minute)
	w.refuses.Store(false)
	w.answers(nil)
	w.awaitStage(w.post(weir.Message{Key: "/dead"}), weir.Delivered)
	w.awaitRest()
}

// replayMessages replays dead messages: as they are, by force, and with other bodies.
func (w *world) replayMessages() {
	w.answers(always(rejected))
	plain, forced := w.post(weir.Message{Key: "/plain"}), w.post(weir.Message{Key: "/forced"})
	edited, enlarged := w.post(weir.Message{Key: "/edited"}), w.post(weir.Message{Key: "/enlarged"})
	for _, id := range []weir.ID{plain, forced, edited, enlarged} {
		w.awaitStage(id, weir.Dead)
	}
	for _, asked := range []struct {
		id      weir.ID
		options lane.ReplayOptions
	}{
		{plain, lane.ReplayOptions{}},
		{forced, lane.ReplayOptions{Force: true}},
		{edited, lane.ReplayOptions{Edit: newEdit([]byte("<b/>"))}},
		{enlarged, lane.ReplayOptions{Edit: newEdit(large())}},
	} {
		w.answers(always(failed)) // so that the replayed message waits for a retry
		_, err := w.store.Replay(w.Context(), asked.id, asked.options)
		w.must(err)
		w.drainer.Wake(asked.id.Lane)
		w.awaitStage(asked.id, weir.Retrying)
		w.answers(nil)
		w.awaitStage(asked.id, weir.Delivered)
	}
	w.awaitRest()
}

func newEdit(body []byte) *lane.Edit {
	return &lane.Edit{Body: body, ContentType: "application/xml", Version: "2", Note: "corrected"}
}

// refuseReplay asks for a replay while a later message of the key is being delivered.
func (w *world) refuseReplay() {
	w.answers(always(rejected))
	dead := w.post(weir.Message{Key: "/late"})
	w.awaitStage(dead, weir.Dead)
	w.answers(func(ctx context.Context, d weir.Delivery) weir.Result {
		time.Sleep(3 * time.Second)
		return weir.Result{Outcome: weir.OutcomeDelivered, Status: 200}
	})
	later := w.post(weir.Message{Key: "/late"})
	time.Sleep(time.Second)
	_, err := w.store.Replay(w.Context(), dead, lane.ReplayOptions{})
	w.must(err)
	w.answers(nil)
	w.awaitStage(later, weir.Delivered)
	w.await("a refused replay", func() bool {
		st, err := w.store.Status(w.Context(), dead)
		w.must(err)
		return st.ReplayRefused != ""
	})
	w.awaitRest()
}

// pauseLanes pauses a key and a lane for so long that the operators' receiver is told.
func (w *world) pauseLanes() {
	key := w.keyIn(0, "/paused")
	until := time.Now().Add(time.Hour)
	w.must(w.store.Pause(w.Context(), weir.Pause{Lane: 0, Key: key, Reason: "test", Since: time.Now(), Until: until}))
	shelved := w.post(weir.Message{Key: key, Skip: true})
	w.post(weir.Message{Key: key, Skip: true})
	w.awaitStage(w.post(weir.Message{Key: w.keyIn(0, "/other")}), weir.Delivered)
	w.must(w.store.Pause(w.Context(), weir.Pause{Lane: 0, Reason: "test", Since: time.Now()}))
	for range 5 {
		time.Sleep(time.Minute)
		w.sweep()
	}
	w.must(w.store.Resume(w.Context(), 0, ""))
	w.must(w.store.Resume(w.Context(), 0, key))
	w.drainer.Wake(0)
	w.awaitStage(shelved, weir.Delivered)
	time.Sleep(2 * time.Minute)
	w.sweep()
	w.awaitRest()
}

// loseCMS lets the CMS be away, refuse everything and leave requests unanswered.
func (w *world) loseCMS() {
	key := w.keyIn(0, "/away")
	w.answers(always(unavailable))
	first := w.post(weir.Message{Key: key})
	w.awaitTail(0, "a pause for the CMS", func(t lane.Tail) bool { return !t.PausedUntil.IsZero() })
	w.answers(nil)
	w.must(w.store.Resume(w.Context(), 0, ""))
	w.awaitStage(first, weir.Delivered)

	w.answers(always(refused))
	second := w.post(weir.Message{Key: key})
	third := w.post(weir.Message{Key: w.keyIn(0, "/away as well")})
	w.awaitTail(0, "all keys refused", func(t lane.Tail) bool { return t.ProbedBelow > 0 })
	w.answers(nil)
	w.awaitStage(second, weir.Delivered)
	w.awaitStage(third, weir.Delivered)

	w.answers(always(unanswered))
	fourth := w.post(weir.Message{Key: key})
	w.awaitTail(0, "a settle time", func(t lane.Tail) bool { return !t.SettleUntil.IsZero() })
	w.answers(nil)
	w.awaitStage(fourth, weir.Delivered)
	w.awaitRest()
}

// runSchedules lets schedules file messages, one of them with a large message.
func (w *world) runSchedules() {
	for name, message := range map[string]string{"small": "<r/>", "large": fmt.Sprintf("<r>%x</r>", large())} {
		definition := recur.Definition{Cron: "@every 10m", Message: []byte(message)}
		_, _, err := w.schedules.Put(w.Context(), name, definition, recur.Condition{})
		w.must(err)
	}
	w.await("a first run", func() bool {
		s, err := w.schedules.Get(w.Context(), "small")
		w.must(err)
		return s.Filed > 0
	})
	for _, name := range []string{"small", "large"} {
		w.must(w.schedules.Delete(w.Context(), name, recur.Condition{}))
	}
	w.awaitRest()
}

// recordChange writes an entry of the audit log.
func (w *world) recordChange() {
	log := &audit.Log{Table: w.store.Table, Keep: time.Hour, Now: time.Now, Logger: quietLog}
	log.Record(w.Context(), audit.Entry{Action: "pause", Subject: "s", Detail: "{}", Function: "write", Status: 200,
		Principal: "p", KeyID: "k", From: "f", Invocation: "i"})
}

// replayInBulk replays all dead messages of one key.
func (w *world) replayInBulk() {
	w.answers(always(rejected))
	for range 3 {
		w.awaitStage(w.post(weir.Message{Key: "/bulk"}), weir.Dead)
	}
	w.answers(nil)
	spec := replay.Spec{Filter: replay.Filter{Key: "/bulk"}, RatePerMinute: 600, StopAtErrorRate: 1, Reason: "test"}
	j, err := w.replays.Start(w.Context(), spec)
	w.must(err)
	w.await("the end of the bulk replay", func() bool {
		j, err = w.replays.Get(w.Context(), j.ID)
		w.must(err)
		return j.State == replay.Done
	})
	w.awaitRest()
}

// claimLane claims a lane that another process holds.
func (w *world) claimLane() {
	w.answers(hang)
	w.post(weir.Message{Key: w.keyIn(0, "/claimed")})
	w.awaitTail(0, "a holder at work", func(t lane.Tail) bool { return t.IsOpen })
	holder := w.process
	w.start(w.store.Lanes)
	if got, want := w.drainer.Claim(w.Context(), 0).State, drain.Busy; got != want {
		w.Errorf("claim of a lane whose holder is at work: got %q, want %q", got, want)
	}
	w.answers(nil)
	claimant := w.process
	w.process = holder
	w.kill()
	w.process = claimant
	w.awaitRest()
}

// crash kills the process in the middle of one delivery, until the lane takes care which message it
// sends.
func (w *world) crash() {
	key := w.keyIn(0, "/crash")
	w.rate = 10 * time.Millisecond // of the processes from now on
	w.answers(hang)
	id := w.post(weir.Message{Key: key})
	for range 5 {
		w.awaitTail(0, "a holder at work", func(t lane.Tail) bool { return t.IsOpen })
		time.Sleep(30 * time.Second)
		w.kill()
		w.start(2)
		w.drainer.Wake(0)
	}
	w.answers(nil)
	w.await("the end of the message", func() bool {
		st, err := w.store.Status(w.Context(), id)
		w.must(err)
		return st.Stage.Final()
	})
	w.awaitRest()
}

// changeLanes gives up one change of the number of lanes and makes another, with scheduled and dead
// messages that move.
func (w *world) changeLanes() {
	due := time.Now().Add(time.Hour)
	scheduled := w.post(weir.Message{Key: "/moved", Version: "1", Supersede: true, DueAt: due, Body: large()})
	w.answers(always(rejected))
	dead := w.post(weir.Message{Key: "/dead moved", Body: large()})
	w.awaitStage(dead, weir.Dead)
	w.answers(nil)
	w.awaitStage(w.post(weir.Message{Key: "/dead moved"}), weir.Delivered)
	w.answers(always(rejected))
	second := w.post(weir.Message{Key: "/dead moved"})
	w.awaitStage(second, weir.Dead)
	w.answers(nil)
	w.stop()

	ctx, cancel := context.WithCancel(w.Context())
	if err := w.newCommand(func(string) { cancel() }).Run(ctx, 3); err == nil {
		w.Fatal("the first change came to its end, want it broken off")
	}
	w.must(w.newCommand(func(string) {}).Undo(w.Context()))
	w.must(w.newCommand(func(string) {}).Run(w.Context(), 3))
	w.start(3)
	_, err := w.store.Replay(w.Context(), second, lane.ReplayOptions{Force: true})
	w.must(err)
	w.awaitStage(second, weir.Delivered)
	w.awaitStage(scheduled, weir.Delivered)
	w.awaitRest()
}

// newCommand returns the command that changes the number of lanes.
func (w *world) newCommand(progress func(string)) relane.Resharder {
	p := &process{w: w}
	p.bell = ticket.New(ticket.Config{Queue: recordedQueue{w.queue, p}, Now: time.Now, Rand: half, Log: quietLog})
	return relane.Resharder{
		Store: p.newStore(0), Leases: recordedLeases{w.account.Leases(), p}, Lease: leaseLength, Settle: settleTime,
		Log: quietLog, Drainer: func(s *lane.Store) relane.Drainer { return p.newDrainer(s, nil) }, Progress: progress,
	}
}

// removeOldMessages lets the retention pass.
func (w *world) removeOldMessages() {
	w.answers(always(rejected))
	w.awaitStage(w.post(weir.Message{Key: "/removed", Body: large()}), weir.Dead)
	w.answers(nil)
	w.awaitRest()
	w.loseBlobs()
	const day = 24 * time.Hour
	time.Sleep(100 * day)
	retention := &lane.Retention{Store: w.store, KeepFinal: 7 * day, KeepDead: 90 * day, TimeShare: time.Minute, Log: quietLog}
	for number := range w.store.Lanes {
		_, err := retention.RunLane(w.Context(), number)
		w.must(err)
	}
	_, err := retention.RunEarlierEpochs(w.Context())
	w.must(err)
	w.slowList = time.Hour
	for range 3 {
		_, err = retention.RemoveForgottenBodies(w.Context())
		w.must(err)
	}
	w.slowList = 0
}

// loseBlobs leaves blobs that no row names, as crashes in the middle of an append do: more than a
// list returns at once, and one that storage refuses to remove.
func (w *world) loseBlobs() {
	for n := range 1100 {
		name := fmt.Sprintf("%s/%d.0/%020x", time.Now().UTC().Format(time.DateOnly), w.store.Epoch, n)
		w.must(w.account.Blobs().Put(w.Context(), name, []byte("lost")))
		w.lockedBlob = name
	}
}
