package schema_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"weir/internal/audit"
	"weir/internal/batch"
	"weir/internal/lane"
	"weir/internal/lane/epochs"
	"weir/internal/limiter"
	"weir/internal/recur"
	"weir/internal/replay"
	"weir/internal/upstream"
	"weir/internal/weir"
	"weir/internal/wire"
)

// useEachFeature uses each feature that writes to storage, one after the other on the same storage
// account.
func (w *world) useEachFeature() {
	w.start(1)
	w.stop()

	// storage is unused yet
	w.must(w.newCommand(func(string) {}).TakeLanes(w.Context(), epochs.Epoch{Lanes: 2}))
	w.start(2)
	w.deliverMessages()
	w.deliverLater()
	w.retryMessages()
	w.supersedeVersions()
	w.forgetVersion()
	w.rememberIDs()
	w.eraseMessages()
	w.killMessage()
	w.replayMessages()
	w.refuseReplay()
	w.discardMessage()
	w.missContract()
	w.closeBrake()
	w.pauseLanes()
	w.loseCMS()
	w.runSchedules()
	w.replayInBulk()
	w.fileBatch()
	w.useQuota()
	w.recordChange()
	w.spreadRequests()
	w.claimLane()
	w.crashRepeatedly()
	w.changeLanes()
	w.removeOldMessages()
	w.stop()
	w.moveStore()
}

