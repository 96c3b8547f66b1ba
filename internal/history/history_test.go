package history_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"weir/internal/drain"
	"weir/internal/history"
	"weir/internal/storage"
	"weir/internal/storage/memory"
	"weir/internal/weir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counted counts the requests to a table: reads of ranges, and transactions.
type counted struct {
	storage.Table
	n     atomic.Int64
	fails atomic.Int64 // number of transactions that are still to fail
	away  atomic.Bool  // if true, each read of a range fails
}

func (c *counted) Range(ctx context.Context, q storage.Query) (storage.Page, error) {
	c.n.Add(1)
	if c.away.Load() {
		return storage.Page{}, &storage.Error{Op: "range", Kind: storage.Unavailable, Index: -1}
	}
	return c.Table.Range(ctx, q)
}

func (c *counted) Transact(ctx context.Context, partition string,
	ops []storage.Op) ([]storage.ETag, error) {
	c.n.Add(1)
	if c.fails.Add(-1) >= 0 {
		return nil, &storage.Error{Op: "transact", Kind: storage.Unavailable, Index: -1}
	}
	return c.Table.Transact(ctx, partition, ops)
}

// instance is the Recorder and the Keeper of one process.
type instance struct {
	*history.Recorder
	*history.Keeper
	table *counted
	asked atomic.Int64 // number of storage transactions so far; the Recorder reads it
}

func newInstance(t *testing.T, table storage.Table) *instance {
	t.Helper()
	i := &instance{table: &counted{Table: table}}
	i.Recorder = history.NewRecorder(time.Now, func() map[string]int64 {
		return map[string]int64{"table transact": i.asked.Load()}
	})
	i.Keeper = history.NewKeeper(history.Config{Table: i.table, Recorder: i.Recorder, Now: time.Now,
		Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() {
		if err := i.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})

	return i
}

// countMessage counts one message as accepted, attempted and delivered. It also counts two storage
// transactions.
func (i *instance) countMessage(lane int, took time.Duration) {
	i.Accepted(lane, 1)
	i.Attempted(lane, &weir.Message{}, weir.Result{Duration: took}, weir.OutcomeDelivered)
	i.Finished(lane, drain.Final{Stage: weir.Delivered, Since: time.Now().Add(-took),
		At: time.Now()})
	i.asked.Add(2)
}

func readSeries(t *testing.T, k *instance, span, step time.Duration, lane int) []history.Minute {
	t.Helper()
	s, err := k.Series(t.Context(), span, step, lane)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestKeeper_AllInstancesAndRestarts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := memory.New(time.Now).Table()
		a, b := newInstance(t, table), newInstance(t, table)
		for range 5 {
			a.countMessage(0, 20*time.Millisecond)
			b.countMessage(3, 80*time.Millisecond)
			time.Sleep(time.Minute)
		}

		if err := a.Close(t.Context()); err != nil { // Close writes the last minutes
			t.Fatal(err)
		}

		time.Sleep(2 * time.Minute)
		c := newInstance(t, table)
		s := readSeries(t, c, 10*time.Minute, time.Minute, -1)
		var total history.Lane
		var attempts, asked int64
		for i := range s {
			one := s[i].Total()
			total.Accepted += one.Accepted
			total.Delivered += one.Delivered
			attempts += s[i].Attempt.Count()
			asked += s[i].AllTransactions()
		}

		if len(s) != 10 || total.Accepted != 10 || total.Delivered != 10 || attempts != 10 ||
			asked != 20 {
			t.Errorf("%d steps, %+v, %d attempts, %d transactions, want 10 steps, "+
				"Accepted 10, Delivered 10, 10 attempts and 20 transactions",
				len(s), total, attempts, asked)
		}

		if rate, known := c.Rate(t.Context(), 3, 15); !known || rate != 5.0/15 {
			t.Errorf("rate %v %v, want true and %v", rate, known, 5.0/15)
		}

		if _, known := c.Rate(t.Context(), 7, 15); known {
			t.Error("the rate of a lane without record is known, want it unknown")
		}

		if one := readSeries(t, c, 10*time.Minute, 10*time.Minute, 3); one[len(one)-1].Total().Delivered > 5 {
			t.Errorf("lane 3 has %+v, want at most its own 5 delivered", one)
		}
	})
}

