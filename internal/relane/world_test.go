package relane_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/relane"
	"weir/internal/storage"
	"weir/internal/storage/memory"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

// world is one storage account, a CMS, and the messages an upstream has sent.
type world struct {
	t       *testing.T
	account *memory.Account
	cms     *cms
	sent    []*sent
	mu      sync.Mutex
	said    []string // by all commands
	crashed bool     // a process was: what it had not committed may come again
}

// sent is a message as its upstream knows it.
type sent struct {
	key, idem, body string
	due             time.Time // zero = at once
	id              weir.ID
}

// simulate runs a test in virtual time.
func simulate(t *testing.T, f func(*testing.T, *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f(t, &world{t: t, account: memory.New(time.Now), cms: &cms{}})
	})
}

// cms takes what does not say "bad", unless it is down, and keeps a record. What is flaky
// it takes the second time.
type cms struct {
	mu    sync.Mutex
	down  bool
	tried map[string]bool // of what is to be tried again after a while
	log   []request
}

type request struct {
	id, key, body string
	fence         int64
	at            time.Time
}

func (c *cms) Send(ctx context.Context, d weir.Delivery) weir.Result {
	select {
	case <-time.After(20 * time.Millisecond):
	case <-ctx.Done():
		return weir.Result{Outcome: weir.OutcomeNone}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m, r := d.Message, weir.Result{Outcome: weir.OutcomeDelivered, Status: 200, StartedAt: time.Now()}
	switch {
	case c.down:
		return weir.Result{Outcome: weir.OutcomeUnavailable, Reason: "the CMS is down", StartedAt: time.Now()}
	case strings.HasPrefix(string(m.Body), "flaky") && !c.tried[string(m.Body)]:
		if c.tried == nil {
			c.tried = map[string]bool{}
		}
		c.tried[string(m.Body)] = true
		return weir.Result{Outcome: weir.OutcomeRetry, Status: 500, Reason: "not now", RetryAfter: 20 * time.Second,
			StartedAt: time.Now()}
	case strings.Contains(string(m.Body), "bad"):
		r.Outcome, r.Status, r.Reason = weir.OutcomeRejected, 422, "bad content"
	}
	c.log = append(c.log, request{m.Public().String(), m.Key, string(m.Body), d.Fence, time.Now()})
	return r
}

func (c *cms) set(down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = down
}

func (c *cms) requests() []request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.log)
}

// handler is a running process.
type handler struct {
	store   *lane.Store
	appends *lane.Appender
	drainer *drain.Drainer
}

type noBell struct{}

func (noBell) EnqueueNow(context.Context, int) error { return nil }

func (w *world) store(lanes int) *lane.Store {
	return &lane.Store{Table: w.account.Table(), Bodies: w.account.Blobs(), Lanes: lanes, Now: time.Now}
}

func (w *world) drainer(store *lane.Store, leases storage.Leases) *drain.Drainer {
	return drain.New(drain.Config{
		Store: store, Leases: leases, Sender: w.cms, Tickets: noBell{}, Lease: 15 * time.Second, Settle: 2 * time.Second,
		Attempts: 3, Backoff: drain.Backoff{Min: time.Second, Max: 5 * time.Second}, Now: time.Now, Log: quiet,
	})
}

// start starts a handler, as a deployment with this setting does.
func (w *world) start(lanes int) *handler {
	w.t.Helper()
	h := &handler{store: w.store(lanes)}
	if err := h.store.Open(w.t.Context()); err != nil {
		w.t.Fatalf("open with %d lanes: %v", lanes, err)
	}
	h.drainer = w.drainer(h.store, w.account.Leases())
	h.appends = lane.NewAppender(h.store, quiet)
	h.appends.OnFiled, h.appends.OnWake = h.drainer.OfferAppended, h.drainer.WakeOffered
	for number := range lanes {
		h.drainer.Wake(number)
	}
	return h
}

func (h *handler) stop(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := h.drainer.Close(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// post sends a message, under an idempotency key of its own.
func (w *world) post(h *handler, key, body string, change ...func(*weir.Message)) *sent {
	w.t.Helper()
	s := &sent{key: key, idem: fmt.Sprint("idem ", len(w.sent)), body: body}
	m := weir.Message{Contract: "article", Key: key, ContentType: "application/xml", Body: []byte(body)}
	for _, f := range change {
		f(&m)
	}
	r, err := h.appends.Append(w.t.Context(), m, s.idem)
	if err != nil {
		w.t.Fatalf("post: %v", err)
	}
	s.id, s.due = r.Message.Public(), r.Message.DueAt
	w.sent = append(w.sent, s)
	return s
}

// command is a change over storage with faults.
func (w *world) command(faults *storagetest.Faults) relane.Resharder {
	store := w.store(0)
	store.Table = faults.Table(w.account.Table())
	leases := faults.Leases(w.account.Leases())
	return relane.Resharder{
		Store: store, Leases: leases, Lease: 15 * time.Second, Settle: 2 * time.Second, Log: quiet,
		Drainer: func(s *lane.Store) relane.Drainer { return w.drainer(s, leases) },
		Progress: func(text string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.said = append(w.said, text)
		},
	}
}

// told returns the progress reports of all commands so far.
func (w *world) told() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.said, "\n")
}