// deliverMessages delivers a message with many columns, a message with a large body, and many small
// messages whose deliveries are stored in one row. It also enqueues tickets for one lane and for
// all lanes.
func (w *world) deliverMessages() {
	w.refuses.Store(true) // the receiver refuses the callback, so that Weir sends it again
	small := w.post(weir.Message{Key: "/a", Version: "1", Upstream: "newsroom",
		Shown: map[string]string{"title": "A"}, Callback: hookURL,
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", TraceState: "a=1"})
	large := w.post(weir.Message{Key: "/b", Body: newLargeBody()})
	w.awaitStage(small, weir.Delivered)
	w.awaitStage(large, weir.Delivered)
	time.Sleep(2 * time.Minute)
	w.refuses.Store(false)
	w.awaitRest()
	w.must(w.store.Pauses().Pause(w.Context(),
		weir.Pause{Lane: 0, Reason: "test", Since: time.Now()}))
	var last weir.ID
	for n := range 40 { // a commit with many first-attempt deliveries packs them into one row
		last = w.post(weir.Message{Key: w.keyIn(0, fmt.Sprint("/burst/", n))})
	}

	w.must(w.store.Pauses().Resume(w.Context(), 0, ""))
	w.awaitStage(last, weir.Delivered)
	w.must(w.tickets.Enqueue(w.Context(), 0))
	for number := range 9 { // beyond eight lanes, the sender enqueues one ticket for all lanes
		w.must(w.tickets.Enqueue(w.Context(), number))
	}
}

// deliverLater schedules four messages. It changes the due time of one message and cancels another.
// All except the cancelled message are delivered.
func (w *world) deliverLater() {
	soon := time.Now().Add(time.Minute)
	due := w.post(weir.Message{Key: "/due", DueAt: soon})
	moved := w.post(weir.Message{Key: "/due", DueAt: soon.Add(time.Hour)})
	cancelled := w.post(weir.Message{Key: "/due", DueAt: soon.Add(time.Hour)})
	_, err := w.store.Requests().Reschedule(w.Context(), moved, soon, "")
	w.must(err)
	_, err = w.store.Requests().Cancel(w.Context(), cancelled)
	w.must(err)
	skipping := w.post(weir.Message{Key: "/due and skipping", Skip: true, DueAt: soon})
	w.awaitStage(skipping, weir.Delivered)
	w.awaitStage(due, weir.Delivered)
	w.awaitStage(moved, weir.Delivered)
	w.awaitStage(cancelled, weir.Cancelled)
	w.awaitRest()
}

// retryMessages lets a message wait for its retry, and appends two more messages of the same key.
// It cancels the first of these two.
func (w *world) retryMessages() {
	w.setAnswer(answerAlways(failed))
	key := w.keyIn(0, "/retry")
	first := w.post(weir.Message{Key: key})
	skipping := w.post(weir.Message{Key: "/skip", Skip: true})
	w.awaitStage(first, weir.Retrying)
	w.awaitStage(skipping, weir.Retrying)
	second := w.post(weir.Message{Key: key})
	third := w.post(weir.Message{Key: key})
	time.Sleep(100 * time.Millisecond)
	_, err := w.store.Requests().Cancel(w.Context(), second)
	w.must(err)
	w.drainer.Wake(0)
	w.awaitStage(second, weir.Cancelled)
	w.setAnswer(nil)
	w.awaitStage(third, weir.Delivered)
	w.awaitRest()
}

// forgetVersion delivers a version that is far too high, so that a later message is superseded. It
// then asks the holder to forget the high version.
func (w *world) forgetVersion() {
	version := func(v string) weir.Message {
		return weir.Message{Key: "/huge", Version: v,
			Supersede: true}
	}

	huge := w.post(version("99999999999999999999"))
	w.awaitStage(huge, weir.Delivered)
	w.awaitStage(w.post(version("2")), weir.Superseded)
	st, err := w.store.Messages().Status(w.Context(), huge)
	w.must(err)
	_, err = w.store.Requests().ForgetVersion(w.Context(), "/huge", st.Message.Contract)
	w.must(err)
	w.drainer.Wake(huge.Lane)
	w.waitUntil("the version is forgotten", func() bool {
		latest, err := w.store.Messages().FindLatestVersion(w.Context(), "/huge",
			st.Message.Contract)
		w.must(err)
		return latest.IsZero()
	})

	w.awaitRest()
}

// eraseMessages erases a delivered message with a version, and a dead message whose error is also
// in tail.
func (w *world) eraseMessages() {
	version := w.post(weir.Message{Key: "/erased", Version: "1", Supersede: true})
	w.awaitStage(version, weir.Delivered)
	w.setAnswer(answerAlways(rejected))
	dead := w.post(weir.Message{Key: "/erased too"})
	w.awaitStage(dead, weir.Dead)
	w.setAnswer(nil)

	for _, id := range []weir.ID{version, dead} {
		_, err := w.store.Requests().Erase(w.Context(), id)
		w.must(err)
		w.drainer.Wake(id.Lane)
	}

	w.awaitRest()
}

// supersedeVersions lets newer versions supersede a queued message and a held message.
func (w *world) supersedeVersions() {
	key := w.keyIn(0, "/versions")
	version := func(v string) weir.Message {
		return weir.Message{Key: key, Version: v, Supersede: true, Callback: hookURL}
	}
	w.must(w.store.Pauses().Pause(w.Context(),
		weir.Pause{Lane: 0, Reason: "test", Since: time.Now()}))
	old, newer := w.post(version("1")), w.post(version("2"))
	w.must(w.store.Pauses().Resume(w.Context(), 0, ""))
	w.drainer.Wake(0)
	w.awaitStage(newer, weir.Delivered)
	w.awaitStage(old, weir.Superseded)
	w.setAnswer(answerAlways(failed))
	waiting := w.post(version("3"))
	w.awaitStage(waiting, weir.Retrying)
	behind := w.post(version("4"))
	time.Sleep(200 * time.Millisecond)
	w.setAnswer(nil)
	w.awaitStage(behind, weir.Delivered)
	w.awaitRest()
}

// rememberIDs makes the holder store remembered ids for two keys. The holder forgets one id because
// the CMS answers that the item is gone, and the other id on request.
func (w *world) rememberIDs() {
	w.setAnswer(answerAlways(weir.Result{Outcome: weir.OutcomeDelivered, Status: 201, RememberedID: "4711"}))
	w.awaitStage(w.post(weir.Message{Key: "/remembered"}), weir.Delivered)
	w.awaitStage(w.post(weir.Message{Key: "/forgotten"}), weir.Delivered)
	w.setAnswer(answerAlways(weir.Result{Outcome: weir.OutcomeDelivered, Status: 404, IsForgotten: true}))
	w.awaitStage(w.post(weir.Message{Key: "/forgotten"}), weir.Delivered)
	w.setAnswer(nil)
	st, err := w.store.Messages().Status(w.Context(), w.post(weir.Message{Key: "/remembered"}))
	w.must(err)
	_, err = w.store.Requests().ForgetRemembered(w.Context(), "/remembered", st.Message.Contract)
	w.must(err)
	w.drainer.Wake(st.Message.ID.Lane)
	w.awaitRest()
}

// killMessage makes a message dead, and delivers a later message of its key.
func (w *world) killMessage() {
	w.setAnswer(answerAlways(rejected))
	w.refuses.Store(true) // so that both receivers get the event again: hookURL and operatorURL
	dead := w.post(weir.Message{Key: "/dead", Callback: hookURL})
	w.awaitStage(dead, weir.Dead)
	time.Sleep(2 * time.Minute)
	w.refuses.Store(false)
	w.setAnswer(nil)
	w.awaitStage(w.post(weir.Message{Key: "/dead"}), weir.Delivered)
	w.awaitRest()
}

// replayMessages replays dead messages: unchanged, with Force, and with edited bodies.
func (w *world) replayMessages() {
	w.setAnswer(answerAlways(rejected))
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
		{enlarged, lane.ReplayOptions{Edit: newEdit(newLargeBody())}},
	} {
		w.setAnswer(answerAlways(failed)) // so that the replayed message waits for a retry
		_, err := w.store.Requests().Replay(w.Context(), asked.id, asked.options)
		w.must(err)
		w.drainer.Wake(asked.id.Lane)
		w.awaitStage(asked.id, weir.Retrying)
		w.setAnswer(nil)
		w.awaitStage(asked.id, weir.Delivered)
	}

	w.awaitRest()
}

func newEdit(body []byte) *lane.Edit {
	return &lane.Edit{Body: body, ContentType: "application/xml", Version: "2", Note: "corrected",
		Shown: map[string]string{"title": "B"}}
}

// refuseReplay requests a replay during the delivery of a later message of the key, so that the
// holder refuses the replay.
func (w *world) refuseReplay() {
	w.setAnswer(answerAlways(rejected))
	dead := w.post(weir.Message{Key: "/late"})
	w.awaitStage(dead, weir.Dead)
	w.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
		time.Sleep(3 * time.Second)
		return weir.Result{Outcome: weir.OutcomeDelivered, Status: 200}
	})

	later := w.post(weir.Message{Key: "/late"})
	time.Sleep(time.Second)
	_, err := w.store.Requests().Replay(w.Context(), dead, lane.ReplayOptions{})
	w.must(err)
	w.setAnswer(nil)
	w.awaitStage(later, weir.Delivered)
	w.waitUntil("a refused replay", func() bool {
		st, err := w.store.Messages().Status(w.Context(), dead)
		w.must(err)
		return st.ReplayRefused != ""
	})

	w.awaitRest()
}

