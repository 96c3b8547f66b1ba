package relane_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"weir/internal/drain"
	"weir/internal/fold"
	"weir/internal/lane"
	"weir/internal/lane/epochs"
	"weir/internal/relane"
	"weir/internal/storage"
	"weir/internal/storage/memory"
	"weir/internal/storage/storagetest"
	"weir/internal/testkit/lanetest"
	"weir/internal/weir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world has one storage account, a CMS, and the messages that an upstream has sent.
type world struct {
	t       *testing.T
	account *memory.Account
	cms     *cms
	sent    []*sent
	mu      sync.Mutex
	reports []string // progress reports of all Resharders
	crashed bool     // a process has crashed, so uncommitted deliveries can be repeated

	rules fold.Rules // the folding of keys in the settings of new processes
}

// sent is a message as its upstream knows it.
type sent struct {
	key, idem, body string
	due             time.Time // zero = the message is due at once
	id              weir.ID
}

// simulate runs a test in virtual time.
func simulate(t *testing.T, f func(*testing.T, *world)) {
	t.Helper()
	lanetest.Simulate(t, func(t *testing.T) {
		f(t, &world{t: t, account: memory.New(time.Now), cms: &cms{}})
	})
}

// cms simulates the CMS. It rejects a body that contains "bad", and accepts every other body. If a
// body begins with "flaky", the first attempt fails. The log has the requests that the CMS accepted
// or rejected.
type cms struct {
	mu    sync.Mutex
	down  bool
	tried map[string]bool // flaky bodies that had their first attempt
	log   []request
}

type request struct {
	id, key, body string
	known         string // the key's remembered id
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
	m, r := d.Message, weir.Result{Outcome: weir.OutcomeDelivered, Status: 200,
		StartedAt: time.Now(), RememberedID: "item of " + d.Message.Key}

	switch {
	case c.down:
		return weir.Result{Outcome: weir.OutcomeUnavailable, Reason: "the CMS is down",
			StartedAt: time.Now()}
	case strings.HasPrefix(string(m.Body), "flaky") && !c.tried[string(m.Body)]:
		if c.tried == nil {
			c.tried = map[string]bool{}
		}
		c.tried[string(m.Body)] = true
		return weir.Result{Outcome: weir.OutcomeRetry, Status: 500, Reason: "not now",
			RetryAfter: 20 * time.Second, StartedAt: time.Now()}

	case strings.Contains(string(m.Body), "bad"):
		r.Outcome, r.Status, r.Reason = weir.OutcomeRejected, 422, "bad content"
	}

	c.log = append(c.log, request{m.Public().String(), m.Key, string(m.Body), d.RememberedID,
		d.Fence, time.Now()})

	return r
}

func (c *cms) setDown(down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = down
}

func (c *cms) listRequests() []request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.log)
}

// handler is a process of Weir.
type handler struct {
	store   *lane.Store
	appends *lane.Appender
	drainer *drain.Drainer
}

func (w *world) newStore(lanes int) *lane.Store {
	return &lane.Store{Table: w.account.Table(), Bodies: w.account.Blobs(), Lanes: lanes,
		Fold: w.rules, Now: time.Now}
}

func (w *world) newDrainer(store *lane.Store, leases storage.Leases) *drain.Drainer {
	return drain.New(drain.Config{
		Store: store, Leases: leases, Sender: w.cms, Tickets: lanetest.NoTickets{},
		Lease:    15 * time.Second,
		Settle:   2 * time.Second,
		Attempts: 3, Backoff: drain.Backoff{Min: time.Second, Max: 5 * time.Second}, Now: time.Now,
		Log:       lanetest.Quiet,
		Remembers: func(string) bool { return true },
	})
}

