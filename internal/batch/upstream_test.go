package batch_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"weir/internal/batch"
	"weir/internal/filing"
	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
	"weir/internal/testkit/lanetest"
	"weir/internal/upstream"
	"weir/internal/weir"
	"weir/internal/wire"
)

// unobserved is an upstream.Observer that does nothing.
type unobserved struct{}

// Limited implements upstream.Observer.
func (unobserved) Limited(string, string) {}

// startWithUpstreams starts a process with two upstreams in its settings: "feeds" has a daily quota
// of 10, and "pictures" is not allowed to send articles.
func (w *world) startWithUpstreams() *process {
	p := &process{w: w, faults: storagetest.NewFaults()}
	store := w.lanes.FaultyStore(p.faults)
	set := upstream.NewSet([]upstream.Definition{{Name: "feeds", DailyQuota: 10},
		{Name: "pictures", Contracts: []string{"picture"}}}, store.Table, time.Now, unobserved{})
	p.Runner = batch.New(batch.Config{Store: store, Blobs: w.lanes.Account.Blobs(),
		Leases: w.lanes.Account.Leases(),
		Lease:  leaseLength, Contracts: w.set, MaxBody: maxBody, Quotas: set,
		Filer: &filing.Filer{Contracts: w.set, Limits: set},
		Log:   lane.NewAppender(store, lanetest.Quiet),
		Wake:  w.calls.CountWake, Refused: w.calls.CountRefusal, Now: time.Now,
		Logger: lanetest.Quiet})

	return p
}

func TestBatch_CountsAgainstTheQuotaOfItsUpstream(t *testing.T) {
	simulate(t, func(w *world) {
		p := w.startWithUpstreams()
		defer p.stop()
		b := p.awaitFinal(p.accept(batch.Spec{Upstream: "feeds"}, newFeed(8, "/a", "/b")).ID)
		if b.State != wire.BatchFiled || b.Filed != 8 || b.Upstream != "feeds" {
			t.Errorf("got %+v, want 8 parts of feeds filed", b)
		}

		b = p.awaitFinal(p.accept(batch.Spec{Upstream: "feeds", IdempotencyKey: "k"}, newFeed(3, "/a")).ID)
		if b.State != wire.BatchRejected || b.Filed != 0 ||
			!strings.Contains(b.Reason, "has 2 messages left") {
			t.Errorf("got %+v, want a rejected batch with the reason that 2 messages are left", b)
		}

		time.Sleep(24 * time.Hour) // the quota of the next day begins; the key "k" is free again
		b = p.awaitFinal(p.accept(batch.Spec{Upstream: "feeds", IdempotencyKey: "k"}, newFeed(10, "/a")).ID)
		if b.State != wire.BatchFiled || b.Filed != 10 {
			t.Errorf("the next day: got %+v, want 10 parts filed", b)
		}
	})
}

// The write that ends the check of a batch fails three times, so the batch is checked four times.
// The parts must be counted against the quota only once.
func TestBatch_CountsOnceIfItIsCheckedAgain(t *testing.T) {
	simulate(t, func(w *world) {
		p := w.startWithUpstreams()
		defer p.stop()
		failures := 0
		p.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Partition != "batches" || len(c.Ops) == 0 || c.Ops[0].Kind != storage.Replace ||
				failures == 3 {
				return storagetest.Fault{}
			}
			failures++
			return storagetest.Fault{Kind: storagetest.FailBefore}
		})

		b := p.awaitFinal(p.accept(batch.Spec{Upstream: "feeds"}, newFeed(6, "/a")).ID)
		if failures != 3 || b.State != wire.BatchFiled || b.Filed != 6 {
			t.Errorf("after %d failures: got %+v, want 6 parts filed after 3", failures, b)
		}

		if b := p.awaitFinal(p.accept(batch.Spec{Upstream: "feeds"}, newFeed(4, "/b")).ID); b.State != wire.BatchFiled {
			t.Errorf("the rest of the quota: got %+v, want 4 parts filed", b)
		}
	})
}

func TestBatch_PartsOfOtherContractsAreInvalid(t *testing.T) {
	simulate(t, func(w *world) {
		p := w.startWithUpstreams()
		defer p.stop()
		b := p.awaitFinal(p.accept(batch.Spec{Upstream: "pictures"}, newFeed(2, "/a")).ID)
		if b.State != wire.BatchRejected || b.Invalid != 2 ||
			b.Problems[0].Problems[0].Rule != "contract" {
			t.Errorf("got %+v, want a rejected batch with two parts of a contract that is not allowed", b)
		}
	})
}

// Two upstreams and a post without an upstream use equal idempotency keys. Each post gets a batch
// of its own.
func TestBatch_IdempotencyKeyOfAnotherUpstream(t *testing.T) {
	simulate(t, func(w *world) {
		p := w.startWithUpstreams()
		defer p.stop()
		ids := map[string]bool{}
		for _, spec := range []batch.Spec{{Upstream: "feeds", IdempotencyKey: "k"},
			{Upstream: "pictures", IdempotencyKey: "k"}, {IdempotencyKey: "k"}} {
			b := p.accept(spec, newFeed(1, "/"+spec.Upstream))
			if b.Duplicate || ids[b.ID] {
				t.Errorf("%q: got the batch %+v, want a new one", spec.Upstream, b)
			}
			ids[b.ID] = true
			p.awaitFinal(b.ID)
		}

		if b := p.accept(batch.Spec{Upstream: "feeds", IdempotencyKey: "k"}, newFeed(1, "/feeds")); !b.Duplicate {
			t.Errorf("the same upstream again: got %+v, want the earlier batch", b)
		}
	})
}

// refusedBody returns an error at the end of the body, as the reader of a body with a wrong
// signature does.
type refusedBody struct{ io.Reader }

// Read implements io.Reader.
func (r refusedBody) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err == io.EOF { //nolint:errorlint // io.Reader returns io.EOF itself
		err = &weir.Error{Kind: weir.Unauthenticated, Message: "wrong"}
	}
	return n, err
}

func TestBatch_RemovesABodyRefusedAtItsEnd(t *testing.T) {
	simulate(t, func(w *world) {
		p := w.startWithUpstreams()
		defer p.stop()
		_, err := p.Accept(t.Context(), batch.Spec{Mode: wire.BatchAll},
			refusedBody{strings.NewReader(newFeed(20, "/a"))})
		if weir.KindOf(err) != weir.Unauthenticated || len(w.blobNames()) != 0 ||
			w.countAll() != 0 {
			t.Errorf("got %v, the blobs %v and %d messages; want Unauthenticated and nothing", err,
				w.blobNames(), w.countAll())
		}
	})
}
