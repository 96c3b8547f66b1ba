package batch_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/batch"
	"weir/internal/filing"
	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
	"weir/internal/testkit/lanetest"
	"weir/internal/testkit/ziptest"
	"weir/internal/weir"
	"weir/internal/wire"
)

// slowContracts takes a time for each part of a batch, except of a short one, as a check that costs
// CPU time.
type slowContracts struct {
	filing.Contracts
	perPart time.Duration
}

// Accept implements filing.Contracts.
func (c slowContracts) Accept(ctx context.Context, contentType string,
	body []byte) (weir.Message, error) {
	if !bytes.Contains(body, []byte("/short")) {
		time.Sleep(c.perPart)
	}
	return c.Contracts.Accept(ctx, contentType, body)
}

// slowTable takes a time for each transaction.
type slowTable struct {
	storage.Table
	perTransaction time.Duration
}

// Transact implements storage.Table.
func (t slowTable) Transact(ctx context.Context, partition string,
	ops []storage.Op) ([]storage.ETag, error) {
	time.Sleep(t.perTransaction)
	return t.Table.Transact(ctx, partition, ops)
}

// startSlow starts a process that checks a part in this time, and whose storage needs this time for
// a transaction.
func (w *world) startSlow(perPart, perTransaction time.Duration) *process {
	p := &process{w: w, faults: storagetest.NewFaults()}
	store := w.lanes.FaultyStore(p.faults)
	store.Table = slowTable{store.Table, perTransaction}
	p.Runner = batch.New(batch.Config{Store: store, Blobs: p.faults.Blobs(w.lanes.Account.Blobs()),
		Leases: p.faults.Leases(w.lanes.Account.Leases()), Lease: leaseLength, Contracts: w.set,
		MaxBody: maxBody,
		Filer:   &filing.Filer{Contracts: slowContracts{w.set, perPart}},
		Log:     lane.NewAppender(store, lanetest.Quiet),
		Wake:    w.calls.CountWake, Refused: w.calls.CountRefusal, Now: time.Now,
		Logger: lanetest.Quiet})

	return p
}

// Other upstreams have sent long batches. A short batch of one more upstream must be filed soon: it
// waits for a shift of two seconds of each open batch, at each of the four points where it needs
// the shift.
func TestShifts_LongBatchesDelayNoOtherUpstream(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		others         int // upstreams with long batches
		parts          int // of a long batch
		perPart        time.Duration
		perTransaction time.Duration
		most           time.Duration // until the short batch is filed
	}{
		"SlowCheck":      {1, 80, 500 * time.Millisecond, 0, 12 * time.Second},
		"SlowStorage":    {1, 80, 0, time.Second, 15 * time.Second},
		"ThreeOthers":    {3, 80, 500 * time.Millisecond, 0, 32 * time.Second},
		"MoreThanPlaces": {6, 80, 500 * time.Millisecond, 0, 10 * time.Minute},
		"LongFilings":    {4, 400, 0, 3 * time.Second, 15 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(w *world) {
				p := w.startSlow(c.perPart, c.perTransaction)
				defer p.stop()
				rounds := 2
				if c.others > 3 {
					rounds = 1
				}

				for range rounds {
					for n := range c.others {
						feed := newFeed(c.parts, fmt.Sprint("/long/", n))
						p.accept(batch.Spec{Upstream: fmt.Sprint("long-", n)}, feed)
					}
				}

				for _, wait := range []time.Duration{time.Second, 45 * time.Second} {
					time.Sleep(wait)
					began := time.Now()
					b := p.awaitFinal(
						p.accept(batch.Spec{Upstream: "short"}, newFeed(3, "/short")).ID)
					if took := time.Since(began); b.State != wire.BatchFiled || took > c.most {
						t.Errorf("the short batch: got %s after %s, want it filed within %s",
							b.State, took, c.most)
					}
				}

				time.Sleep(24 * time.Hour)
				w.checkLong(c.others, rounds*c.parts)
			})
		})
	}
}

// checkLong checks that each part of the long batches is one message.
func (w *world) checkLong(others, want int) {
	w.Helper()
	for n := range others {
		if got := len(w.lanes.MessagesOf(fmt.Sprint("/long/", n))); got != want {
			w.Errorf("upstream %d: got %d messages, want %d", n, got, want)
		}
	}
}

