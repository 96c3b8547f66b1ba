package batch_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"weir/internal/batch"
	"weir/internal/filing"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
	"weir/internal/wire"
)

// sweep resumes unfinished batches once a minute.
func (p *process) sweep(minutes int) {
	p.w.Helper()
	for range minutes {
		if err := p.ResumeOrphans(p.w.Context()); err != nil {
			p.w.Fatal(err)
		}
		time.Sleep(time.Minute)
	}
}

// failReads makes the reads of a batch's document fail in this way, from the given number of reads
// on.
func (p *process) failReads(id string, after int, kind storagetest.FaultKind) {
	reads := 0
	p.faults.Set(func(c storagetest.Call) storagetest.Fault {
		if !isDocumentRead(c) || !strings.Contains(c.Key, id) {
			return storagetest.Fault{}
		}

		if reads++; reads <= after {
			return storagetest.Fault{}
		}
		return storagetest.Fault{Kind: kind}
	})
}

// Storage never returns the document of one batch. After an hour the batch ends with the reason.
// Until then, other batches of the same upstream and of others are filed soon.
func TestBatch_EndsIfItsDocumentIsNeverReturned(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind  storagetest.FaultKind
		after int // reads that succeed: 1 = the read of the check
		state wire.BatchState
	}{
		"Fails":          {storagetest.FailBefore, 0, wire.BatchRejected},
		"NeverAnswers":   {storagetest.Hang, 0, wire.BatchRejected},
		"WhileItIsFiled": {storagetest.Hang, 1, wire.BatchFiled},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(w *world) {
				p := w.startProcess()
				defer p.stop()
				p.faults.Set(func(c storagetest.Call) storagetest.Fault {
					if isDocumentRead(c) {
						return storagetest.Fault{Kind: storagetest.FailBefore}
					}
					return storagetest.Fault{}
				})

				stuck := p.accept(batch.Spec{Upstream: "feeds", IdempotencyKey: "k"},
					newFeed(3, "/a"))
				p.failReads(stuck.ID, c.after, c.kind)

				for n := range 12 {
					p.sweep(5)
					for _, upstream := range []string{"feeds", "shop", ""} {
						began := time.Now()
						p.awaitFinal(p.accept(batch.Spec{Upstream: upstream}, newFeed(3, "/b")).ID)

						if took := time.Since(began); took > time.Minute {
							t.Errorf(
								"round %d, upstream %q: another batch took %s, want at most a minute", n,
								upstream, took)
						}
					}
				}

				p.sweep(5)
				got, err := p.Get(w.Context(), stuck.ID)
				if err != nil || got.State != c.state || got.Filed != 0 ||
					!strings.Contains(got.Reason,
						"for an hour storage has not returned the stored document") {
					t.Errorf("got %s because of %q, %v; want %s because of the document", got.State,
						got.Reason, err, c.state)
				}

				for _, name := range w.blobNames() {
					if strings.Contains(name, stuck.ID+"/document/") {
						t.Errorf("got the blob %s, want no blob of the document", name)
					}
				}
			})
		})
	}
}

// While storage as a whole does not answer reads of blobs, no batch ends, however long that takes.
func TestBatch_WaitsWhileStorageIsAway(t *testing.T) {
	simulate(t, func(w *world) {
		p := w.startProcess()
		defer p.stop()
		mend := p.failWhile(func(c storagetest.Call) bool {
			return c.Port == "blobs" &&
				c.Op == "Get"
		})

		b := p.accept(batch.Spec{}, newFeed(3, "/a"))
		p.sweep(300)
		mend()
		p.sweep(1)

		if got := p.awaitFinal(b.ID); got.State != wire.BatchFiled || got.Filed != 3 {
			t.Errorf("got %s with %d parts filed because of %q, want three parts filed",
				got.State, got.Filed, got.Reason)
		}
	})
}

// alwaysPanicking panics at each part with the given text.
type alwaysPanicking struct {
	filing.Contracts
	text string
}

// Accept implements filing.Contracts.
func (c alwaysPanicking) Accept(ctx context.Context, contentType string,
	body []byte) (weir.Message, error) {
	if strings.Contains(string(body), c.text) {
		panic("a defect")
	}
	return c.Contracts.Accept(ctx, contentType, body)
}

func TestBatch_EndsIfTheWorkAlwaysPanics(t *testing.T) {
	simulate(t, func(w *world) {
		p := w.startProcess()
		defer p.stop()
		p.Filer.Contracts = alwaysPanicking{w.set, "/a"}
		b := p.accept(batch.Spec{}, newFeed(3, "/a"))
		p.sweep(30)
		if got, err := p.Get(w.Context(), b.ID); err != nil || got.State != wire.BatchChecking {
			t.Errorf("after half an hour: got %s, %v, want checking", got.State, err)
		}

		p.sweep(45)

		if got, err := p.Get(w.Context(), b.ID); err != nil || got.State != wire.BatchRejected ||
			!strings.Contains(got.Reason, "defect") {
			t.Errorf("got %s because of %q, %v; want rejected because of a defect", got.State,
				got.Reason, err)
		}
	})
}
