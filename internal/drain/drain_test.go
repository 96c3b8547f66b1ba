package drain_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/residence"
	"weir/internal/storage/memory"
	"weir/internal/storage/storagetest"
	"weir/internal/testkit/lanetest"
	"weir/internal/weir"
)

const (
	// leaseLength and settleTime are settings of the processes under test.
	leaseLength, settleTime = 15 * time.Second, 2 * time.Second
	// allowedSkew is the allowed difference between the clocks of two processes. The settle time
	// that a holder writes into tail includes allowedSkew.
	allowedSkew = 2 * time.Second
	// noticeWithin is the longest time in which a process that watches a lane notices that the
	// lease is free.
	noticeWithin = 2 * time.Second
	// claimLength is the time after which a claim is no longer valid.
	claimLength = 15 * time.Second
)

// world has one storage account and one CMS, on which a test starts processes.
type world struct {
	t       *testing.T
	lanes   *lanetest.Lanes
	account *memory.Account
	cms     *fakeCMS
	store   *lane.Store // without faults, for the test itself
}

// sent is one request that the CMS got.
type sent struct {
	id, key, body string
	fence         int64
	attempt       int
	at, end       time.Time
	result        weir.Result
}

// fakeCMS answers with a function that the test sets, and records the requests.
type fakeCMS struct {
	mu     sync.Mutex
	answer func(context.Context, weir.Delivery) weir.Result
	log    []sent
}

func (c *fakeCMS) Send(ctx context.Context, d weir.Delivery) weir.Result {
	c.mu.Lock()
	answer := c.answer
	c.mu.Unlock()
	at := time.Now()
	r := answer(ctx, d)
	r.StartedAt, r.Duration = at, time.Since(at)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log = append(c.log, sent{d.Message.ID.String(), d.Message.Key, string(d.Message.Body),
		d.Fence, d.Attempt, at, time.Now(), r})

	return r
}

func (c *fakeCMS) setAnswer(f func(context.Context, weir.Delivery) weir.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = f
}

func (c *fakeCMS) listRequests() []sent {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]sent(nil), c.log...)
}

// answerAfter returns a function that answers with the status after d, unless the request is cut
// off before.
func answerAfter(d time.Duration, status int) func(context.Context, weir.Delivery) weir.Result {
	return func(ctx context.Context, _ weir.Delivery) weir.Result {
		select {
		case <-time.After(d):
			return newAnswer(status)
		case <-ctx.Done():
			return weir.Result{Outcome: weir.OutcomeNone, Unanswered: true, Reason: "cut off"}
		}
	}
}

func newAnswer(status int) weir.Result {
	o := weir.OutcomeDelivered
	switch {
	case status == 403 || status == 503:
		o = weir.OutcomeUnavailable
	case status >= 500:
		o = weir.OutcomeRetry
	case status >= 400:
		o = weir.OutcomeRejected
	}

	return weir.Result{
		Outcome: o,
		Status:  status,
		Reason:  fmt.Sprintf("%d from the CMS", status),
		Refused: status == 403,
	}
}

// simulate runs a test in virtual time, with a new world that has one lane.
func simulate(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	lanetest.Simulate(t, func(t *testing.T) { f(t, newWorld(t)) })
}

// simulateAlone is simulate for a test that measures the memory of the process: no other test runs
// at the same time.
func simulateAlone(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newWorld(t)) })
}

func newWorld(t *testing.T) *world { return newWorldOf(t, 1) }

func newWorldOf(t *testing.T, count int) *world {
	lanes := lanetest.New(t, count)
	return &world{t: t, lanes: lanes, account: lanes.Account, store: lanes.Store,
		cms: &fakeCMS{answer: answerAfter(20*time.Millisecond, 200)}}
}

// ticketCounter is a queue of tickets that only counts them.
type ticketCounter struct {
	mu  sync.Mutex
	n   int // number of all tickets
	now int // number of tickets from EnqueueNow, which are visible immediately
	bad int // number of further calls of EnqueueNow that fail
}

func (c *ticketCounter) Enqueue(context.Context, int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return nil
}

func (c *ticketCounter) EnqueueNow(ctx context.Context, lane int) error {
	c.mu.Lock()
	if c.bad > 0 {
		c.bad--
		c.mu.Unlock()
		return errors.New("the queue is away")
	}

	c.now++
	c.mu.Unlock()

	return c.Enqueue(ctx, lane)
}