func (w *world) change(n int) {
	w.t.Helper()
	if err := w.command(storagetest.NewFaults()).Run(w.t.Context(), n); err != nil {
		w.t.Fatalf("lanes %d: %v", n, err)
	}
}

func (w *world) meta() lane.EpochRecord {
	w.t.Helper()
	m, err := w.store(0).ReadEpochRecord(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

func (w *world) stage(h *handler, s *sent) weir.Stage {
	w.t.Helper()
	st, err := h.store.Status(w.t.Context(), s.id)
	if err != nil {
		w.t.Fatalf("status of %q, filed at %+v: %v", s.body, s.id, err)
	}
	if st.Message.Public() != s.id || st.Message.Key != s.key {
		w.t.Errorf("status of %q, filed at %+v, tells of %+v", s.body, s.id, st.Message)
	}
	return st.Stage
}

// comes waits until a message has a stage.
func (w *world) comes(h *handler, s *sent, stage weir.Stage) {
	w.t.Helper()
	for end := time.Now().Add(5 * time.Minute); w.stage(h, s) != stage; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			st, _ := h.store.Status(w.t.Context(), s.id)
			w.t.Fatalf("%q is %s and not %s; %s", s.body, w.stage(h, s), stage, st.ReplayRefused)
		}
	}
}

// holds checks, at rest, what must hold whatever was done: ids answer, repeats are known,
// keys are in order, nothing was sent twice, fences do not fall, books balance.
func (w *world) holds(h *handler, waiting int64) {
	w.t.Helper()
	for _, s := range w.sent {
		stage := w.stage(h, s)
		r, err := h.appends.Append(w.t.Context(), weir.Message{Contract: "article", Key: s.key, Body: []byte(s.body)},
			s.idem)
		if err != nil || !r.Duplicate || r.Message.Public() != s.id || r.Stage != stage {
			w.t.Errorf("%q again: %+v, %v; want %+v", s.body, r, err, s.id)
		}
	}
	_, err := h.appends.Append(w.t.Context(),
		weir.Message{Contract: "article", Key: w.sent[0].key, Body: []byte("other")}, w.sent[0].idem)
	if weir.KindOf(err) != weir.Invalid {
		w.t.Errorf("another body under a known idempotency key: %v", err)
	}
	w.order()
	w.books(waiting)
}

// order checks the CMS's record against the order in which messages were sent.
func (w *world) order() {
	w.t.Helper()
	place, fence, seen := map[string]int{}, map[string]int64{}, map[string]bool{}
	for i, s := range w.sent {
		place[s.id.String()] = i
	}
	last := map[string]int{}
	late := func(a, b *sent) bool { // a must not come after b
		if a.due.IsZero() != b.due.IsZero() {
			return false
		}
		return a.due.Before(b.due) || a.due.Equal(b.due) && place[a.id.String()] < place[b.id.String()]
	}
	for _, r := range w.cms.requests() {
		at, known := place[r.id]
		switch {
		case !known:
			w.t.Errorf("the CMS got %q under an id that nobody was given", r.body)
		case seen[r.id] && !(w.crashed && at == last[r.key]):
			w.t.Errorf("the CMS got %q twice", r.body)
		case last[r.key] > 0 && late(w.sent[at], w.sent[last[r.key]]):
			w.t.Errorf("the CMS got %q after %q", r.body, w.sent[last[r.key]].body)
		case r.at.Before(w.sent[at].due):
			w.t.Errorf("the CMS got %q before it was due", r.body)
		case r.fence < fence[r.key]:
			w.t.Errorf("the CMS got %q under fence %d, after %d", r.body, r.fence, fence[r.key])
		}
		last[r.key], fence[r.key], seen[r.id] = at, r.fence, true
	}
}

// books adds up all epochs: every message is accepted once and counted once.
func (w *world) books(waiting int64) {
	w.t.Helper()
	meta := w.meta()
	var accepted, final, left int64
	for _, e := range append(slices.Clone(meta.Earlier), meta.Open) {
		for number := range e.Lanes {
			c, err := w.store(0).ForEpoch(e).ReadControl(w.t.Context(), number)
			if err != nil {
				w.t.Fatal(err)
			}
			n := c.Tail.Counts
			accepted += c.Head.Next - 1 - n.Moved
			final += n.Total() - n.Moved
			left += c.WaitingCount()
			if e != meta.Open && (c.WaitingCount() != 0 || !c.Tail.IsClosed || !c.Tail.MovedRecorded) {
				w.t.Errorf("epoch %d, lane %d is over: %+v", e.Number, number, c)
			}
			if e == meta.Open && (c.Tail.IsClosed || c.Head.IsSealed) {
				w.t.Errorf("epoch %d, lane %d is open: %+v", e.Number, number, c)
			}
		}
	}
	if accepted != int64(len(w.sent)) || left != waiting || accepted != final+left {
		w.t.Errorf("%d sent; the books say %d accepted, %d final, %d waiting", len(w.sent), accepted, final, left)
	}
}
