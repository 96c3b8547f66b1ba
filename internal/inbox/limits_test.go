package inbox_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/batch"
	"weir/internal/filing"
	"weir/internal/inbox"
	"weir/internal/weir"
	"weir/internal/wire"
)

// limits admits "count" messages of each upstream in each period. It admits no message of the
// contract "article" from the upstream "forge".
type limits struct {
	count   int
	span    time.Duration
	refuses int // with 7, Admit refuses each seventh call; 0 = no call

	mu       sync.Mutex
	calls    int
	began    time.Time
	admitted map[string]int
}

func (l *limits) CheckContract(upstream, contract string) error {
	if upstream == "forge" && contract == "article" {
		const message = "the upstream forge may not send messages of article"
		return &weir.Error{Kind: weir.Forbidden, Op: "upstream", Message: message,
			Problems: []weir.Problem{{Path: "/", Rule: "contract", Message: message}}}
	}
	return nil
}

func (l *limits) Admit(_ context.Context, upstream, _ string) (func(weir.AppendResult), error) {
	keep := func(weir.AppendResult) {}
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.began) >= l.span {
		l.began, l.admitted = now, map[string]int{}
	}

	if l.calls++; l.refuses > 0 && l.calls%l.refuses == 0 {
		return keep, &weir.Error{Kind: weir.Limited, Op: "upstream",
			Message: "the limit was reached a moment ago"}
	}

	if l.admitted[upstream] >= l.count {
		return keep, &weir.Error{Kind: weir.Limited, Op: "upstream",
			Message: "the limit is reached", RetryAfter: time.Until(l.began.Add(l.span))}
	}

	l.admitted[upstream]++

	return keep, nil
}

// withLimits gives the Filer the limits l, and assigns the folders erp, shop/web and forge to
// upstreams.
func withLimits(l *limits) func(*inbox.Config) {
	return func(cfg *inbox.Config) {
		filer := *cfg.Filer
		filer.Limits = filing.Limits(l)
		cfg.Filer = &filer
		cfg.Folders = []inbox.Folder{{Path: "erp", Upstream: "planning"},
			{Path: "shop/web", Upstream: "shop"}, {Path: "forge", Upstream: "forge"}}
	}
}

func TestCollect_NamesTheUpstreamOfAFolder(t *testing.T) {
	simulateInbox(t, func(w *world) {
		p := w.startProcess(withLimits(&limits{count: 100, span: time.Hour}))
		defer p.stopProcess()
		names := map[string]string{"erp/a.xml": "planning", "erp/deep/b.xml": "planning",
			"shop/web/c.xml": "shop", "shop/d.xml": "", "erpx/e.xml": "", "erp": "", "f.xml": ""}
		for name := range names {
			w.dropFile(name, newArticle("/"+name, 1))
		}

		w.dropFile("erp/feed.xml", "<feed>"+newArticle("/in a batch", 1)+"</feed>")
		names["in a batch"] = "planning"
		p.takeFiles()
		got := map[string]string{}
		for _, m := range w.lanes.Messages() {
			got[m.Key[1:]] = m.Upstream
		}

		if fmt.Sprint(got) != fmt.Sprint(names) {
			t.Errorf("got the upstreams %v, want %v", got, names)
		}
	})
}

// An upstream must not evade its limits by a file beside its folder, also if the file is a batch.
func TestCollect_RefusesFilesOutsideOfTheFolders(t *testing.T) {
	simulateInbox(t, func(w *world) {
		p := w.startProcess(withLimits(&limits{count: 100, span: time.Hour}),
			func(cfg *inbox.Config) { cfg.RefusesOthers = true })
		defer p.stopProcess()
		w.dropFile("erp/a.xml", newArticle("/a", 1))
		w.dropFile("erpx/b.xml", newArticle("/b", 1))
		w.dropFile("feed.xml", "<feed>"+newArticle("/c", 1)+"</feed>")
		p.takeFiles()
		w.checkNames("accepted", w.accepted, "erp/a.xml")
		w.checkNames("rejected", w.rejected, "erpx/b.xml", "erpx/b.xml.problems.json", "feed.xml",
			"feed.xml.problems.json")
		if got := w.lanes.Messages(); len(got) != 1 || got[0].Upstream != "planning" {
			t.Errorf("got the messages %+v, want one of planning", got)
		}
	})
}

// The settings of this test have a split path, so a file becomes a batch if its root element has no
// contract. The file of this test has a contract, but its upstream may not send messages of this
// contract. So Weir must reject the file, and must not take it as a batch.
func TestCollect_RejectsAContractThatTheUpstreamMayNotSend(t *testing.T) {
	simulateInbox(t, func(w *world) {
		p := w.startProcess(withLimits(&limits{count: 100, span: time.Hour}))
		defer p.stopProcess()
		w.dropFile("forge/a.xml", newArticle("/a", 1))
		p.takeFiles()

		if got := w.problemsOf(w.rejected, "forge/a.xml"); !strings.Contains(got.Detail,
			"may not send") {
			t.Errorf("got the problems file %+v, want the reason of the upstream", got)
		}
	})
}

