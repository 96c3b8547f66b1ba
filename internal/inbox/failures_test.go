package inbox_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/batch"
	"weir/internal/filing"
	"weir/internal/inbox"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
	"weir/internal/wire"
)

// undeletableFiles refuses to delete the files whose names end with suffix, as a legal hold does.
type undeletableFiles struct {
	storage.Files
	suffix string
}

func (u undeletableFiles) Delete(ctx context.Context, name string, version storage.ETag) error {
	if strings.HasSuffix(name, u.suffix) {
		return &storage.Error{Kind: storage.Conflict, Op: "file delete"}
	}
	return u.Files.Delete(ctx, name, version)
}

func TestRemoveExpired_GoesOnAfterAFileThatCannotBeDeleted(t *testing.T) {
	simulateInbox(t, func(w *world) {
		p := w.startProcess(func(cfg *inbox.Config) { cfg.Rejected = undeletableFiles{cfg.Rejected, "/fixed.xml"} })
		defer p.stopProcess()
		w.dropFile("fixed.xml", "<article/>")
		time.Sleep(time.Second)

		// in the archive, its name sorts after the name of fixed.xml
		w.dropFile("later.xml", "<article/>")
		p.takeFiles()
		time.Sleep(retention + time.Second)
		if err := p.removeOld(w.Context()); !storage.Is(err, storage.Conflict) {
			t.Errorf("got %v, want the error of fixed.xml", err)
		}

		w.checkNames("rejected", w.rejected, "fixed.xml")
	})
}

// dropSample puts one or more files of each kind into the inbox.
func (w *world) dropSample() {
	w.dropFile("1.xml", newArticle("/a", 1))
	w.dropFile("bad.xml", "<article/>")
	w.dropFile("feed.xml", "<feed>"+newArticle("/f", 1)+newArticle("/f", 2)+"</feed>")
	w.dropFile("refused.xml", "<feed>"+newArticle("/r", 1)+"<article/></feed>")
	time.Sleep(time.Second)
	w.dropFile("2.xml", newArticle("/a", 2))
}

// checkSample checks that each file of the sample was taken exactly once.
func (w *world) checkSample() {
	w.Helper()
	for key, want := range map[string][]string{"/a": {newArticle("/a", 1), newArticle("/a", 2)},
		"/f": {newArticle("/f", 1), newArticle("/f", 2)}, "/r": nil} {
		if got := w.lanes.BodiesOf(key); !slices.Equal(got, want) {
			w.Errorf("%s: got %q, want %q", key, got, want)
		}
	}

	w.checkNames("inbox", w.inbox)
	w.checkNames("accepted", w.accepted, "1.xml", "2.xml", "feed.xml")
	w.checkNames("rejected", w.rejected, "bad.xml", "bad.xml.problems.json", "refused.xml",
		"refused.xml.problems.json")
	if w.Failed() {
		return
	}

	if got := w.contentOf(w.rejected, "/refused.xml"); !strings.HasPrefix(got, "<feed>") {
		w.Errorf("got the content %q of the rejected batch, want the content of its file", got)
	}

	if got := w.problemsOf(w.rejected, "refused.xml"); len(got.Parts) != 1 {
		w.Errorf("got the problems file %+v, want the problem of one part", got)
	}
}

// countCalls returns the number of storage calls that a process makes while it takes the sample.
func countCalls(t *testing.T) (calls int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "/feed/article")
		w.dropSample()
		p := w.startProcess()
		p.faults.Set(func(storagetest.Call) storagetest.Fault { calls++; return storagetest.Fault{} })
		p.takeFiles()
		p.stopProcess()
		w.checkSample()
	})

	return calls
}

// TestCollect_FaultAtEachStep makes one storage call fail, before or after its effect. In some runs
// all later calls fail, too, as if the process had been killed. Each file must still be taken once,
// and moved to its place.
func TestCollect_FaultAtEachStep(t *testing.T) {
	t.Parallel()
	calls := countCalls(t)
	if calls < 40 {
		t.Fatalf("got %d calls, want at least 40", calls)
	}

	failBefore := storagetest.Fault{Kind: storagetest.FailBefore}
	failAfter := storagetest.Fault{Kind: storagetest.FailAfter}
	for name, c := range map[string]struct {
		fault    storagetest.Fault
		isKilled bool // all calls after the failed one fail, too
	}{"Before": {failBefore, false}, "After": {failAfter, false},
		"KilledBefore": {failBefore, true},
		"KilledAfter":  {failAfter, true}} {
		for at := range calls {
			t.Run(fmt.Sprintf("%s/%d", name, at), func(t *testing.T) {
				simulateInbox(t, func(w *world) {
					w.dropSample()
					first, n := w.startProcess(), 0
					first.faults.Set(func(storagetest.Call) storagetest.Fault {
						switch n++; {
						case n == at+1:
							return c.fault
						case n > at+1 && c.isKilled:
							return failBefore
						}
						return storagetest.Fault{}
					})

					_ = first.Collect(w.Context())
					synctest.Wait()
					first.stopProcess()
					w.takeRemaining()
					w.checkSample()
				})
			})
		}
	}
}