func (w *world) discardMessage() {
	w.setAnswer(answerAlways(rejected))
	dead := w.post(weir.Message{Key: "/discarded"})
	w.awaitStage(dead, weir.Dead)
	w.setAnswer(nil)
	_, err := w.store.Requests().Discard(w.Context(), dead, "test")
	w.must(err)
	w.drainer.Wake(dead.Lane)
	w.awaitStage(dead, weir.Discarded)
	w.awaitRest()
}

// missContract lets a message wait because its contract is missing.
func (w *world) missContract() {
	w.stop()
	w.contracts = lane.NewContracts(map[string][]string{"other": nil})
	w.start(2)
	id := w.post(weir.Message{Key: "/missing"})
	w.awaitTail(id.Lane, "a missing contract", func(t lane.Tail) bool { return len(t.Missing) > 0 })
	w.stop()
	w.contracts = nil
	w.start(2)
	w.drainer.Wake(id.Lane)
	w.awaitStage(id, weir.Delivered)
	w.awaitRest()
}

// closeBrake lets the CMS reject a message, so that the brake closes and another message waits.
func (w *world) closeBrake() {
	w.stop()
	w.brake = 1
	w.start(2)
	w.setAnswer(answerAlways(rejected))
	w.awaitStage(w.post(weir.Message{Key: "/rejected"}), weir.Dead)
	id := w.post(weir.Message{Key: w.keyIn(0, "/braked")})
	w.drainer.Wake(0)
	w.awaitTail(0, "a closed brake", func(t lane.Tail) bool { return len(t.Brakes) > 0 })
	w.sweep()
	w.setAnswer(nil)
	w.must(w.store.Pauses().Resume(w.Context(), 0, ""))
	w.drainer.Wake(0)
	w.awaitStage(id, weir.Delivered)
	w.brake = 0
	w.stop()
	w.start(2)
	w.awaitRest()
}

