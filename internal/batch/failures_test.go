package batch_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/batch"
	"weir/internal/contract"
	"weir/internal/filing"
	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
	"weir/internal/testkit/lanetest"
	"weir/internal/weir"
	"weir/internal/wire"
)

// The first transaction of Accept stores the rows, but the answer is lost. The first read that
// looks for the rows fails, too. When a later read finds the rows, Accept must keep the document.
func TestAccept_KeepsItsDocumentIfAnswersAreLost(t *testing.T) {
	simulate(t, func(w *world) {
		p := w.startProcess()
		defer p.stop()
		isLost := map[string]bool{}
		p.faults.Set(func(c storagetest.Call) storagetest.Fault {
			isFirst := !isLost[c.Op]
			switch {
			case c.Op == "Transact" && isFirst:
				isLost[c.Op] = true
				return storagetest.Fault{Kind: storagetest.FailAfter}
			case c.Op == "Get" && c.Port == "table" && isFirst:
				isLost[c.Op] = true
				return storagetest.Fault{Kind: storagetest.FailBefore}
			}

			return storagetest.Fault{}
		})

		b := p.accept(batch.Spec{IdempotencyKey: "k"}, newFeed(3, "/a"))
		if b.Duplicate {
			t.Errorf("got %+v, want a new batch", b)
		}

		if got := p.awaitFinal(b.ID); got.State != wire.BatchFiled || got.Filed != 3 {
			t.Errorf("got %+v, want three parts filed", got)
		}
	})
}

// A later batch is posted with the idempotency key of a rejected batch, so the row of the key leads
// to the later batch. This row must stay in two cases:
//
//   - Expired: retention removes the rejected batch.
//   - AnswerLost: the process of the rejected batch removes the row that leads to this batch, but
//     gets no answer. The process tries the removal again after the later batch was posted.
func TestBatch_LeavesTheKeyOfALaterBatch(t *testing.T) {
	t.Parallel()
	t.Run("Expired", func(t *testing.T) {
		simulate(t, func(w *world) {
			p := w.startProcess()
			defer p.stop()
			p.awaitFinal(p.accept(batch.Spec{IdempotencyKey: "k"}, "<feed/>").ID)
			time.Sleep(15 * 24 * time.Hour)
			later := p.awaitFinal(p.accept(batch.Spec{IdempotencyKey: "k"}, newFeed(3, "/a")).ID)
			time.Sleep(16 * 24 * time.Hour)
			if err := removeOld(w.Context(), p.Runner); err != nil {
				t.Fatal(err)
			}

			w.checkRepeat(p, later.ID)
		})
	})

	t.Run("AnswerLost", func(t *testing.T) {
		simulate(t, func(w *world) {
			p, other := w.startProcess(), w.startProcess()
			defer p.stop()
			defer other.stop()
			p.faults.Once(func(c storagetest.Call) bool {
				return c.Op == "Transact" && strings.HasPrefix(c.Ops[0].Key, "i_")
			}, storagetest.Fault{Kind: storagetest.FailAfter})
			p.accept(batch.Spec{IdempotencyKey: "k"}, "<feed/>")
			time.Sleep(minRetry / 2)
			later := other.accept(batch.Spec{IdempotencyKey: "k"}, newFeed(3, "/a"))
			time.Sleep(time.Minute)
			w.checkRepeat(other, later.ID)
		})
	})
}

// minRetry is the pause before the first retry of a failed step.
const minRetry = time.Second

// checkRepeat posts newFeed(3, "/a") with the idempotency key "k", and expects the batch with this
// id as a duplicate.
func (w *world) checkRepeat(p *process, id string) {
	w.Helper()
	if got := p.accept(batch.Spec{IdempotencyKey: "k"}, newFeed(3, "/a")); got.ID != id ||
		!got.Duplicate {
		w.Errorf("posted again: got batch %s, want the duplicate of %s", got.ID, id)
	}
}

// failWhile makes the matching calls to storage fail until the test calls mend.
func (p *process) failWhile(matches func(storagetest.Call) bool) (mend func()) {
	p.faults.Set(func(c storagetest.Call) storagetest.Fault {
		if matches(c) {
			return storagetest.Fault{Kind: storagetest.FailBefore}
		}
		return storagetest.Fault{}
	})

	return func() { p.faults.Set(nil) }
}

func isDocumentRead(c storagetest.Call) bool {
	return c.Op == "Get" && strings.Contains(c.Key, "/document/")
}