// failNext makes the next n calls of EnqueueNow fail.
func (c *ticketCounter) failNext(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bad = n
}

func (c *ticketCounter) countNow() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *ticketCounter) countAll() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// process is one instance: a Drainer with storage that a test can make fail.
type process struct {
	*drain.Drainer
	*residence.Permit // nil without withHost
	faults            *storagetest.Faults
	blobFaults        *storagetest.Faults // set by startWithBlobs
	ticketCounter     *ticketCounter
	sender            *gatedSender
}

// gatedSender lets a test stop the deliveries of a process for good.
type gatedSender struct {
	drain.Sender
	mu   sync.Mutex
	dead bool
}

func (s *gatedSender) Send(ctx context.Context, d weir.Delivery) weir.Result {
	s.mu.Lock()
	dead := s.dead
	s.mu.Unlock()

	if dead {
		<-ctx.Done()
		return weir.Result{Outcome: weir.OutcomeNone}
	}

	return s.Sender.Send(ctx, d)
}

func (w *world) start(change ...func(*drain.Config)) *process {
	p := &process{faults: storagetest.NewFaults(), ticketCounter: &ticketCounter{},
		sender: &gatedSender{Sender: w.cms}}
	store := *w.store
	store.Table = p.faults.Table(w.account.Table())
	cfg := drain.Config{
		Store: &store, Leases: p.faults.Leases(w.account.Leases()), Sender: p.sender,
		Tickets: p.ticketCounter,
		Lease:   leaseLength, Settle: settleTime, Attempts: 5,
		Backoff: drain.Backoff{Min: time.Second, Max: time.Minute}, Now: lanetest.PreemptedNow,
		Log: lanetest.Quiet,
	}

	for _, f := range change {
		f(&cfg)
	}

	p.Drainer, p.Permit = drain.New(cfg), cfg.Permit
	w.t.Cleanup(func() { p.close(w.t) })

	return p
}

func (p *process) close(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		t.Errorf("Close = %v, want no error", err)
	}
}

// kill acts like SIGKILL: no further call of the process reaches storage or the CMS.
func (p *process) kill() {
	p.sender.mu.Lock()
	p.sender.dead = true
	p.sender.mu.Unlock()
	p.faults.Set(func(storagetest.Call) storagetest.Fault { return storagetest.Fault{Kind: storagetest.FailBefore} })
}

func (w *world) post(key, body string, change ...func(*weir.Message)) weir.ID {
	w.t.Helper()
	return w.lanes.Append(key, body, change...)
}

func (w *world) status(id weir.ID) weir.Status {
	w.t.Helper()
	return w.lanes.Status(id)
}

func (w *world) control() lane.Control {
	w.t.Helper()
	return w.lanes.Control(0)
}

// waitUntilEmpty waits, in virtual time, until the lane has no waiting messages. Looks become rarer
// if that takes long, because each one reads the lane's rows.
func (w *world) waitUntilEmpty(limit time.Duration) lane.Control {
	w.t.Helper()
	began := time.Now()
	for end := began.Add(limit); time.Now().Before(end); {
		if c := w.control(); c.WaitingCount() == 0 {
			return c
		}
		time.Sleep(max(50*time.Millisecond, time.Since(began)/100))
	}

	w.t.Fatalf("after %s got %+v, want no message waiting", limit, w.control())

	return lane.Control{}
}

// listDelivered returns the bodies of the key's messages that the CMS took, in the order of the
// requests. A body that was delivered twice is listed twice.
func (w *world) listDelivered(key string) []string {
	var out []string
	for _, s := range w.cms.listRequests() {
		if s.key == key && s.result.Outcome == weir.OutcomeDelivered {
			out = append(out, s.body)
		}
	}
	return out
}

// checkNoOverlap checks that the CMS never had two requests at the same time.
func (w *world) checkNoOverlap() {
	w.t.Helper()
	log := w.cms.listRequests()
	for i, a := range log {
		for _, b := range log[i+1:] {
			if a.at.Before(b.end) && b.at.Before(a.end) {
				w.t.Errorf("requests overlap: %s %s–%s and %s %s–%s, want one at a time", a.body,
					a.at, a.end, b.body, b.at, b.end)
			}
		}
	}
}

func isTail(c storagetest.Call) bool {
	return c.Op == "Transact" && len(c.Ops) > 0 && c.Ops[0].Key == "!tail"
}