// An instance makes at most one request to storage a minute. A row that cannot be read, such as one
// of a later version of the program, hides only its own hour.
func TestKeeper_PassesOverADamagedRow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := memory.New(time.Now).Table()
		a := newInstance(t, table)
		for range 5 {
			a.countMessage(0, 20*time.Millisecond)
			time.Sleep(time.Minute)
		}

		hour := time.Now().UTC().Format("2006010215")
		for _, key := range []string{hour + "_0", hour + "_z"} {
			if _, err := table.Transact(t.Context(), "history",
				[]storage.Op{{Kind: storage.Insert, Key: key,
					Values: map[string]any{"Minutes": []byte("\xff\xff")}}}); err != nil {
				t.Fatal(err)
			}
		}

		delivered := int64(0)
		steps := readSeries(t, newInstance(t, table), 10*time.Minute, time.Minute, -1)
		for i := range steps {
			delivered += steps[i].Total().Delivered
		}

		if delivered < 4 {
			t.Errorf("got %d delivered messages, want those of the minutes that are stored, at least 4", delivered)
		}
	})
}

func TestKeeper_OneTransactionAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := memory.New(time.Now).Table()
		k := newInstance(t, table)
		before := int64(0)
		for minute := range 10 * 24 * 60 {
			if minute < 3*60 || minute%45 == 0 {
				k.countMessage(0, time.Second)
			}

			time.Sleep(time.Minute)
			if n := k.table.n.Load() - before; n > 1 {
				t.Fatalf("%d transactions in minute %d, want at most 1", n, minute)
			}

			before = k.table.n.Load()
		}

		page, err := table.Range(t.Context(), storage.Query{Partition: "history"})
		if err != nil || len(page.Rows) > 10*24+1 || len(page.Rows) < 10*24 {
			t.Errorf("got %d rows, %v; want one an hour, 240 or 241", len(page.Rows), err)
		}

		time.Sleep(10 * time.Minute)

		for range 24 * 60 { // messages wait for their due time, and nothing else happens
			k.Waits(0, 7, 0)
			time.Sleep(time.Minute)
		}

		if n := k.table.n.Load() - before; n > 24*6+10 {
			t.Errorf("%d transactions for a day at rest, want at most %v", n, 24*6+10)
		}

		if s := readSeries(t, k, 30*time.Minute, time.Minute, -1); s[len(s)-3].Total().Waiting !=
			7 {
			t.Errorf("%d messages wait between two writes, want 7", s[len(s)-3].Total().Waiting)
		}

		before = k.table.n.Load()
		k.Waits(0, 0, 0)
		time.Sleep(24 * time.Hour)
		if n := k.table.n.Load() - before; n > 3 {
			t.Errorf("%d transactions for an idle day, want at most 3", n)
		}
	})
}

func TestKeeper_RepairsFailedWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := memory.New(time.Now).Table()
		a := newInstance(t, table)
		a.table.fails.Store(3)

		for range 8 {
			a.countMessage(0, time.Millisecond)
			time.Sleep(time.Minute)
		}

		if err := a.Close(t.Context()); err != nil {
			t.Fatal(err)
		}

		b := newInstance(t, table)
		var n int64
		for _, m := range readSeries(t, b, time.Hour, time.Hour, -1) {
			n += m.Total().Delivered
		}

		if n != 8 {
			t.Errorf("got %d delivered, want 8", n)
		}

		for _, m := range readSeries(t, b, 2*time.Hour, time.Minute, -1) {
			if d := m.Total().Delivered; d > 1 {
				t.Errorf("%d delivered in one minute, want at most 1", d)
			}
		}
	})
}

