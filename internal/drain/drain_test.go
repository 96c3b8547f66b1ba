package drain_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/storage/memory"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

const (
	// leaseLength and settleTime are settings of the processes under test.
	leaseLength, settleTime = 15 * time.Second, 2 * time.Second
	// allowedSkew is by how much clocks may differ: a new holder adds it to the settle time.
	allowedSkew = 2 * time.Second
	// noticeWithin is the time in which a process that watches a lane notices that its lease is free.
	noticeWithin = 2 * time.Second
	// claimLength is how long a claim counts.
	claimLength = 15 * time.Second
)

// world is one storage account, one CMS, and the processes a test starts on them.
type world struct {
	t       *testing.T
	account *memory.Account
	cms     *fakeCMS
	store   *lane.Store // without faults, for the test itself
	append  *lane.Appender
}

// sent is one request as the CMS saw it.
type sent struct {
	id, key, body string
	fence         int64
	attempt       int
	at, end       time.Time
	result        weir.Result
}

// fakeCMS answers as the test says, and records.
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
	c.log = append(c.log, sent{d.Message.ID.String(), d.Message.Key, string(d.Message.Body), d.Fence, d.Attempt,
		at, time.Now(), r})
	return r
}

func (c *fakeCMS) set(f func(context.Context, weir.Delivery) weir.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = f
}

func (c *fakeCMS) requests() []sent {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]sent(nil), c.log...)
}

// takes answers after d with the status, or is cut off.
func takes(d time.Duration, status int) func(context.Context, weir.Delivery) weir.Result {
	return func(ctx context.Context, _ weir.Delivery) weir.Result {
		select {
		case <-time.After(d):
			return answer(status)
		case <-ctx.Done():
			return weir.Result{Outcome: weir.OutcomeNone, Unanswered: true, Reason: "cut off"}
		}
	}
}

func answer(status int) weir.Result {
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

// simulate runs a test in virtual time over a fresh world with one lane.
func simulate(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		account := memory.New(time.Now)
		w := &world{t: t, account: account, cms: &fakeCMS{answer: takes(20*time.Millisecond, 200)}}
		w.store = &lane.Store{Table: account.Table(), Bodies: account.Blobs(), Lanes: 1, Now: time.Now}
		if err := w.store.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.useAppender()
		f(t, w)
	})
}

func (w *world) useAppender() { w.append = lane.NewAppender(w.store, quietLog) }

var quietLog = slog.New(slog.NewTextHandler(io.Discard, nil))

// bell counts rings.
type bell struct {
	mu  sync.Mutex
	n   int
	now int // of them visible at once
}

func (b *bell) Enqueue(context.Context, int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n++
	return nil
}

func (b *bell) EnqueueNow(ctx context.Context, lane int) error {
	b.mu.Lock()
	b.now++
	b.mu.Unlock()
	return b.Enqueue(ctx, lane)
}

func (b *bell) ringsNow() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

func (b *bell) rings() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n
}

// process is one instance: a Drainer whose storage can be broken.
type process struct {
	*drain.Drainer
	faults *storagetest.Faults
	bell   *bell
	sender *gatedSender
}

// gatedSender lets a test stop a process's deliveries for good, as SIGKILL would.
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
	p := &process{faults: storagetest.NewFaults(), bell: &bell{}, sender: &gatedSender{Sender: w.cms}}
	store := *w.store
	store.Table = p.faults.Table(w.account.Table())
	cfg := drain.Config{
		Store: &store, Leases: p.faults.Leases(w.account.Leases()), Sender: p.sender, Tickets: p.bell,
		Lease: leaseLength, Settle: settleTime, Attempts: 5,
		Backoff: drain.Backoff{Min: time.Second, Max: time.Minute}, Now: time.Now, Log: quietLog,
	}
	for _, f := range change {
		f(&cfg)
	}
	p.Drainer = drain.New(cfg)
	w.t.Cleanup(func() { p.close(w.t) })
	return p
}

func (p *process) close(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

// kill ends a process as SIGKILL would: from now on nothing of it reaches anything.
func (p *process) kill() {
	p.sender.mu.Lock()
	p.sender.dead = true
	p.sender.mu.Unlock()
	p.faults.Set(func(storagetest.Call) storagetest.Fault { return storagetest.Fault{Kind: storagetest.FailBefore} })
}

func (w *world) post(key, body string, change ...func(*weir.Message)) weir.ID {
	w.t.Helper()
	m := weir.Message{Contract: "article", Key: key, ContentType: "application/xml", Body: []byte(body)}
	for _, f := range change {
		f(&m)
	}
	r, err := w.append.Append(w.t.Context(), m, "")
	if err != nil {
		w.t.Fatalf("append: %v", err)
	}
	return r.Message.ID
}

func (w *world) status(id weir.ID) weir.Status {
	w.t.Helper()
	st, err := w.store.Status(w.t.Context(), id)
	if err != nil {
		w.t.Fatalf("status: %v", err)
	}
	return st
}

func (w *world) control() lane.Control {
	w.t.Helper()
	c, err := w.store.ReadControl(w.t.Context(), 0)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// settled waits, in virtual time, until nothing waits any more.
func (w *world) settled(limit time.Duration) lane.Control {
	w.t.Helper()
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if c := w.control(); c.WaitingCount() == 0 {
			return c
		}
	}
	w.t.Fatalf("after %s still waiting: %+v", limit, w.control())
	return lane.Control{}
}

// delivered returns the delivered bodies of a key, in order.
func (w *world) delivered(key string) []string {
	var out []string
	for _, s := range w.cms.requests() {
		if s.key == key && s.result.Outcome == weir.OutcomeDelivered {
			out = append(out, s.body)
		}
	}
	return out
}

// noOverlap checks that no two requests were at the CMS at once.
func (w *world) noOverlap() {
	w.t.Helper()
	log := w.cms.requests()
	for i, a := range log {
		for _, b := range log[i+1:] {
			if a.at.Before(b.end) && b.at.Before(a.end) {
				w.t.Errorf("requests overlap: %s %s–%s and %s %s–%s", a.body, a.at, a.end, b.body, b.at, b.end)
			}
		}
	}
}

func isTail(c storagetest.Call) bool {
	return c.Op == "Transact" && len(c.Ops) > 0 && c.Ops[0].Key == "!tail"
}
