package schema_test

import (
	"context"
	"fmt"
	"time"

	"weir/internal/drain"
	"weir/internal/fold"
	"weir/internal/lane"
	"weir/internal/lane/transfer"
	"weir/internal/relane"
	"weir/internal/storage/memory"
	"weir/internal/ticket"
	"weir/internal/weir"
)

// pauseLanes pauses a key, and then also the lane of the key. The lane's pause is so long that an
// event reports it.
func (w *world) pauseLanes() {
	key := w.keyIn(0, "/paused")
	until := time.Now().Add(time.Hour)
	w.must(w.store.Pauses().Pause(w.Context(),
		weir.Pause{Lane: 0, Key: key, Reason: "test", By: "ada", Since: time.Now(),
			Until: until}))
	shelved := w.post(weir.Message{Key: key, Skip: true})
	w.post(weir.Message{Key: key, Skip: true})
	w.awaitStage(w.post(weir.Message{Key: w.keyIn(0, "/other")}), weir.Delivered)
	w.must(w.store.Pauses().Pause(w.Context(),
		weir.Pause{Lane: 0, Reason: "test", Since: time.Now()}))

	for range 5 {
		time.Sleep(time.Minute)
		w.sweep()
	}

	w.must(w.store.Pauses().Resume(w.Context(), 0, ""))
	w.must(w.store.Pauses().Resume(w.Context(), 0, key))
	w.drainer.Wake(0)
	w.awaitStage(shelved, weir.Delivered)
	time.Sleep(2 * time.Minute)
	w.sweep()
	w.awaitRest()
}

// loseCMS lets the CMS fail in three ways, one after the other: it is unavailable, it refuses each
// message, and it does not answer.
func (w *world) loseCMS() {
	key := w.keyIn(0, "/away")
	w.setAnswer(answerAlways(unavailable))
	first := w.post(weir.Message{Key: key})
	w.awaitTail(0, "a pause for the CMS", func(t lane.Tail) bool { return !t.PausedUntil.IsZero() })
	w.setAnswer(nil)
	w.must(w.store.Pauses().Resume(w.Context(), 0, ""))
	w.awaitStage(first, weir.Delivered)

	w.setAnswer(answerAlways(refused))
	second := w.post(weir.Message{Key: key})
	third := w.post(weir.Message{Key: w.keyIn(0, "/away as well")})
	w.awaitTail(0, "all keys refused", func(t lane.Tail) bool { return t.ProbedBelow > 0 })
	w.setAnswer(nil)
	w.awaitStage(second, weir.Delivered)
	w.awaitStage(third, weir.Delivered)

	w.setAnswer(answerAlways(unanswered))
	fourth := w.post(weir.Message{Key: key})
	w.awaitTail(0, "a settle time", func(t lane.Tail) bool { return !t.SettleUntil.IsZero() })
	w.setAnswer(nil)
	w.awaitStage(fourth, weir.Delivered)
	w.awaitRest()
}

// claimLane claims a lane that another process holds.
func (w *world) claimLane() {
	w.setAnswer(answerNever)
	w.post(weir.Message{Key: w.keyIn(0, "/claimed")})
	w.awaitTail(0, "a holder at work", func(t lane.Tail) bool { return t.IsOpen })
	holder := w.process
	w.start(w.store.Lanes)
	if got, want := w.drainer.Claim(w.Context(), 0).State, drain.Busy; got != want {
		w.Errorf("claim of a lane whose holder is at work: got %q, want %q", got, want)
	}

	w.setAnswer(nil)
	claimant := w.process
	w.process = holder
	w.kill()
	w.process = claimant
	w.awaitRest()
}

// crashRepeatedly kills five processes, one after the other, while each delivers the same message.
// After repeated crashes, a holder writes to tail which message it will send, before it sends that
// message.
func (w *world) crashRepeatedly() {
	key := w.keyIn(0, "/crash")
	w.setAnswer(answerNever)
	id := w.post(weir.Message{Key: key})

	for range 5 {
		w.awaitTail(0, "a holder at work", func(t lane.Tail) bool { return t.IsOpen })
		time.Sleep(30 * time.Second)
		w.kill()
		w.start(2)
		w.drainer.Wake(0)
	}

	w.setAnswer(nil)
	w.waitUntil("the end of the message", func() bool {
		st, err := w.store.Messages().Status(w.Context(), id)
		w.must(err)
		return st.Stage.Final()
	})

	w.awaitRest()
}