// The limit admits four messages each second. The run waits until more messages are admitted, and
// takes the files of each key in order.
func TestCollect_KeepsARateWithinARun(t *testing.T) {
	simulateInbox(t, func(w *world) {
		p := w.startProcess(withLimits(&limits{count: 4, span: time.Second}))
		defer p.stopProcess()
		const files = 40
		for i := range files {
			w.dropFile(fmt.Sprintf("erp/%03d.xml", i), newArticle(fmt.Sprint("/", i%3), i))
		}

		for i := range 8 {
			w.dropFile(fmt.Sprintf("free/%d.xml", i), newArticle(fmt.Sprint("/free/", i), i))
		}

		began := time.Now()
		p.takeFiles()
		if took := time.Since(began); took < 9*time.Second || took > 15*time.Second {
			t.Errorf("the run took %s, want about ten seconds, which %d files need at four files a second", took, files)
		}

		w.checkNames("inbox", w.inbox)
		w.checkOrder(files + 8)
	})
}

// A limit can refuse one file, and admit later files during the same run. Even then no file may
// overtake an earlier file of its key.
func TestCollect_KeepsTheOrderWhenALimitEnds(t *testing.T) {
	simulateInbox(t, func(w *world) {
		p := w.startProcess(withLimits(&limits{count: 1000, span: time.Hour, refuses: 7}))
		defer p.stopProcess()
		const files = 100
		for i := range files {
			w.dropFile(fmt.Sprintf("erp/%03d.xml", i), newArticle(fmt.Sprint("/", i%3), i))
		}

		for range 3 {
			p.takeFiles()
			time.Sleep(time.Minute)
		}

		w.checkNames("inbox", w.inbox)
		w.checkOrder(files)
	})
}

// If an upstream has used up its quota, its files stay in the inbox, and keep their order. Files
// without an upstream are taken at once.
func TestCollect_LeavesFilesOverAQuota(t *testing.T) {
	simulateInbox(t, func(w *world) {
		p := w.startProcess(withLimits(&limits{count: 5, span: 24 * time.Hour}))
		defer p.stopProcess()
		time.Sleep(time.Hour)

		for i := range 12 {
			w.dropFile(fmt.Sprintf("erp/%02d.xml", i), newArticle(fmt.Sprint("/", i%2), i))
			w.dropFile(fmt.Sprintf("free/%02d.xml", i), newArticle(fmt.Sprint("/free/", i), i))
		}

		p.takeFiles()
		time.Sleep(time.Minute)
		p.takeFiles()
		left := w.namesIn(w.inbox)
		if len(left) != 7 || len(w.lanes.Messages()) != 17 {
			t.Errorf("got %d messages and the files %q, want 17 messages, and 7 files of erp in the inbox",
				len(w.lanes.Messages()), left)
		}

		w.checkOrder(17)

		for range 3 {
			time.Sleep(24 * time.Hour)
			p.takeFiles()
		}

		w.checkNames("inbox", w.inbox)
		w.checkOrder(24)
	})
}

// checkOrder checks that there are "want" messages, and that the messages of each key were appended
// in the order of the numbers in their titles.
func (w *world) checkOrder(want int) {
	w.Helper()
	all := w.lanes.Messages()
	if len(all) != want {
		w.Errorf("got %d messages, want %d", len(all), want)
	}

	keys := map[string]bool{}
	for _, m := range all {
		keys[m.Key] = true
	}

	for key := range keys {
		var numbers []int
		for _, body := range w.lanes.BodiesOf(key) {
			_, text, _ := strings.Cut(body, "<title>")
			var n int
			if _, err := fmt.Sscan(strings.TrimSuffix(text, "</title></article>"), &n); err != nil {
				w.Fatalf("the title of %s is not a number, want one: %v", body, err)
			}
			numbers = append(numbers, n)
		}

		if !slices.IsSorted(numbers) {
			w.Errorf("key %s was filed in the order %v, want the order of the files", key, numbers)
		}
	}
}

// fullQueue refuses batches, because the upstream has too many that are not filed yet.
type fullQueue struct {
	inbox.Batches
	isFull  bool
	refused atomic.Int64
}

// Accept implements inbox.Batches.
func (q *fullQueue) Accept(ctx context.Context, s batch.Spec, body io.Reader) (wire.Batch, error) {
	if q.isFull {
		q.refused.Add(1)
		return wire.Batch{}, &weir.Error{Kind: weir.Limited, RetryAfter: 30 * time.Second}
	}
	return q.Batches.Accept(ctx, s, body)
}

// While an upstream has too many batches, its files stay in the inbox, and no copy of them is kept.
func TestCollect_LeavesABatchInTheInboxWhileTheQueueIsFull(t *testing.T) {
	simulateInbox(t, func(w *world) {
		queue := &fullQueue{isFull: true}
		p := w.startProcess(withLimits(&limits{count: 100, span: time.Hour}),
			func(cfg *inbox.Config) {
				queue.Batches = cfg.Batches
				cfg.Batches = queue
			})
		defer p.stopProcess()
		w.dropFile("erp/1.xml", "<feed>"+newArticle("/a", 1)+"</feed>")
		w.dropFile("erp/2.xml", "<feed>"+newArticle("/b", 1)+"</feed>")
		w.dropFile("shop/web/3.xml", newArticle("/c", 1))
		p.takeFiles()
		w.checkNames("accepted", w.accepted, "shop/web/3.xml")
		if n := queue.refused.Load(); n == 0 || n > 4 {
			t.Errorf("got %d refused batches in a run, want 1 to 4", n)
		}

		queue.isFull = false
		time.Sleep(time.Minute)
		p.takeFiles()
		w.checkNames("accepted", w.accepted, "erp/1.xml", "erp/2.xml", "shop/web/3.xml")
	})
}