// A process can be killed at any moment after Leave. So the other instances must see each message
// shortly after the process has counted it.
func TestKeeper_Leave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := memory.New(time.Now).Table()
		a, b := newInstance(t, table), newInstance(t, table)
		countDelivered := func() (n int64) {
			for _, m := range readSeries(t, b, time.Hour, time.Hour, -1) {
				n += m.Total().Delivered
			}
			return n
		}

		a.countMessage(0, time.Millisecond)
		a.Leave()
		time.Sleep(100 * time.Millisecond)
		if n := countDelivered(); n != 1 {
			t.Errorf("got %d delivered 0.1 s after Leave, want 1", n)
		}

		time.Sleep(21 * time.Second) // b reuses a read for 20 s
		before := a.table.n.Load()
		time.Sleep(time.Minute)
		if n := a.table.n.Load() - before; n != 0 {
			t.Errorf("got %d transactions without a change, want none", n)
		}

		a.table.fails.Store(1)
		a.countMessage(0, time.Millisecond)
		time.Sleep(1100 * time.Millisecond)
		if n := countDelivered(); n != 2 {
			t.Errorf("got %d delivered after a change and a failed write, want 2", n)
		}
	})
}

// All instances know when the CMS last accepted or rejected a message (AnsweredAt), and when an
// attempt last failed (FailedAt).
func TestKeeper_LastAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := memory.New(time.Now).Table()
		a, b := newInstance(t, table), newInstance(t, table)
		began := time.Now()

		for i, outcome := range []weir.Outcome{weir.OutcomeDelivered, weir.OutcomeUnavailable,
			weir.OutcomeNone} {
			a.Attempted(i, &weir.Message{}, weir.Result{}, outcome)
			time.Sleep(time.Second)
		}

		b.Attempted(0, &weir.Message{}, weir.Result{}, weir.OutcomeRejected)
		time.Sleep(2 * time.Minute)
		sum := history.Sum(readSeries(t, b, time.Hour, time.Minute, -1))
		if !sum.AnsweredAt.Equal(began.Add(3*time.Second)) ||
			!sum.FailedAt.Equal(began.Add(time.Second)) {
			t.Errorf("got answered at %s and failed at %s, want 3 s and 1 s after %s",
				sum.AnsweredAt, sum.FailedAt, began)
		}
	})
}

// If storage cannot be reached, Series returns an error of kind Unavailable, so that the caller
// tries again.
func TestKeeper_StorageIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newInstance(t, memory.New(time.Now).Table())
		a.table.away.Store(true)

		if _, err := a.Series(t.Context(), time.Hour, time.Minute, -1); weir.KindOf(err) !=
			weir.Unavailable {
			t.Errorf("got %v, want an error of kind Unavailable", err)
		}

		a.table.away.Store(false)
		readSeries(t, a, time.Hour, time.Minute, -1)
	})
}

// The minutes of an hour fit into one row, even with the largest number of lanes that the settings
// allow.
func TestKeeper_VeryManyLanes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := memory.New(time.Now).Table()
		a := newInstance(t, table)
		for minute := range 12 {
			for lane := range 1024 {
				a.Accepted(lane, minute*7919+lane*104729%1000003)
				a.Waits(lane, int64(minute*lane), time.Duration(minute*lane)*time.Millisecond)
			}
			time.Sleep(time.Minute)
		}

		page, err := table.Range(t.Context(), storage.Query{Partition: "history"})
		if err != nil || len(page.Rows) != 1 {
			t.Fatalf("%d rows: %v, want 1 Row and no error", len(page.Rows), err)
		}

		if size := len(page.Rows[0].Values["Minutes"].([]byte)); size > 64<<10 {
			t.Errorf("the hour takes %d bytes, want at most 64 KiB", size)
		}
	})
}