// runSchedules lets two schedules append messages. One schedule has a large message.
func (w *world) runSchedules() {
	for name, message := range map[string]string{"small": "<r/>",
		"large": fmt.Sprintf("<r>%x</r>", newLargeBody())} {
		definition := recur.Definition{Cron: "@every 10m", Message: []byte(message)}
		_, _, err := w.schedules.Put(w.Context(), name, definition, recur.Condition{})
		w.must(err)
	}

	w.waitUntil("a first run", func() bool {
		s, err := w.schedules.Get(w.Context(), "small")
		w.must(err)
		return s.Filed > 0
	})

	for _, name := range []string{"small", "large"} {
		w.must(w.schedules.Delete(w.Context(), name, recur.Condition{}))
	}

	w.awaitRest()
}

// recordChange writes an entry to the audit log, and redacts it.
func (w *world) recordChange() {
	log := &audit.Log{Table: w.store.Table, Keep: time.Hour, Now: time.Now, Logger: quietLog}
	log.Record(w.Context(), audit.Entry{Action: "pause", Subject: "s", Detail: "{}",
		Function: "write", Status: 200, Principal: "p", KeyID: "k", From: "f", Invocation: "i"})
	w.must(log.Redact(w.Context(), "s", lane.ErasedKey("/key")))
	_, err := (&audit.Proofs{Table: w.store.Table, Now: time.Now}).Sign(w.Context(), "ada")
	w.must(err)
}

// spreadRequests makes two requests within a rate. The first one is answered 429, with a pause.
func (w *world) spreadRequests() {
	l := limiter.New(limiter.Config{Table: w.store.Table, CMS: "cms",
		Rate: limiter.Rate{Count: 5, Per: time.Second}, Now: time.Now, Rand: drawHalf,
		Log: quietLog})
	defer l.Close()
	client := &http.Client{Transport: limiter.NewTransport(overloaded{}, l)}
	for range 2 {
		req, err := http.NewRequestWithContext(w.Context(), http.MethodPost, "http://cms.test",
			http.NoBody)
		w.must(err)
		resp, err := client.Do(req)
		w.must(err)
		w.must(resp.Body.Close())
		time.Sleep(10 * time.Second)
	}
}

// overloaded is a CMS that asks for a pause.
type overloaded struct{}

func (overloaded) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusTooManyRequests, Request: req,
		Header: http.Header{"Retry-After": {"2"}}, Body: http.NoBody}, nil
}

// replayInBulk replays all dead messages of one key.
func (w *world) replayInBulk() {
	w.setAnswer(answerAlways(rejected))
	for range 3 {
		w.awaitStage(w.post(weir.Message{Key: "/bulk"}), weir.Dead)
	}

	w.setAnswer(nil)
	spec := replay.Spec{Filter: replay.Filter{Key: "/bulk"}, RatePerMinute: 600, StopAtErrorRate: 1,
		Reason: "test"}
	j, err := w.replays.Start(w.Context(), spec)
	w.must(err)
	w.waitUntil("the end of the bulk replay", func() bool {
		j, err = w.replays.Get(w.Context(), j.ID)
		w.must(err)
		return j.State == replay.Done
	})

	w.awaitRest()
}

// unobserved is an upstream.Observer that ignores all events.
type unobserved struct{}

func (unobserved) Limited(string, string) {}

// useQuota counts one message against the daily quota of an upstream.
func (w *world) useQuota() {
	set := upstream.NewSet([]upstream.Definition{{Name: "newsroom", DailyQuota: 10}},
		w.store.Table, time.Now, unobserved{})
	_, err := set.Admit(w.Context(), "newsroom", "")
	w.must(err)
}

// fileBatch accepts a batch with an invalid part, and waits until all its messages are appended.
func (w *world) fileBatch() {
	b, err := w.batches.Accept(w.Context(), batch.Spec{Mode: wire.BatchValid, IdempotencyKey: "k",
		Upstream: "newsroom"},
		strings.NewReader(`<feed><article path="/batch"/><article/></feed>`))
	w.must(err)
	w.waitUntil("the end of the batch", func() bool {
		b, err = w.batches.Get(w.Context(), b.ID)
		w.must(err)
		return b.State == wire.BatchFiled
	})

	w.awaitRest()
}
