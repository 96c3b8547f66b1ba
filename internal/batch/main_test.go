package batch_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/textproto"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"weir/internal/batch"
	"weir/internal/contract"
	"weir/internal/filing"
	"weir/internal/lane"
	"weir/internal/storage/storagetest"
	"weir/internal/testkit/lanetest"
	"weir/internal/weir"
	"weir/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	leaseLength = 15 * time.Second
	maxBody     = 64 << 10
)

// world is a storage account that the processes of a test share.
type world struct {
	*testing.T
	lanes *lanetest.Lanes
	set   *contract.Set
	calls lanetest.Calls
}

func simulate(t *testing.T, f func(w *world)) {
	t.Helper()
	lanetest.Simulate(t, func(t *testing.T) {
		set, err := contract.New(
			[]contract.Definition{{Name: "article", Root: "article",
				Key: contract.KeyPaths{"./@path"}, Split: "/feed/article",
				Fields: []contract.Field{{Path: "./title", Rule: "required"}}}},
			contract.Limits{MaxBody: maxBody})
		if err != nil {
			t.Fatal(err)
		}

		f(&world{T: t, lanes: lanetest.New(t, 3), set: set})
	})
}

// process is a process of Weir. The field faults can make the process's calls to storage fail.
type process struct {
	*batch.Runner
	w      *world
	faults *storagetest.Faults
}

// startProcess starts a process, which the test must stop or kill.
func (w *world) startProcess() *process {
	p := &process{w: w, faults: storagetest.NewFaults()}
	store := w.lanes.FaultyStore(p.faults)
	p.Runner = batch.New(batch.Config{Store: store, Blobs: p.faults.Blobs(w.lanes.Account.Blobs()),
		Leases: p.faults.Leases(w.lanes.Account.Leases()), Lease: leaseLength, Contracts: w.set,
		MaxBody: maxBody,
		Filer:   &filing.Filer{Contracts: w.set}, Log: lane.NewAppender(store, lanetest.Quiet),
		Wake: w.calls.CountWake, Refused: w.calls.CountRefusal, Now: time.Now,
		Logger: lanetest.Quiet})

	return p
}

func (p *process) stop() {
	p.w.Helper()
	lanetest.Close(p.w, p)
}

// kill ends the process as SIGKILL does: no further call of the process reaches storage.
func (p *process) kill() {
	p.faults.Set(func(storagetest.Call) storagetest.Fault { return storagetest.Fault{Kind: storagetest.FailBefore} })
	p.stop()
}

// accept posts a batch. If s has no mode, the mode is "all".
func (p *process) accept(s batch.Spec, document string) wire.Batch {
	p.w.Helper()
	if s.Mode == "" {
		s.Mode = wire.BatchAll
	}

	b, err := p.Accept(p.w.Context(), s, strings.NewReader(document))
	if err != nil {
		p.w.Fatal(err)
	}

	return b
}

func (p *process) awaitFinal(id string) wire.Batch {
	p.w.Helper()
	for began := time.Now(); time.Since(began) < time.Hour; time.Sleep(time.Second) {
		b, err := p.Get(p.w.Context(), id)
		if err != nil {
			p.w.Fatal(err)
		}

		if b.IsFinal() {
			synctest.Wait() // wait until the document is removed, too
			return b
		}
	}

	p.w.Fatalf("batch %s: got no final state within an hour, want one", id)
	return wire.Batch{}
}

// newArticle returns an article with a key. Its title is n.
func newArticle(key string, n int) string {
	return fmt.Sprintf(`<article path="%s"><title>%d</title></article>`, key, n)
}

// newFeed returns a document with n articles, whose titles are 0 to n-1. The articles get the keys
// in rotation.
func newFeed(n int, keys ...string) string {
	var b strings.Builder
	b.WriteString("<feed>")
	for i := range n {
		b.WriteString(newArticle(keys[i%len(keys)], i))
	}

	b.WriteString("</feed>")
	return b.String()
}

// idOf returns the id of a key's message n, counted from 0.
func (w *world) idOf(key string, n int) weir.ID {
	w.Helper()
	messages := w.lanes.MessagesOf(key)
	if n >= len(messages) {
		w.Fatalf("%s: got %d messages, want at least %d", key, len(messages), n+1)
	}
	return messages[n].ID
}

func (w *world) countAll() (n int) {
	w.Helper()
	for number := range w.lanes.Store.Lanes {
		n += int(w.lanes.Control(number).Head.Next) - 1
	}
	return n
}

// blobNames returns the names on the first page of the account's blobs, which is enough for these
// tests.
func (w *world) blobNames() (names []string) {
	w.Helper()
	page, err := w.lanes.Account.Blobs().List(w.Context(), "", "")
	if err != nil {
		w.Fatal(err)
	}

	for _, b := range page.Infos {
		names = append(names, b.Name)
	}

	return names
}

// checkEachOnce checks that each part of newFeed(n, keys...) has become exactly one message, in
// order per key.
func (w *world) checkEachOnce(n int, keys ...string) {
	w.Helper()
	for k, key := range keys {
		var want []string
		for i := k; i < n; i += len(keys) {
			want = append(want, newArticle(key, i))
		}

		if got := w.lanes.BodiesOf(key); !slices.Equal(got, want) {
			w.Errorf("messages of %s: got %d %.300q, want %d %.300q", key, len(got), got,
				len(want), want)
		}
	}
}

// multipartOf returns a multipart body and its Content-Type. files has the name and the content of
// each file, in turn.
func multipartOf(t testing.TB, files ...string) (contentType, body string) {
	t.Helper()
	var b bytes.Buffer
	m := multipart.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		f, err := m.CreatePart(textproto.MIMEHeader{"Content-Type": {"application/xml"},
			"Content-Disposition": {fmt.Sprintf(`form-data; name="file"; filename=%q`, files[i])}})
		if err == nil {
			_, err = io.WriteString(f, files[i+1])
		}

		if err != nil {
			t.Fatal(err)
		}
	}

	if err := m.Close(); err != nil {
		t.Fatal(err)
	}

	return m.FormDataContentType(), b.String()
}

// kindOf returns the kind of an error, or -1 if the error is not a *weir.Error.
func kindOf(err error) weir.Kind {
	var e *weir.Error
	if !errors.As(err, &e) {
		return -1
	}
	return e.Kind
}

// removeOld removes expired batches, as the jobs of package upkeep do.
func removeOld(ctx context.Context, r *batch.Runner) error {
	_, err := r.RemoveExpired(ctx)
	_, _, walkErr := r.RemoveDocuments(ctx, "")
	return errors.Join(err, walkErr)
}
