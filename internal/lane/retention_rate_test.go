package lane_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/storage/memory"
	"weir/internal/upkeep"
	"weir/internal/weir"
)

// distantTable delays each call, and counts the calls.
type distantTable struct {
	storage.Table
	each       time.Duration
	operations atomic.Int64 // number of calls
}

func (s *distantTable) waitForTrip() { s.operations.Add(1); time.Sleep(s.each) }

func (s *distantTable) Transact(ctx context.Context, p string,
	ops []storage.Op) ([]storage.ETag, error) {
	s.waitForTrip()
	return s.Table.Transact(ctx, p, ops)
}

func (s *distantTable) Range(ctx context.Context, q storage.Query) (storage.Page, error) {
	s.waitForTrip()
	return s.Table.Range(ctx, q)
}

func (s *distantTable) Get(ctx context.Context, p, k string) (storage.Row, error) {
	s.waitForTrip()
	return s.Table.Get(ctx, p, k)
}

// fileDelivered appends perLane messages with idempotency keys to each lane. It then commits their
// deliveries, thirty in each commit.
func fileDelivered(t *testing.T, store *lane.Store, perLane int) {
	t.Helper()
	a := lane.NewAppender(store, quiet)
	var wg sync.WaitGroup
	filed := make([]atomic.Int64, store.Lanes)

	// at most 1000 posts at a time; the appender takes at most about 16,000
	turns := make(chan struct{}, 1000)
	for i := 0; i < 2*perLane*store.Lanes; i++ {
		key := fmt.Sprint(i)
		if n := lane.Of(key, store.Lanes); filed[n].Add(1) > int64(perLane) {
			continue
		}

		wg.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			if _, err := a.Append(t.Context(), newMessage(key, "x"), key); err != nil {
				t.Error(err)
			}
		})
	}

	wg.Wait()

	for n := range store.Lanes {
		w, err := store.RaiseFence(t.Context(), n, "one", lane.Tail{}, keepTail)
		if err != nil {
			t.Fatal(err)
		}

		entries, err := store.ReadLog(t.Context(), n, 1, 1<<20)
		if err != nil || len(entries) != perLane {
			t.Fatalf("%d messages in lane %d, want %d; %v", len(entries), n, perLane, err)
		}

		for len(entries) > 0 {
			tx := &lane.Transaction{}
			for _, e := range entries[:min(30, len(entries))] {
				e.Record(weir.Result{Outcome: weir.OutcomeDelivered, Status: 200,
					StartedAt: time.Now()}, 1, true)
				ch := &lane.Change{}
				if err := ch.Finish(e, weir.Delivered, time.Now().UTC()); err != nil {
					t.Fatal(err)
				}

				ch.UpdateTail(func(t *lane.Tail) { t.Cursor = e.Seq() + 1 })
				tx.TryAdd(ch)
			}

			if err := w.Commit(t.Context(), tx); err != nil {
				t.Fatal(err)
			}

			entries = entries[min(30, len(entries)):]
		}
	}
}

// Each of eight lanes has 1,000 expired messages. At 200 messages per second, a lane gets as many
// in five seconds. Retention must remove all messages in half of the five seconds, although each
// call of the table takes 10 ms.
func TestRetention_KeepsUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const lanes, perLane = 8, 1000
		account := memory.New(time.Now)
		store := &lane.Store{Table: account.Table(), Bodies: account.Blobs(), Lanes: lanes,
			Now: time.Now}
		if err := store.Open(t.Context()); err != nil {
			t.Fatal(err)
		}

		fileDelivered(t, store, perLane)
		time.Sleep(8 * 24 * time.Hour)
		table := &distantTable{Table: account.Table(), each: 10 * time.Millisecond}
		slow := *store
		slow.Table = table
		var removed atomic.Int64
		var doneAt time.Time
		r := &lane.Retention{Store: &slow, KeepFinal: 7 * 24 * time.Hour,
			KeepDead: 90 * 24 * time.Hour, TimeShare: 5 * time.Second, OnRemoved: func(n, _ int) {
				if removed.Add(int64(n)) == lanes*perLane {
					doneAt = time.Now()
				}
			}}

		c := upkeep.New(upkeep.Config{Retention: r, Lanes: lanes, Table: account.Table(),
			Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
		began := time.Now()
		c.BeginPass()
		time.Sleep(time.Minute)
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}

		if n := removed.Load(); n != lanes*perLane {
			t.Fatalf("%d messages were removed in a minute, want %d", n, lanes*perLane)
		}

		took, each := doneAt.Sub(began), float64(table.operations.Load())/(lanes*perLane)
		t.Logf("%d messages in %s: %.0f a second, %.4f calls of the table a message",
			lanes*perLane, took, float64(lanes*perLane)/took.Seconds(), each)
		if took > 2500*time.Millisecond {
			t.Errorf("the traffic of 5 s took %s to remove, want at most 2.5s", took)
		}

		if each > 0.05 {
			t.Errorf("%.4f calls of the table a message, want at most 0.05", each)
		}
	})
}

// The log begins with twenty thousand dead messages that are not expired. Retention must pass over
// them, and remove the 100 expired messages later in the log within two seconds.
func TestRetention_PassesOverOldDeadMessages(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		const dead = 20_000
		at := time.Now().UTC()
		for low := int64(1); low <= dead; low += 100 {
			var ops []storage.Op
			for seq := low; seq < low+100; seq++ {
				ops = append(ops, storage.Op{Kind: storage.Insert, Key: "m_" + lane.OrderPos(seq),
					Values: map[string]any{
						"Stage": "dead", "AcceptedAt": at, "FinishedAt": at, "Key": "k"}})
			}

			if _, err := b.account.Table().Transact(t.Context(), "1.0", ops); err != nil {
				t.Fatal(err)
			}
		}

		var ops []storage.Op
		for seq := int64(dead + 1); seq <= dead+100; seq++ {
			ops = append(ops, storage.Op{Kind: storage.Insert, Key: "m_" + lane.OrderPos(seq),
				Values: map[string]any{
					"Stage": "delivered", "AcceptedAt": at, "FinishedAt": at, "Key": "k"}})
		}

		if _, err := b.account.Table().Transact(t.Context(), "1.0", ops); err != nil {
			t.Fatal(err)
		}

		if _, err := b.account.Table().Transact(t.Context(), "1.0", []storage.Op{
			{Kind: storage.Merge, Key: "!head", Values: map[string]any{"Next": int64(dead + 101)}},
			{Kind: storage.Merge, Key: "!tail",
				Values: map[string]any{"Cursor": int64(dead + 101)}}}); err != nil {
			t.Fatal(err)
		}

		table := &distantTable{Table: b.account.Table(), each: 10 * time.Millisecond}
		slow, removed := *b.faultless, 0
		slow.Table = table
		time.Sleep(8 * 24 * time.Hour)
		r := &lane.Retention{Store: &slow, KeepFinal: 7 * 24 * time.Hour,
			KeepDead:  90 * 24 * time.Hour,
			TimeShare: 5 * time.Second, OnRemoved: func(n, _ int) { removed += n }}
		began := time.Now()
		for removed < 100 && time.Since(began) < time.Minute {
			if _, err := r.RunLane(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
		}

		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the messages behind %d dead ones were removed after %s, want at most 2s",
				dead, took)
		}
	})
}