// A message with another body has used the idempotency key of a part, so the part can never be
// appended. The part becomes invalid. The other parts and the next batch are appended.
func TestBatch_PartIsRefusedWhenItIsFiled(t *testing.T) {
	simulate(t, func(w *world) {
		p := w.startProcess()
		defer p.stop()
		mend := p.failWhile(isDocumentRead)
		b := p.accept(batch.Spec{}, newFeed(3, "/a"))
		if _, err := lane.NewAppender(w.lanes.Store, lanetest.Quiet).Append(w.Context(),
			weir.Message{Key: "/a", Contract: "article", Body: []byte("<other/>")},
			"batch-"+b.ID+"-2"); err != nil {
			t.Fatal(err)
		}

		mend()
		got := p.awaitFinal(b.ID)
		if got.Filed != 2 || got.Invalid != 1 || len(got.Problems) != 1 ||
			got.Problems[0].Part != 2 {
			t.Errorf("got %+v, want two parts filed and a problem of part 2", got)
		}

		if next := p.awaitFinal(p.accept(batch.Spec{}, newFeed(5, "/b")).ID); next.Filed != 5 {
			t.Errorf("the next batch: got %+v, want five parts filed", next)
		}
	})
}

// Parts are appended window by window; a window has at most 200 parts. The contract becomes
// stricter after the check, so one part of the first window and one part of the second window
// become invalid. The process dies in the second window. In the end the problems of both parts must
// be stored.
func TestBatch_KeepsLateProblemsAfterACrash(t *testing.T) {
	simulate(t, func(w *world) {
		var document strings.Builder
		document.WriteString("<feed>")

		for n := range 450 {
			intro := "<intro>x</intro>"
			if n == 2 || n == 249 {
				intro = ""
			}
			document.WriteString(`<article path="/a"><title>x</title>` + intro + `</article>`)
		}

		document.WriteString("</feed>")
		first := w.startProcess()
		first.failWhile(func(c storagetest.Call) bool {
			return c.Op == "Transact" &&
				c.Partition != "batches"
		})

		b := first.accept(batch.Spec{}, document.String())
		time.Sleep(time.Minute)
		first.kill()
		var err error
		w.set, err = contract.New(
			[]contract.Definition{{Name: "article", Root: "article",
				Key:    contract.KeyPaths{"./@path"},
				Fields: []contract.Field{{Path: "./intro", Rule: "required"}}}},
			contract.Limits{MaxBody: maxBody})
		if err != nil {
			t.Fatal(err)
		}

		second := w.startProcess()
		hasWindow := false
		second.failWhile(func(c storagetest.Call) bool {
			hasWindow = hasWindow || c.Op == "Put" && strings.HasSuffix(c.Key, "/ids/201")
			return hasWindow
		})

		if err := second.ResumeOrphans(w.Context()); err != nil {
			t.Fatal(err)
		}

		time.Sleep(time.Minute)
		second.kill()
		third := w.startProcess()
		defer third.stop()
		if err := third.ResumeOrphans(w.Context()); err != nil {
			t.Fatal(err)
		}

		got := third.awaitFinal(b.ID)
		if got.Filed != 448 || got.Invalid != 2 || len(got.Problems) != 2 ||
			got.Problems[0].Part != 3 ||
			got.Problems[1].Part != 250 {
			t.Errorf("got %+v, want 448 parts filed and the problems of parts 3 and 250", got)
		}
	})
}

// While a process waits for the lease of one batch, the process still works on another batch.
func TestBatch_BusyLeaseDelaysNoOther(t *testing.T) {
	simulate(t, func(w *world) {
		slow, p := w.startProcess(), w.startProcess()
		defer p.stop()
		mend := slow.failWhile(isDocumentRead)
		defer slow.stop()
		defer mend()
		slow.accept(batch.Spec{}, newFeed(3, "/a"))
		time.Sleep(2 * time.Second)
		if err := p.ResumeOrphans(w.Context()); err != nil {
			t.Fatal(err)
		}

		time.Sleep(time.Second)
		began := time.Now()
		p.awaitFinal(p.accept(batch.Spec{}, newFeed(3, "/b")).ID)
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("the posted batch was filed after %s, want at most 4s", took)
		}
	})
}

