package batch_test

import (
	"strings"
	"testing"
	"time"

	"weir/internal/batch"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
	"weir/internal/wire"
)

// Parts are appended in windows of 200. Another process cancels the batch during the third window.
// The batch's process completes that window, and begins no further window.
func TestCancel_KeepsFiledMessages(t *testing.T) {
	simulate(t, func(w *world) {
		p, other := w.startProcess(), w.startProcess()
		defer p.stop()
		defer other.stop()
		id := ""
		p.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Op == "Put" && strings.HasSuffix(c.Key, "/ids/401") && id == "" {
				id, _, _ = strings.Cut(strings.TrimPrefix(c.Key, "batches/"), "/")
				if b, err := other.Cancel(w.Context(), id); err != nil || b.CancelAskedAt.IsZero() {
					t.Errorf("cancel: got %+v, %v, want the time of the request", b, err)
				}
			}
			return storagetest.Fault{}
		})

		got := p.awaitFinal(p.accept(batch.Spec{IdempotencyKey: "k"}, newFeed(1000, "/a", "/b")).ID)
		if got.State != wire.BatchCancelled || got.Filed != 600 || got.Parts != 1000 ||
			got.Invalid != 0 ||
			got.FinishedAt.IsZero() || got.Stages[weir.Queued] != 600 || w.countAll() != 600 {
			t.Errorf("got %+v and %d messages, want a cancelled batch with 600 of 1000 parts filed",
				got, w.countAll())
		}

		w.checkEachOnce(600, "/a", "/b")

		for _, name := range w.blobNames() {
			if strings.Contains(name, "/document/") {
				t.Errorf("got the blob %s, want no blob of the document", name)
			}
		}

		if b, err := other.Cancel(w.Context(), id); err != nil || b.State != wire.BatchCancelled {
			t.Errorf("cancelled again: got %+v, %v, want the cancelled batch", b, err)
		}

		if again := p.accept(batch.Spec{IdempotencyKey: "k"}, newFeed(1000, "/a", "/b")); again.ID != id {
			t.Errorf("posted again: got batch %s, want %s", again.ID, id)
		}
	})
}

// Process p cannot read the document, so the parts are not checked. Another process can still
// cancel the batch, even if the answer to that process's first write is lost.
func TestCancel_BeforeThePartsAreChecked(t *testing.T) {
	simulate(t, func(w *world) {
		p, other := w.startProcess(), w.startProcess()
		defer p.stop()
		defer other.stop()
		mend := p.failWhile(isDocumentRead)
		defer mend()
		b := p.accept(batch.Spec{}, newFeed(3, "/a"))
		time.Sleep(time.Minute) // p stops its work on the batch; a sweep would continue it
		other.faults.Once(func(c storagetest.Call) bool { return c.Op == "Transact" },
			storagetest.Fault{Kind: storagetest.FailAfter})
		if _, err := other.Cancel(w.Context(), b.ID); err != nil {
			t.Fatal(err)
		}

		if got := other.awaitFinal(b.ID); got.State != wire.BatchCancelled || got.Filed != 0 ||
			w.countAll() != 0 {
			t.Errorf("got %+v and %d messages, want a cancelled batch and no message", got,
				w.countAll())
		}
	})
}

func TestCancel_Refuses(t *testing.T) {
	simulate(t, func(w *world) {
		p := w.startProcess()
		defer p.stop()
		filed := p.awaitFinal(p.accept(batch.Spec{}, newFeed(3, "/a")).ID)
		if _, err := p.Cancel(w.Context(), filed.ID); kindOf(err) != weir.Conflict {
			t.Errorf("a filed batch: got %v, want Conflict", err)
		}

		for _, id := range []string{"", "x", "!8302144555000", "83021445550000123456789abcdef"} {
			if _, err := p.Cancel(w.Context(), id); kindOf(err) != weir.NotFound {
				t.Errorf("%q: got %v, want NotFound", id, err)
			}
		}

		p.failWhile(func(storagetest.Call) bool { return true })
		if _, err := p.Cancel(w.Context(), filed.ID); kindOf(err) != weir.Unavailable {
			t.Errorf("storage is away: got %v, want Unavailable", err)
		}
	})
}