// startHandler starts a handler whose settings have this number of lanes.
func (w *world) startHandler(lanes int) *handler {
	w.t.Helper()
	h := &handler{store: w.newStore(lanes)}
	if err := h.store.Open(w.t.Context()); err != nil {
		w.t.Fatalf("open with %d lanes: %v", lanes, err)
	}

	h.drainer = w.newDrainer(h.store, w.account.Leases())
	h.appends = lane.NewAppender(h.store, lanetest.Quiet)
	h.appends.OnFiled, h.appends.OnWake = h.drainer.OfferAppended, h.drainer.WakeOffered
	for number := range lanes {
		h.drainer.Wake(number)
	}

	return h
}

func (h *handler) closeDrainer(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if err := h.drainer.Close(ctx); err != nil {
		t.Errorf("Close = %v, want no error", err)
	}
}

// post appends a message with a new idempotency key.
func (w *world) post(h *handler, key, body string, change ...func(*weir.Message)) *sent {
	w.t.Helper()
	s := &sent{key: key, idem: fmt.Sprint("idem ", len(w.sent)), body: body}
	m := weir.Message{Contract: "article", Key: key, ContentType: "application/xml",
		Body: []byte(body)}
	for _, f := range change {
		f(&m)
	}

	r, err := lanetest.AppendAndWake(w.t.Context(), h.appends, m, s.idem)
	if err != nil {
		w.t.Fatalf("post: %v", err)
	}

	s.id, s.due = r.Message.Public(), r.Message.DueAt
	w.sent = append(w.sent, s)

	return s
}

// newResharder returns a Resharder whose calls to storage can fail; faults decides which calls
// fail.
func (w *world) newResharder(faults *storagetest.Faults) relane.Resharder {
	store := w.newStore(0)
	store.Table = faults.Table(w.account.Table())
	leases := faults.Leases(w.account.Leases())
	return relane.Resharder{
		Store: store, Leases: leases, Lease: 15 * time.Second, Settle: 2 * time.Second,
		Log:     lanetest.Quiet,
		Drainer: func(s *lane.Store) relane.Drainer { return w.newDrainer(s, leases) },
		Progress: func(text string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.reports = append(w.reports, text)
		},
	}
}

func (w *world) joinReports() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.reports, "\n")
}

func (w *world) changeLanes(n int) {
	w.t.Helper()
	if err := w.newResharder(storagetest.NewFaults()).Run(w.t.Context(), relane.Target{Lanes: n}); err != nil {
		w.t.Fatalf("lanes %d: %v", n, err)
	}
}

func (w *world) readRecord() epochs.Record {
	w.t.Helper()
	m, err := epochs.Read(w.t.Context(), w.account.Table())
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

func (w *world) readStage(h *handler, s *sent) weir.Stage {
	w.t.Helper()
	st, err := h.store.Messages().Status(w.t.Context(), s.id)
	if err != nil {
		w.t.Fatalf("status of %q, filed at %+v: %v", s.body, s.id, err)
	}

	if st.Message.Public() != s.id || st.Message.Key != s.key {
		w.t.Errorf("status of %q, filed at %+v: got %+v, want Public %v and Key %v", s.body, s.id,
			st.Message, s.id, s.key)
	}

	return st.Stage
}

func (w *world) waitForStage(h *handler, s *sent, stage weir.Stage) {
	w.t.Helper()
	for end := time.Now().Add(5 * time.Minute); w.readStage(h, s) !=
		stage; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			st, _ := h.store.Messages().Status(w.t.Context(), s.id)
			w.t.Fatalf("%q is %s, want %s; %s", s.body, w.readStage(h, s), stage, st.ReplayRefused)
		}
	}
}

