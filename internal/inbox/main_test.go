package inbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"weir/internal/batch"
	"weir/internal/contract"
	"weir/internal/filing"
	"weir/internal/inbox"
	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/storage/memory"
	"weir/internal/storage/storagetest"
	"weir/internal/testkit/lanetest"
	"weir/internal/weir"
	"weir/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	leaseLength = 15 * time.Second
	maxBody     = 2000
	retention   = 30 * 24 * time.Hour
)

// world is a storage account in memory, with lanes, contracts and the three containers of files.
type world struct {
	*testing.T
	lanes                     *lanetest.Lanes
	set                       *contract.Set
	inbox, accepted, rejected *memory.Files
	calls                     lanetest.Calls
}

func simulateInbox(t *testing.T, f func(w *world)) {
	t.Helper()
	lanetest.Simulate(t, func(t *testing.T) { f(newWorld(t, "/feed/article")) })
}

// newWorld returns a world without files and messages. If split is not empty, the contract
// "article" splits documents at this path.
func newWorld(t *testing.T, split string) *world {
	t.Helper()
	set, err := contract.New([]contract.Definition{{Name: "article", Root: "article", Key: contract.KeyPaths{"./@path"},
		Split:  split,
		Fields: []contract.Field{{Path: "./title", Rule: "required,max=20"}}}},
		contract.Limits{MaxBody: maxBody})
	if err != nil {
		t.Fatal(err)
	}

	lanes := lanetest.New(t, 2)

	return &world{T: t, lanes: lanes, set: set, inbox: lanes.Account.Files("inbox"),
		accepted: lanes.Account.Files("accepted"), rejected: lanes.Account.Files("rejected")}
}

// process is one process of Weir. The field faults injects storage failures into this process.
type process struct {
	*inbox.Collector
	batches *batch.Runner
	faults  *storagetest.Faults
	w       *world
}

type oneCallback struct{}

func (oneCallback) Check(address string) error {
	if !strings.HasPrefix(address, "https://hooks.example.com/") {
		return &weir.Error{Kind: weir.Invalid, Op: "callback",
			Message: "the callback is not allowed"}
	}
	return nil
}

// startProcess starts a process, which the caller must stop with stopProcess.
func (w *world) startProcess(changes ...func(*inbox.Config)) *process {
	p := &process{w: w, faults: storagetest.NewFaults()}
	store := w.lanes.FaultyStore(p.faults)
	leases := p.faults.Leases(w.lanes.Account.Leases())
	appender := lane.NewAppender(store, lanetest.Quiet)
	filer := &filing.Filer{Contracts: w.set, Callbacks: oneCallback{}, Log: appender,
		Fold: store.Fold}
	p.batches = batch.New(batch.Config{Store: store, Blobs: p.faults.Blobs(w.lanes.Account.Blobs()),
		Leases: leases,
		Lease:  leaseLength, Contracts: w.set, MaxBody: maxBody, Filer: filer, Log: appender,
		Wake: w.calls.CountWake, Refused: func(error) {}, Now: time.Now, Logger: lanetest.Quiet,
		FinishFile: func(ctx context.Context, b wire.Batch, file string) error {
			return p.FinishBatch(ctx, b, file)
		}})

	cfg := inbox.Config{Inbox: p.faults.Files(w.inbox), Accepted: p.faults.Files(w.accepted),
		Rejected: p.faults.Files(w.rejected), Leases: leases, Lease: leaseLength, Filer: filer,
		Batches:  p.batches,
		Messages: store.Messages(),
		CanSplit: len(w.set.SplitPaths()) > 0, MaxBody: maxBody, Retention: retention,
		Wake:    w.calls.CountWake,
		Refused: w.calls.CountRefusal, Now: time.Now, Logger: lanetest.Quiet}

	for _, change := range changes {
		change(&cfg)
	}

	p.Collector = inbox.New(cfg)

	return p
}

func (p *process) stopProcess() {
	p.w.Helper()
	lanetest.Close(p.w, p, p.batches)
}

// takeFiles takes the files of the inbox, as functions/sweep does.
func (p *process) takeFiles() {
	p.w.Helper()
	if err := p.Collect(p.w.Context()); err != nil {
		p.w.Errorf("collect: got %v, want no error", err)
	}
	synctest.Wait() // until the batches are processed
}

// dropFile puts a file into the inbox.
func (w *world) dropFile(name, content string) { w.dropAs(name, "", nil, content) }

func (w *world) dropAs(name, contentType string, metadata map[string]string, content string) {
	w.Helper()
	if err := w.inbox.Write(w.Context(), name, contentType, metadata, strings.NewReader(content)); err != nil {
		w.Fatal(err)
	}
}

// newArticle returns an XML message with this key. Its title is n.
func newArticle(key string, n int) string {
	return fmt.Sprintf(`<article path="%s"><title>%d</title></article>`, key, n)
}

// dayFolder is the day with which the name of a message's file in the archive begins.
var dayFolder = regexp.MustCompile(`^\d{8}/`)

// namesIn returns the sorted names of the files in a container, without the folders that Weir adds
// in the archive.
func (w *world) namesIn(files storage.Files) (names []string) {
	w.Helper()
	for marker, more := "", true; more; more = marker != "" {
		page, err := files.List(w.Context(), "", marker)
		if err != nil {
			w.Fatal(err)
		}

		for _, f := range page.Files {
			name := f.Name
			if files != storage.Files(w.inbox) {
				_, name, _ = strings.Cut(dayFolder.ReplaceAllString(name, ""), "/")
			}
			names = append(names, name)
		}

		marker = page.Next
	}

	slices.Sort(names)
	return names
}

func (w *world) checkNames(container string, files storage.Files, want ...string) {
	w.Helper()
	slices.Sort(want)
	if got := w.namesIn(files); !slices.Equal(got, want) {
		w.Errorf("%s: got the files %q, want %q", container, got, want)
	}
}

// contentOf returns the content of the file whose name ends with suffix.
func (w *world) contentOf(files storage.Files, suffix string) string {
	w.Helper()
	page, err := files.List(w.Context(), "", "")
	if err != nil {
		w.Fatal(err)
	}

	for _, f := range page.Files {
		if strings.HasSuffix(f.Name, suffix) {
			data, err := files.Read(w.Context(), f.Name, "", 0, f.Size)
			if err != nil {
				w.Fatal(err)
			}
			return string(data)
		}
	}

	w.Fatalf("got %+v, want a file %q", page.Files, suffix)

	return ""
}

// problemsOf returns the content of the problems file of an archived file.
func (w *world) problemsOf(files storage.Files, name string) (p wire.FileProblems) {
	w.Helper()
	if err := json.Unmarshal([]byte(w.contentOf(files, "/"+name+".problems.json")), &p); err !=
		nil {
		w.Fatal(err)
	}
	return p
}

// simulateWith runs f in virtual time. For split, see newWorld.
func simulateWith(t *testing.T, split string, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(newWorld(t, split)) })
}

// removeOld removes expired files, as the jobs of package upkeep do.
func (p *process) removeOld(ctx context.Context) error {
	_, _, err := p.RemoveAccepted(ctx, "")
	_, _, rejectedErr := p.RemoveRejected(ctx, "")
	return errors.Join(err, rejectedErr)
}
