package drain

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/lane"
	"weir/internal/storage/memory"
	"weir/internal/storage/storagetest"
	"weir/internal/testkit/lanetest"
	"weir/internal/weir"
)

// sessionParts has the parts of a session that several tests need. The lane is in memory, and the
// test is the lane's holder. Each test adds the part under test.
type sessionParts struct {
	laneScope
	t          *testing.T
	faults     *storagetest.Faults // faults of the table that the parts use
	appender   *lane.Appender
	journal    *journal
	keys       *keyStates
	breaker    *breaker
	guard      *crashGuard
	history    *deliveryHistory
	readAhead  *readAhead
	remembered *rememberedIDs
	finals     *finalsObserver
	handled    int64 // the value that commits save as Tail.RequestsSeen
}

// runWithParts runs a test in virtual time with the parts of a session.
func runWithParts(t *testing.T, f func(t *testing.T, p *sessionParts)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// If a test waits for ever, synctest sees no deadlock, because the committer has a timer.
		// The timer "stuck" ends such a test.
		stuck := time.AfterFunc(24*time.Hour,
			func() { panic("the test has waited for a day of virtual time") })
		defer stuck.Stop()
		account, faults := memory.New(time.Now), storagetest.NewFaults()
		store := &lane.Store{Table: faults.Table(account.Table()), Bodies: account.Blobs(),
			Lanes: 1, Now: time.Now}
		if err := store.Open(t.Context()); err != nil {
			t.Fatal(err)
		}

		p := &sessionParts{t: t, faults: faults, finals: &finalsObserver{},
			appender: lane.NewAppender(store, slog.New(slog.DiscardHandler))}
		p.laneScope = laneScope{store: store, now: time.Now, observer: p.finals,
			log: slog.New(slog.NewTextHandler(io.Discard, nil))}
		p.startJournal()
		p.keys, p.breaker = newKeyStates(time.Now, Backoff{}), newTestBreaker()
		p.guard = &crashGuard{journal: p.journal}
		p.history = &deliveryHistory{laneScope: p.laneScope,
			tracked: &trackedKeys{keys: map[string]bool{}}}
		p.remembered = &rememberedIDs{laneScope: p.laneScope, byKey: map[string]lane.Remembered{}}
		p.readAhead = &readAhead{store: store, nextRead: 1, dues: &dueCache{}}
		f(t, p)
	})
}

// startJournal raises the fence and starts a committer, which runs until the test ends.
func (p *sessionParts) startJournal() {
	p.t.Helper()
	open := func(tail *lane.Tail) { tail.IsOpen = true }
	writer, err := p.store.RaiseFence(p.t.Context(), 0, "nonce", lane.Tail{}, open)
	if err != nil {
		p.t.Fatal(err)
	}

	p.fence = writer.Tail().Fence
	ctx, cancel := context.WithCancel(p.t.Context())
	c := startCommitter(ctx, writer, p.now, func(error) {}, func(*lane.Change) {})
	p.t.Cleanup(func() {
		cancel()
		<-c.done
	})

	p.journal = &journal{committer: c, saveProgress: func(ch *lane.Change) {
		cursor, handled := p.readAhead.cursorSeq(), p.handled
		ch.UpdateTail(func(t *lane.Tail) { t.Cursor, t.RequestsSeen = cursor, handled })
	}}
}

// appendMessages appends a message with the body "<a/>" for each of the keys, and returns the
// messages' ids.
func (p *sessionParts) appendMessages(keys ...string) (ids []weir.ID) {
	p.t.Helper()
	for _, key := range keys {
		ids = append(ids, p.appendMessage(weir.Message{Key: key}))
	}
	return ids
}

func (p *sessionParts) appendMessage(m weir.Message) weir.ID {
	p.t.Helper()
	m.Contract, m.ContentType, m.Body = "article", "application/xml", []byte("<a/>")
	receipt, err := lanetest.AppendAndWake(p.t.Context(), p.appender, m, "")
	if err != nil {
		p.t.Fatalf("append: %v", err)
	}
	return receipt.Message.ID
}