// checkPromises checks the state after a change of the number of lanes, when no process is at work
// any more:
//   - Each id leads to its message.
//   - A repeated post gets the id of the first post. Another body under a used idempotency key is
//     refused.
//   - The CMS got the right requests, see checkOrder, and the counters are right, see checkBooks.
func (w *world) checkPromises(h *handler, waiting int64) {
	w.t.Helper()
	for _, s := range w.sent {
		stage := w.readStage(h, s)
		r, err := lanetest.AppendAndWake(w.t.Context(), h.appends,
			weir.Message{Contract: "article", Key: s.key, Body: []byte(s.body)}, s.idem)
		if err != nil || !r.Duplicate || r.Message.Public() != s.id || r.Stage != stage {
			w.t.Errorf("%q again: %+v, %v; want %+v", s.body, r, err, s.id)
		}
	}

	_, err := h.appends.Append(w.t.Context(),
		weir.Message{Contract: "article", Key: w.sent[0].key, Body: []byte("other")},
		w.sent[0].idem)
	if weir.KindOf(err) != weir.Invalid {
		w.t.Errorf("another body under a known idempotency key: %v, want an error of kind Invalid",
			err)
	}

	w.checkOrder()
	w.checkBooks(waiting)
}

// checkOrder checks the requests that the CMS recorded for each key:
//   - Messages without a due time came in the order of their posts, scheduled messages in the order
//     of their due times.
//   - No scheduled message came before its due time.
//   - No message came twice. But after a crash the last message of a key can come again.
//   - The fence never fell.
func (w *world) checkOrder() {
	w.t.Helper()
	place, fence, seen := map[string]int{}, map[string]int64{}, map[string]bool{}
	for i, s := range w.sent {
		place[s.id.String()] = i
	}

	last := map[string]int{}
	late := func(a, b *sent) bool { // reports whether a must come before b
		if a.due.IsZero() != b.due.IsZero() {
			return false
		}
		return a.due.Before(b.due) ||
			a.due.Equal(b.due) && place[a.id.String()] < place[b.id.String()]
	}

	for _, r := range w.cms.listRequests() {
		at, known := place[r.id]
		before, isLater := last[r.key]
		switch {
		case !known:
			w.t.Errorf("the CMS got %q under the id %s, want one that an upstream got",
				r.body, r.id)
		case seen[r.id] && !(w.crashed && at == before):
			w.t.Errorf("the CMS got %q twice, want it once", r.body)
		case isLater && late(w.sent[at], w.sent[before]):
			w.t.Errorf("the CMS got %q after %q, want it before", r.body, w.sent[before].body)
		case r.at.Before(w.sent[at].due):
			w.t.Errorf("the CMS got %q at %s, want it no earlier than %s", r.body, r.at,
				w.sent[at].due)
		case r.fence < fence[r.key]:
			w.t.Errorf("the CMS got %q under fence %d, want at least %d", r.body, r.fence,
				fence[r.key])
		}

		last[r.key], fence[r.key], seen[r.id] = at, r.fence, true
	}
}

// checkBooks checks the counters of the lanes of all epochs. Each message must be counted once. The
// parameter waiting is the number of messages that must still wait.
func (w *world) checkBooks(waiting int64) {
	w.t.Helper()
	meta := w.readRecord()
	var accepted, final, left int64
	for _, e := range append(slices.Clone(meta.Earlier), meta.Open) {
		for number := range e.Lanes {
			c, err := w.newStore(0).ForEpoch(e).ReadControl(w.t.Context(), number)
			if err != nil {
				w.t.Fatal(err)
			}

			n := c.Tail.Counts
			accepted += c.Head.Next - 1 - n.Moved
			final += n.Total() - n.Moved
			left += c.WaitingCount()

			if e != meta.Open &&
				(c.WaitingCount() != 0 || !c.Tail.IsClosed || !c.Tail.MovedRecorded) {
				w.t.Errorf("epoch %d, lane %d is over: got %+v, want it empty, closed and recorded",
					e.Number, number, c)
			}

			if e == meta.Open && (c.Tail.IsClosed || c.Head.IsSealed) {
				w.t.Errorf("epoch %d, lane %d is open: got %+v, want it neither closed nor sealed",
					e.Number, number, c)
			}
		}
	}

	if accepted != int64(len(w.sent)) || left != waiting || accepted != final+left {
		w.t.Errorf("%d sent; the books say %d accepted, %d final, %d waiting, want all accepted and %d waiting",
			len(w.sent), accepted, final, left, waiting)
	}
}
