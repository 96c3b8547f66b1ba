package inbox_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/batch"
	"weir/internal/filing"
	"weir/internal/inbox"
	"weir/internal/storage"
	"weir/internal/weir"
	"weir/internal/wire"
)

// crowdedFiles lists many waiting files between two real ones, whose names sort first and last. The
// other files are newer than the real ones, and cannot be read.
type crowdedFiles struct {
	storage.Files
	pages int
	since time.Time
}

// List implements storage.Files.
func (c crowdedFiles) List(ctx context.Context, prefix, marker string) (storage.FilePage, error) {
	if prefix != "" {
		return c.Files.List(ctx, prefix, marker)
	}

	page, err := c.Files.List(ctx, prefix, "")
	if err != nil {
		return page, err
	}

	var number int
	fmt.Sscanf(marker, "%d", &number)
	isReal := func(name string) bool {
		return number == 0 && strings.HasPrefix(name, "a") ||
			number == c.pages && strings.HasPrefix(name, "z")
	}

	page.Files = slices.DeleteFunc(page.Files, func(f storage.File) bool { return !isReal(f.Name) })
	for n := range 1000 {
		page.Files = append(page.Files,
			storage.File{Name: fmt.Sprintf("m%03d-%04d.xml", number, n), ETag: "1", Size: 1,
				ModifiedAt: c.since})
	}

	if number < c.pages {
		page.Next = fmt.Sprint(number + 1)
	}

	return page, nil
}

// More files wait than a run keeps in memory. The older file of a key must come first, although its
// name sorts behind the names of all of them.
func TestCollect_TakesTheOldestOfManyFilesFirst(t *testing.T) {
	simulateInbox(t, func(w *world) {
		w.dropFile("z.xml", newArticle("/a", 1))
		time.Sleep(time.Second)
		w.dropFile("a.xml", newArticle("/a", 2))
		time.Sleep(time.Second)
		p := w.startProcess(func(cfg *inbox.Config) { cfg.Inbox = crowdedFiles{cfg.Inbox, 45, time.Now()} })
		defer p.stopProcess()
		p.takeFiles()
		want := []string{newArticle("/a", 1), newArticle("/a", 2)}
		if got := w.lanes.BodiesOf("/a"); !slices.Equal(got, want) {
			t.Errorf("got the messages %q, want %q", got, want)
		}
	})
}

// longBatches needs 40 s to accept a batch, which is most of a run.
type longBatches struct{ inbox.Batches }

// Accept implements inbox.Batches.
func (b longBatches) Accept(ctx context.Context, s batch.Spec, body io.Reader) (wire.Batch, error) {
	select {
	case <-time.After(40 * time.Second):
		return b.Batches.Accept(ctx, s, body)
	case <-ctx.Done():
		return wire.Batch{}, ctx.Err()
	}
}

// slowContracts needs 10 s to parse a body, so a run takes some tens of files.
type slowContracts struct{ filing.Contracts }

// Accept implements filing.Contracts.
func (c slowContracts) Accept(ctx context.Context, contentType string,
	body []byte) (weir.Message, error) {
	time.Sleep(10 * time.Second)
	return c.Contracts.Accept(ctx, contentType, body)
}

// Each run has more files than it can take. A batch that was postponed must have its turn all the
// same.
func TestCollect_APostponedBatchDoesNotStarve(t *testing.T) {
	simulateInbox(t, func(w *world) {
		p := w.startProcess(func(cfg *inbox.Config) {
			filer := *cfg.Filer
			filer.Contracts = slowContracts{filer.Contracts}
			cfg.Filer, cfg.Batches = &filer, longBatches{cfg.Batches}
		})
		defer p.stopProcess()
		w.dropAs("0.xml", "", map[string]string{"weir_split": "/feed/article"},
			"<feed>"+newArticle("/f", 1)+"</feed>")

		for minute := range 30 {
			for n := range 80 {
				w.dropFile(fmt.Sprintf("%02d-%02d.xml", minute+1, n),
					newArticle(fmt.Sprint("/", n), minute))
			}

			began := time.Now()
			p.takeFiles()
			time.Sleep(time.Minute - time.Since(began))
		}

		if got := w.namesIn(w.inbox); slices.Contains(got, "0.xml") || len(got) < 80 {
			t.Errorf("after half an hour the inbox has %d files, and the batch: %v; want a full inbox without it",
				len(got), slices.Contains(got, "0.xml"))
		}
	})
}