// While another batch has the shift, a zip keeps neither its chunks nor its directory. It goes on
// where it was.
func TestShifts_AZipGoesOnAfterAPause(t *testing.T) {
	simulate(t, func(w *world) {
		p := w.startSlow(time.Second, 0)
		defer p.stop()
		zipped := p.accept(batch.Spec{Upstream: "zips", ContentType: "application/zip",
			Mode: wire.BatchValid}, newJumpingZip(w.T, 1, 30))
		feed := p.accept(batch.Spec{Upstream: "feeds"}, newFeed(30, "/long/"))
		for _, id := range []string{zipped.ID, feed.ID} {
			if b := p.awaitFinal(id); b.State != wire.BatchFiled || b.Filed != 30 {
				t.Errorf("got %s with %d parts filed because of %q, want 30 parts filed", b.State,
					b.Filed, b.Reason)
			}
		}
	})
}

// A zip that is paused often reads its chunks and its directory again each time. These reads do not
// count as those of a zip that jumps.
func TestShifts_PausesDoNotUseUpTheReads(t *testing.T) {
	simulate(t, func(w *world) {
		p := w.startSlow(2*time.Second, 0)
		defer p.stop()
		var files []string
		for n := range 560 {
			files = append(files, fmt.Sprintf("%d.xml", n), newArticle("/zip", n))
		}

		zipped := p.accept(batch.Spec{Upstream: "one", ContentType: "application/zip"},
			ziptest.New(t, append(files, "wrong.xml", "<article/>")...))
		p.accept(batch.Spec{Upstream: "two"}, newFeed(600, "/b"))
		time.Sleep(2 * time.Hour)

		if b := p.awaitFinal(zipped.ID); b.Reason != "1 of 561 parts are invalid" {
			t.Errorf("got %s because of %q, want it rejected for its invalid part only",
				b.State, b.Reason)
		}
	})
}

// Uploads that have begun below the bound are taken; a further one is not.
func TestAccept_UploadsAtTheSameTimeExceedTheBoundByTheirNumber(t *testing.T) {
	simulate(t, func(w *world) {
		const uploads = 5
		p := w.startProcess()
		defer p.stop()
		defer p.failWhile(isDocumentRead)()
		spec := func(key string) batch.Spec {
			return batch.Spec{Mode: wire.BatchAll, Upstream: "feeds", IdempotencyKey: key}
		}

		for n := range 99 {
			if _, err := p.Accept(w.Context(), spec(fmt.Sprint(n)), newReader(newFeed(1, "/a"))); err != nil {
				t.Fatal(err)
			}
		}

		var posts sync.WaitGroup
		for n := range uploads {
			posts.Go(func() {
				rest := strings.TrimPrefix(newFeed(1, "/a"), "<feed>")

				// the bound is checked after the first bytes
				begin := "<feed>" + strings.Repeat(" ", 256<<10)
				slow := io.MultiReader(newReader(begin), readerAfter(time.Second), newReader(rest))
				if _, err := p.Accept(w.Context(), spec(fmt.Sprint("slow", n)), slow); err != nil {
					t.Errorf("upload %d that began below the bound: %v, want no error", n, err)
				}
			})
		}

		posts.Wait()
		_, err := p.Accept(w.Context(), spec("one more"), newReader(newFeed(1, "/a")))
		if want := fmt.Sprintf("has %d batches", 99+uploads); weir.KindOf(err) != weir.Limited ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("one more: got %v, want Limited because the upstream %s", err, want)
		}
	})
}

// readerAfter is a reader without content that ends after a time.
type readerAfter time.Duration

func (r readerAfter) Read([]byte) (int, error) {
	time.Sleep(time.Duration(r))
	return 0, io.EOF
}

func TestAccept_BoundsTheQueueOfAnUpstream(t *testing.T) {
	simulate(t, func(w *world) {
		p := w.startProcess()
		defer p.stop()
		mend := p.failWhile(isDocumentRead)
		post := func(upstream, key string) error {
			_, err := p.Accept(w.Context(),
				batch.Spec{Mode: wire.BatchAll, Upstream: upstream, IdempotencyKey: key},
				newReader(newFeed(1, "/a")))
			return err
		}

		for n := range 100 {
			if err := post("feeds", fmt.Sprint(n)); err != nil {
				t.Fatalf("batch %d: got %v, want it accepted", n, err)
			}
		}

		if err := post("feeds", "new"); weir.KindOf(err) != weir.Limited ||
			weir.FirstRule(err) != "queuedBatches" {
			t.Errorf("one more: got %v, want Limited by queuedBatches", err)
		}

		for _, c := range [][2]string{{"feeds", "7"}, {"shop", "new"}, {"", "new"}} {
			if err := post(c[0], c[1]); err != nil {
				t.Errorf("upstream %q, key %s: got %v, want no error", c[0], c[1], err)
			}
		}

		mend()
		time.Sleep(time.Minute)
		if err := p.ResumeOrphans(w.Context()); err != nil {
			t.Fatal(err)
		}

		time.Sleep(time.Minute)
		if err := post("feeds", "new"); err != nil {
			t.Errorf("when the others are filed: got %v, want no error", err)
		}
	})
}