// changeLanes breaks off a change of the number of lanes and undoes that change. Then it makes a
// complete change, which moves scheduled and dead messages, and folds keys. After that, versions
// wait under a spelling that differs from the folded key.
func (w *world) changeLanes() {
	due := time.Now().Add(time.Hour)
	scheduled := w.post(weir.Message{Key: "/moved", Version: "1", Supersede: true, DueAt: due,
		Body: newLargeBody()})
	w.setAnswer(answerAlways(rejected))
	dead := w.post(weir.Message{Key: "/dead moved", Body: newLargeBody()})
	w.awaitStage(dead, weir.Dead)
	w.setAnswer(nil)
	w.awaitStage(w.post(weir.Message{Key: "/dead moved"}), weir.Delivered)
	w.setAnswer(answerAlways(rejected))
	second := w.post(weir.Message{Key: "/dead moved"})
	w.awaitStage(second, weir.Dead)
	w.setAnswer(nil)
	w.stop()

	ctx, cancel := context.WithCancel(w.Context())
	w.fold = fold.Case
	folded := relane.Target{Lanes: 3, Fold: &w.fold}
	if err := w.newCommand(func(string) { cancel() }).Run(ctx, folded); err == nil {
		w.Fatal("the first change came to its end, want it broken off")
	}

	w.must(w.newCommand(func(string) {}).Undo(w.Context()))
	w.must(w.newCommand(func(string) {}).Run(w.Context(), folded))
	w.start(3)
	_, err := w.store.Requests().Replay(w.Context(), second, lane.ReplayOptions{Force: true})
	w.must(err)
	w.awaitStage(second, weir.Delivered)
	w.awaitStage(scheduled, weir.Delivered)
	w.setAnswer(answerAlways(failed))
	first := w.post(weir.Message{Key: "/Spelled", Version: "1", Supersede: true})
	w.awaitStage(first, weir.Retrying)
	last := w.post(weir.Message{Key: "/Spelled", Version: "2", Supersede: true})
	time.Sleep(time.Second)
	w.setAnswer(nil)
	w.awaitStage(last, weir.Delivered)
	w.awaitRest()
}

// moveStore moves everything to another account.
func (w *world) moveStore() {
	p, to := &process{w: w}, memory.New(time.Now)
	placeOf := func(name string, account *memory.Account) transfer.Store {
		nothing := func(context.Context) error { return nil }
		return transfer.Store{Name: name, Table: recordedTable{account.Table(), p},
			Partitions: account,
			Bodies:     recordedBlobs{account.Blobs(), p},
			Leases:     recordedLeases{account.Leases(), p},
			Inbox:      account.Files("inbox"), Accepted: account.Files("accepted"),
			Rejected: account.Files("rejected"),
			Ensure:   nothing, EnsureFiles: nothing}
	}

	_, err := transfer.Mover{From: placeOf("first", w.account), To: placeOf("second", to),
		Lease: leaseLength,
		Now:   time.Now, Progress: func(string) {}, Log: quietLog}.Run(w.Context())
	w.must(err)
}

// newCommand returns the command that changes the number of lanes.
func (w *world) newCommand(progress func(string)) relane.Resharder {
	p := &process{w: w}
	p.tickets = ticket.New(ticket.Config{Queue: recordedQueue{w.queue, p}, Now: time.Now,
		Rand: drawHalf, Log: quietLog})
	return relane.Resharder{
		Store: p.newStore(0), Leases: recordedLeases{w.account.Leases(), p}, Lease: leaseLength,
		Settle: settleTime,
		Log:    quietLog, Drainer: func(s *lane.Store) relane.Drainer {
			return p.newDrainer(s, nil)
		},
		Progress: progress,
	}
}

// removeOldMessages waits until all messages are past their retention. It then runs retention, and
// the search for bodies to which no row refers.
func (w *world) removeOldMessages() {
	w.setAnswer(answerAlways(rejected))
	w.awaitStage(w.post(weir.Message{Key: "/removed", Body: newLargeBody()}), weir.Dead)
	w.setAnswer(nil)
	w.awaitRest()
	w.loseBlobs()
	const day = 24 * time.Hour
	time.Sleep(100 * day)
	retention := &lane.Retention{Store: w.store, KeepFinal: 7 * day, KeepDead: 90 * day,
		TimeShare: time.Minute, Log: quietLog}

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

// loseBlobs writes blobs to which no row refers, as crashes in the middle of an append do. A
// listing of these blobs has more than one page. Storage refuses to remove the last blob.
func (w *world) loseBlobs() {
	for n := range 1100 {
		name := fmt.Sprintf("%s/%d.0/%020x", time.Now().UTC().Format(time.DateOnly),
			w.store.Epoch, n)
		w.must(w.account.Blobs().Put(w.Context(), name, []byte("lost")))
		w.lockedBlob = name
	}
}
