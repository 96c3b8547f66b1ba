package overview_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/overview"
	"weir/internal/storage"
	"weir/internal/storage/memory"
	"weir/internal/testkit/azurite"
	"weir/internal/testkit/lanetest"
	"weir/internal/weir"
)

func TestMain(m *testing.M) { azurite.Main(m) }

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// world is a storage account with lanes, an appender for messages, and the Overview under test.
type world struct {
	t       testing.TB
	account *memory.Account
	leases  storage.Leases
	store   *lane.Store
	append  *lane.Appender
	all     *overview.Overview
	rates   rates
	brake   int // see drain.Config.Brake
}

// rates maps a number of minutes to the mean rate over these minutes, in messages per minute. The
// key 0, which is the constant named pace, has the value that Pace returns.
type rates map[int]float64

const pace = 0

func (r rates) Rate(_ context.Context, _, minutes int) (float64, bool) {
	n, known := r[minutes]
	return n, known
}

func (r rates) CompleteUntil() time.Time { return time.Now().Truncate(time.Minute) }

func (r rates) Pace(ctx context.Context, lane int) (float64, bool) {
	return r.Rate(ctx, lane, pace)
}

// simulate runs a test in virtual time, with a new world on storage in memory.
func simulate(t *testing.T, lanes int, f func(t *testing.T, w *world)) {
	t.Helper()
	lanetest.Simulate(t, func(t *testing.T) {
		l := lanetest.New(t, lanes)
		w := newWorld(t, l.Store, l.Account.Leases())
		w.account = l.Account
		f(t, w)
	})
}

func newWorld(t testing.TB, store *lane.Store, leases storage.Leases) *world {
	t.Helper()
	w := &world{t: t, store: store, leases: leases, rates: rates{}}
	if err := w.store.Open(t.Context()); err != nil {
		t.Fatal(err)
	}

	w.append = lane.NewAppender(w.store, quiet)
	w.all = &overview.Overview{Store: w.store, Rates: w.rates, Now: time.Now}

	return w
}

func (w *world) appendMessage(key string, change ...func(*weir.Message)) weir.ID {
	w.t.Helper()
	m := weir.Message{Contract: "article", Key: key, ContentType: "application/xml",
		Body: []byte("<a>" + key + "</a>")}
	for _, f := range change {
		f(&m)
	}

	m.Size = len(m.Body)
	r, err := w.append.Append(w.t.Context(), m, "")
	if err != nil {
		w.t.Fatalf("Append = %v, want no error", err)
	}

	return r.Message.ID
}

func withBody(text string) func(*weir.Message) {
	return func(m *weir.Message) { m.Body = []byte(text) }
}

func withDelay(in time.Duration) func(*weir.Message) {
	return func(m *weir.Message) { m.DueAt = time.Now().Add(in).UTC() }
}

// byKey is a CMS that answers with an error if the key begins with bad, away, refused or late. It
// accepts all other messages.
type byKey struct{}

func (byKey) Send(_ context.Context, d weir.Delivery) weir.Result {
	r := weir.Result{Outcome: weir.OutcomeDelivered, Status: 200, StartedAt: time.Now(),
		Duration: time.Millisecond}
	switch {
	case strings.HasPrefix(d.Message.Key, "bad"):
		r.Outcome, r.Status, r.Reason = weir.OutcomeRejected, 422,
			fmt.Sprintf("asset %d of %q is missing", d.Message.ID.Seq, d.Message.Key)
	case strings.HasPrefix(d.Message.Key, "away"):
		r.Outcome, r.Status, r.Reason = weir.OutcomeUnavailable, 503, "down"
	case strings.HasPrefix(d.Message.Key, "refused"):
		r.Outcome, r.Status, r.Reason, r.Refused = weir.OutcomeUnavailable, 403,
			"403 Forbidden", true
	case strings.HasPrefix(d.Message.Key, "late"):
		r.Outcome, r.Status, r.Reason = weir.OutcomeRetry, 500, "out of order"
	}

	return r
}

// drainFor delivers messages for a span of time, and then closes the drainer.
func (w *world) drainFor(span time.Duration) {
	w.t.Helper()
	w.drainWhile(func() { time.Sleep(span) })
}

// drainUntilPassed delivers messages until the cursors of all lanes have passed n messages in
// total. Then it closes the drainer.
func (w *world) drainUntilPassed(n int64) {
	w.t.Helper()
	w.drainWhile(func() {
		for left := n; left > 0 && w.t.Context().Err() == nil; {
			left = n
			for number := range w.store.Lanes {
				c, err := w.store.ReadControl(w.t.Context(), number)
				if err != nil {
					w.t.Error(err)
					return
				}
				left -= c.Tail.Cursor - 1
			}

			// so that these reads do not slow the drainer's requests down
			time.Sleep(50 * time.Millisecond)
		}
	})
}

// drainWhile delivers messages while f runs, and then closes the drainer.
func (w *world) drainWhile(f func()) {
	w.t.Helper()
	d := drain.New(drain.Config{
		Store: w.store, Leases: w.leases, Sender: byKey{}, Tickets: lanetest.NoTickets{},
		Lease:  15 * time.Second,
		Settle: 2 * time.Second, Attempts: 9, Brake: w.brake,
		Backoff: drain.Backoff{Min: 100 * time.Hour, Max: 200 * time.Hour}, Now: time.Now,
		Log: quiet, Name: "one",
	})

	for n := range w.store.Lanes {
		d.Wake(n)
	}

	f()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if err := d.Close(ctx); err != nil {
		w.t.Fatalf("Close = %v, want no error", err)
	}
}

// insertRows writes n rows to lane 0, with the sequence numbers 1 to n. The key of each row begins
// with the prefix. The head's next sequence number becomes n+1.
func (w *world) insertRows(prefix string, n int, values map[string]any) {
	w.t.Helper()
	transact := func(ops []storage.Op) {
		if _, err := w.store.Table.Transact(w.t.Context(), "1.0", ops); err != nil {
			w.t.Fatal(err)
		}
	}

	var ops []storage.Op
	for seq := range n {
		if ops = append(ops, storage.Op{Kind: storage.Insert,
			Key:    prefix + lane.OrderPos(int64(seq+1)),
			Values: values}); len(ops) == storage.MaxOps {
			transact(ops)
			ops = ops[:0]
		}
	}

	transact(append(ops, storage.Op{Kind: storage.Merge, Key: "!head", Values: map[string]any{"Next": int64(n + 1)}}))
}

func (w *world) readStatus(id weir.ID) weir.Status {
	w.t.Helper()
	st, err := w.store.Messages().Status(w.t.Context(), id)
	if err != nil {
		w.t.Fatalf("Status = %v, want no error", err)
	}
	return st
}

func (w *world) readForecast(id weir.ID) overview.Forecast {
	w.t.Helper()
	o, err := w.all.Forecast(w.t.Context(), w.readStatus(id))
	if err != nil {
		w.t.Fatalf("Forecast = %v, want no error", err)
	}
	return o
}