// readLog puts the whole log into the read-ahead, and returns the log's entries.
func (p *sessionParts) readLog() []*lane.Entry {
	p.t.Helper()
	entries, err := p.store.ReadLog(p.t.Context(), 0, 1, 1000)
	if err != nil {
		p.t.Fatal(err)
	}

	p.readAhead.entries, p.readAhead.nextRead = entries, int64(len(entries)+1)
	return slices.Clone(entries)
}

// commitFinal commits a message of the read-ahead as final.
func (p *sessionParts) commitFinal(e *lane.Entry, stage weir.Stage) {
	p.t.Helper()
	outcome := map[weir.Stage]weir.Outcome{weir.Delivered: weir.OutcomeDelivered,
		weir.Dead: weir.OutcomeRejected}[stage]
	e.Record(weir.Result{Outcome: outcome, Reason: "as the test wants"}, p.fence, true)
	ch := &lane.Change{Key: e.KeyHash()}
	p.readAhead.removeEntry(e)
	p.history.recordFinal(&candidate{entry: e}, ch, stage)
	if err := ch.Finish(e, stage, p.now()); err != nil {
		p.t.Fatal(err)
	}

	p.journal.record(ch, true)
	p.commitAll()
}

// holdMessages moves messages of one key from the read-ahead into a block, and commits the changes.
// The first message waits for its retry until retryAt.
func (p *sessionParts) holdMessages(retryAt time.Time, entries ...*lane.Entry) *keyState {
	p.t.Helper()
	var k *keyState
	for i, e := range entries {
		ch := &lane.Change{Key: e.KeyHash()}
		p.readAhead.removeEntry(e)
		k = p.keys.holdFromLog(e)
		k.NextAt = retryAt
		if ch.SaveBlock(k.KeyBlock); i == 0 {
			e.Record(flaky, p.fence, true)
			if err := ch.Retry(e, k.ID, retryAt); err != nil {
				p.t.Fatal(err)
			}
		} else {
			ch.Hold(k.ID, e)
		}

		p.journal.record(ch, true)
		p.commitAll()
	}

	return k
}

// commitAll waits until all changes are in storage.
func (p *sessionParts) commitAll() {
	p.t.Helper()
	if err := p.journal.waitBelow(p.t.Context(), 1); err != nil {
		p.t.Fatalf("commit: %v", err)
	}
}

func (p *sessionParts) readStatus(id weir.ID) weir.Status {
	p.t.Helper()
	status, err := p.store.Messages().Status(p.t.Context(), id)
	if err != nil {
		p.t.Fatalf("status: %v", err)
	}
	return status
}

func (p *sessionParts) readControl() lane.Control {
	p.t.Helper()
	c, err := p.store.ReadControl(p.t.Context(), 0)
	if err != nil {
		p.t.Fatalf("control rows: %v", err)
	}
	return c
}

// expectStages checks the stored stages of messages.
func (p *sessionParts) expectStages(ids []weir.ID, want ...weir.Stage) {
	p.t.Helper()
	var got []weir.Stage
	for _, id := range ids {
		got = append(got, p.readStatus(id).Stage)
	}

	if !slices.Equal(got, want) {
		p.t.Errorf("got the stages %v, want %v", got, want)
	}
}

// finalsObserver records the stages of the messages that became final.
type finalsObserver struct {
	noObserver
	mu     sync.Mutex
	stages []weir.Stage
}

// Finished implements Observer.
func (o *finalsObserver) Finished(_ int, f Final) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stages = append(o.stages, f.Stage)
}

// expectFinals checks the recorded stages.
func (o *finalsObserver) expectFinals(t *testing.T, want ...weir.Stage) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Equal(o.stages, want) {
		t.Errorf("the observer got %v, want %v", o.stages, want)
	}
}