// The document of one batch cannot be read. Meanwhile the process completes its other batch. When
// the document can be read again, the process completes the first batch, too.
func TestBatch_FailingBatchDelaysNoOther(t *testing.T) {
	simulate(t, func(w *world) {
		p := w.startProcess()
		defer p.stop()

		// id of the batch whose document cannot be read; "" = no document can be read
		var failing atomic.Value
		failing.Store("")
		mend := p.failWhile(func(c storagetest.Call) bool {
			return isDocumentRead(c) && strings.Contains(c.Key, failing.Load().(string))
		})
		failing.Store(p.accept(batch.Spec{}, newFeed(3, "/a")).ID)
		began := time.Now()
		p.awaitFinal(p.accept(batch.Spec{}, newFeed(3, "/b")).ID)
		if took := time.Since(began); took > 5*time.Minute {
			t.Errorf("the other batch was filed after %s, want at most 5m", took)
		}

		mend()
		if err := p.ResumeOrphans(w.Context()); err != nil {
			t.Fatal(err)
		}

		if got := p.awaitFinal(failing.Load().(string)); got.Filed != 3 {
			t.Errorf("got %+v, want three parts filed", got)
		}
	})
}

func TestRemoveExpired_LeavesUnfinishedBatches(t *testing.T) {
	simulate(t, func(w *world) {
		p, other := w.startProcess(), w.startProcess()
		defer p.stop()
		defer other.stop()
		mend := p.failWhile(isDocumentRead)
		b := p.accept(batch.Spec{}, newFeed(3, "/a"))
		time.Sleep(31 * 24 * time.Hour)
		if err := removeOld(w.Context(), other.Runner); err != nil {
			t.Fatal(err)
		}

		mend()
		if err := p.ResumeOrphans(w.Context()); err != nil {
			t.Fatal(err)
		}

		if got := p.awaitFinal(b.ID); got.Filed != 3 {
			t.Errorf("got %+v, want three parts filed", got)
		}
	})
}

// panickingContracts panics at the first call of Accept.
type panickingContracts struct {
	filing.Contracts
	hasPanicked bool
}

// Accept implements filing.Contracts.
func (c *panickingContracts) Accept(ctx context.Context, contentType string,
	body []byte) (weir.Message, error) {
	if !c.hasPanicked {
		c.hasPanicked = true
		panic("a defect")
	}
	return c.Contracts.Accept(ctx, contentType, body)
}

// A panic during the check of a part must not end the process. Otherwise the batch would end each
// process that checks the batch.
func TestBatch_SurvivesAPanic(t *testing.T) {
	simulate(t, func(w *world) {
		p := w.startProcess()
		defer p.stop()
		p.Filer.Contracts = &panickingContracts{Contracts: w.set}
		b := p.accept(batch.Spec{}, newFeed(3, "/a"))
		time.Sleep(time.Minute)
		if err := p.ResumeOrphans(w.Context()); err != nil {
			t.Fatal(err)
		}

		if got := p.awaitFinal(b.ID); got.Filed != 3 {
			t.Errorf("got %+v, want three parts filed", got)
		}
	})
}

// Accept refuses a long Content-Type and long split paths, because the batch's row has limited
// room.
func TestAccept_RefusesLongTexts(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]batch.Spec{
		"ContentType": {ContentType: "multipart/mixed; boundary=" + strings.Repeat("b", 40_000)},
		"Split":       {Split: []string{"/" + strings.Repeat("a", 40_000)}},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(w *world) {
				p := w.startProcess()
				defer p.stop()
				b, err := p.Accept(w.Context(), spec, strings.NewReader("<a/>"))
				if kind := kindOf(err); kind != weir.Unsupported && kind != weir.Invalid {
					t.Errorf("got %+v, %v, want Unsupported or Invalid", b, err)
				}
			})
		})
	}
}

// Storage does not return a chunk of a stored document. The batch ends with the reason, and holds
// up no other batch.
func TestBatch_EndsIfItsDocumentCannotBeRead(t *testing.T) {
	simulate(t, func(w *world) {
		p := w.startProcess()
		defer p.stop()
		p.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if !isDocumentRead(c) {
				return storagetest.Fault{}
			}
			return storagetest.Fault{Kind: storagetest.FailBefore,
				Err: &storage.Error{Op: "blob get", Kind: storage.Unreadable, Index: -1,
					Code: "409 BlobArchived"}}
		})

		b := p.accept(batch.Spec{}, newFeed(3, "/a"))
		if got := p.awaitFinal(b.ID); got.State != wire.BatchRejected ||
			!strings.Contains(got.Reason, "409 BlobArchived") {
			t.Errorf("got %s because of %q, want rejected with storage's answer", got.State,
				got.Reason)
		}

		p.faults.Set(nil)
		if got := p.awaitFinal(p.accept(batch.Spec{}, newFeed(3, "/b")).ID); got.Filed != 3 {
			t.Errorf("the next batch: got %+v, want three parts filed", got)
		}
	})
}