func TestDurations(t *testing.T) {
	t.Parallel()
	for _, want := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 3 * time.Second,
		time.Hour} {
		t.Run(fmt.Sprint(want), func(t *testing.T) {
			t.Parallel()
			h := history.Durations{}
			for i := range 100 {
				h.Add(want * time.Duration(50+i) / 100)
			}

			for q, at := range map[float64]float64{0.5: 1, 0.95: 1.45, 0.01: 0.5} {
				got, exact := h.Quantile(q), time.Duration(float64(want)*at)
				if off := float64(got-exact) / float64(exact); off > 0.12 || off < -0.12 {
					t.Errorf("Quantile(%v) = %v, want %v within 12 %%", q, got, exact)
				}
			}
		})
	}

	if got := (history.Durations)(nil).Quantile(0.5); got != 0 {
		t.Errorf("Quantile of no durations = %v, want 0", got)
	}
}

// An instance can read the deliveries of another instance only after the other instance has written
// them. Rate must not count minutes that are not written yet as minutes without deliveries.
func TestKeeper_RateOfAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := memory.New(time.Now).Table()
		asked, drains := newInstance(t, table), newInstance(t, table)
		for second := range 600 {
			asked.Accepted(3, 1)
			drains.countMessage(3, time.Millisecond)
			time.Sleep(time.Second)
			if rate, known := asked.Rate(t.Context(), 3, 1); second > 240 && (!known || rate < 59) {
				t.Fatalf("after %d s: got the rate %v, %v, want at least 59", second, rate, known)
			}
		}
	})
}

// For a lane that was paused or had little to do, Pace returns the rate that the lane can reach.
func TestKeeper_Pace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newInstance(t, memory.New(time.Now).Table())
		is := func(when string, want float64) {
			t.Helper()
			if pace, known := k.Pace(t.Context(), 3); math.Abs(pace-want) > want/10 ||
				known != (want > 0) {
				t.Errorf("%s: got the pace %v, known %v, want %v within a tenth", when, pace,
					known, want)
			}
		}

		minute := func(n int) {
			for range n {
				k.countMessage(3, 500*time.Millisecond)
			}
			k.Waits(3, 5, 0)
			time.Sleep(time.Minute)
		}

		is("no minute is recorded", 0)
		for range 4 {
			minute(0)
		}

		is("nothing was delivered", 0)
		for _, n := range []int{10, 80, 0, 0, 0, 0, 0} {
			minute(n)
		}

		is("paused", 80)
		seen := false
		for _, n := range []int{90, 0, 0} {
			minute(n)
			if last, _ := k.Rate(t.Context(), 3, 1); last > 0 {
				is("at work again", 90)
				seen = true
			}
		}

		if !seen {
			t.Error("the minute with deliveries did not become the last minute of Rate, want it there")
		}

		for range 20 {
			minute(0)
		}

		is("paused for long", 0)
		for _, n := range []int{3, 0, 2, 1, 3, 2} {
			minute(n)
		}

		is("with little to do", 120)
		k.Between = 2 * time.Second
		is("with a rate of 30 a minute", 30)
		k.Between = 0
		if pace, known := k.Pace(t.Context(), 7); !known || math.Abs(pace-120) > 12 {
			t.Errorf("Pace of an idle lane beside it = %v, %v, want 120 within 12, true",
				pace, known)
		}

		for range 3 {
			for range 4 {
				k.Attempted(3, nil, weir.Result{Duration: 500 * time.Millisecond},
					weir.OutcomeRetry)
			}
			minute(2)
		}

		minute(0)
		minute(0)
		is("some messages needed three attempts", 72)
	})
}