// takeRemaining lets another process take the remaining files.
func (w *world) takeRemaining() {
	w.Helper()
	p := w.startProcess()
	defer p.stopProcess()

	for range 4 {
		// the interval of the sweep; longer than the lease of a killed process
		time.Sleep(time.Minute)
		p.takeFiles()
		if err := p.batches.ResumeOrphans(w.Context()); err != nil {
			w.Error(err)
		}

		time.Sleep(time.Minute)
		synctest.Wait()
	}
}

func TestCollect_StorageAway(t *testing.T) {
	simulateInbox(t, func(w *world) {
		p := w.startProcess()
		defer p.stopProcess()
		w.dropSample()

		for _, port := range []string{"files", "table", "leases"} {
			p.faults.Set(func(c storagetest.Call) storagetest.Fault {
				if c.Port == port && c.Op != "List" {
					return storagetest.Fault{Kind: storagetest.FailBefore}
				}
				return storagetest.Fault{}
			})

			if err := p.Collect(w.Context()); err == nil {
				t.Errorf("%s away: got no error, want one", port)
			}

			if got := len(w.lanes.Messages()); got != 0 {
				t.Errorf("%s away: got %d messages, want none", port, got)
			}
		}

		p.faults.Set(nil)
		w.takeRemaining()
		w.checkSample()
	})
}

// slowBatches does not accept the batch slow.xml before the run ends.
type slowBatches struct{ inbox.Batches }

// Accept implements inbox.Batches.
func (s slowBatches) Accept(ctx context.Context, spec batch.Spec,
	body io.Reader) (wire.Batch, error) {
	if strings.HasSuffix(spec.File, "/slow.xml") {
		<-ctx.Done()
		return wire.Batch{}, ctx.Err()
	}
	return s.Batches.Accept(ctx, spec, body)
}

// The oldest file is a batch that is never accepted within a run. Weir must still take the later
// files.
func TestCollect_ASlowBatchDelaysNoOtherFile(t *testing.T) {
	simulateInbox(t, func(w *world) {
		p := w.startProcess(func(cfg *inbox.Config) { cfg.Batches = slowBatches{cfg.Batches} })
		defer p.stopProcess()
		w.dropFile("slow.xml", "<feed>"+newArticle("/slow", 1)+"</feed>")
		time.Sleep(time.Second)
		for n := range 100 { // more files than the process has in memory at the same time
			w.dropFile(fmt.Sprintf("%03d.xml", n), newArticle("/a", n))
		}

		w.dropFile("z.xml", "<feed>"+newArticle("/z", 1)+"</feed>")

		for range 2 {
			began := time.Now()
			p.takeFiles()
			if took := time.Since(began); took > time.Minute {
				t.Errorf("the run took %s, want 1m at most", took)
			}
		}

		w.checkNames("inbox", w.inbox, "slow.xml")
		if got, want := len(w.lanes.BodiesOf("/a"))+len(w.lanes.BodiesOf("/z")), 101; got != want {
			t.Errorf("got %d messages, want %d", got, want)
		}
	})
}

// panickingContracts panics for each body that contains /poison.
type panickingContracts struct{ filing.Contracts }

// Accept implements filing.Contracts.
func (c panickingContracts) Accept(ctx context.Context, contentType string,
	body []byte) (weir.Message, error) {
	if strings.Contains(string(body), "/poison") {
		panic("a defect")
	}
	return c.Contracts.Accept(ctx, contentType, body)
}

// panickingBatches panics for each batch.
type panickingBatches struct{}

// Accept implements inbox.Batches.
func (panickingBatches) Accept(context.Context, batch.Spec, io.Reader) (wire.Batch, error) {
	panic("a defect")
}

// One file causes a panic. The process must still take the other files.
func TestCollect_SurvivesAPanic(t *testing.T) {
	simulateInbox(t, func(w *world) {
		p := w.startProcess(func(cfg *inbox.Config) {
			filer := *cfg.Filer
			filer.Contracts = panickingContracts{filer.Contracts}
			cfg.Filer, cfg.Batches = &filer, panickingBatches{}
		})
		defer p.stopProcess()
		w.dropFile("a.xml", newArticle("/poison", 1))
		w.dropFile("b.xml", "<feed/>")
		w.dropFile("c.xml", newArticle("/c", 1))
		p.takeFiles()
		w.checkNames("inbox", w.inbox, "a.xml", "b.xml")
		if got := len(w.lanes.BodiesOf("/c")); got != 1 {
			t.Errorf("got %d messages of the later file, want 1", got)
		}
	})
}