// All instances write rows, and each row is removed after its retention, however many there are.
func TestExpiry_RemovesAllOldRows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := memory.New(time.Now).Table()
		for range 3 {
			newInstance(t, table).countMessage(0, time.Millisecond)
		}

		for hour := range 10 * 24 {
			time.Sleep(time.Hour)
			for i := range 12 {
				key := fmt.Sprintf("%s_other%02d", time.Now().UTC().Format("2006010215"), i)
				_, err := table.Transact(t.Context(), "history",
					[]storage.Op{{Kind: storage.Upsert, Key: key}})
				if err != nil {
					t.Fatal(hour, err)
				}
			}
		}

		isDone, err := history.Expiry{Table: table, Now: time.Now}.RemoveExpired(t.Context())
		if err != nil || !isDone {
			t.Errorf("got done %v, %v; want true and no error", isDone, err)
		}

		old := storage.Query{Partition: "history",
			To: time.Now().UTC().Add(-8 * 24 * time.Hour).Format("2006010215")}
		if page, err := table.Range(t.Context(), old); err != nil || len(page.Rows) != 0 {
			t.Errorf("got %d old rows, %v; want none", len(page.Rows), err)
		}
	})
}

// A row must keep refusals and senders apart, and must stay small if each post breaks another rule.
func TestKeeper_RefusalsAndSenders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := memory.New(time.Now).Table()
		a := newInstance(t, table)
		known := history.Refusal{Way: history.WayPost, Reason: "invalid", Contract: "article",
			Rule: "./@path required"}
		a.Refused(known)
		a.Refused(known)

		for n := range 100 {
			a.Refused(history.Refusal{Way: history.WayFile, Reason: "invalid", Rule: fmt.Sprint(n)})
			a.Sent(fmt.Sprint(n))
		}

		a.Poisoned()
		if err := a.Close(t.Context()); err != nil {
			t.Fatal(err)
		}

		b := newInstance(t, table)
		sum := history.Sum(readSeries(t, b, 10*time.Minute, time.Minute, -1))
		cut := history.Refusal{Way: history.WayFile, Reason: "invalid"}
		if sum.Refused[known] != 2 || sum.AllRefused() != 102 || len(sum.Refused) != 33 ||
			sum.Refused[cut] != 69 ||
			len(sum.Senders) != 33 || sum.Senders[history.OtherSenders] != 68 || sum.Poisoned != 1 {
			t.Errorf("got %+v, want 102 refusals of 33 kinds, 33 senders and 1 poisoned ticket",
				sum)
		}
	})
}

func TestRecorder_CountsThrottledRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i, throttled := newInstance(t, memory.New(time.Now).Table()), int64(0)
		i.Throttled = func() int64 { return throttled }
		i.Accepted(0, 1)
		throttled = 7
		time.Sleep(time.Minute)
		i.Accepted(0, 1)
		throttled = 10
		if got := i.RecentlyThrottled(time.Now().Add(-10 * time.Minute)); got != 10 {
			t.Errorf("got %d throttled requests, want 10", got)
		}

		if sum := history.Sum(readSeries(t, i, 10*time.Minute, time.Minute, -1)); sum.Throttled !=
			10 {
			t.Errorf("got %d throttled requests in the history, want 10", sum.Throttled)
		}

		time.Sleep(20 * time.Minute)
		i.Accepted(0, 1)
		if got := i.RecentlyThrottled(time.Now().Add(-10 * time.Minute)); got != 0 {
			t.Errorf("got %d throttled requests twenty minutes later, want 0", got)
		}
	})
}

// The page of a message shows the attempts of its lane that did not count while the message waited.
func TestRecorder_CountsUncountedAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := newInstance(t, memory.New(time.Now).Table())
		i.Attempted(1, &weir.Message{}, weir.Result{Status: 503}, weir.OutcomeUnavailable)
		i.Attempted(1, &weir.Message{}, weir.Result{Status: 500}, weir.OutcomeRetry)
		i.Attempted(0, &weir.Message{}, weir.Result{}, weir.OutcomeUnavailable)
		time.Sleep(time.Minute)
		i.Attempted(1, &weir.Message{}, weir.Result{Status: 429}, weir.OutcomeUnavailable)
		sum := history.Sum(readSeries(t, i, 10*time.Minute, time.Minute, 1))
		if l := sum.Lanes[1]; l.Uncounted != 2 || l.UncountedStatus != 429 {
			t.Errorf("got %+v, want 2 uncounted attempts, the last with status 429", l)
		}
	})
}
