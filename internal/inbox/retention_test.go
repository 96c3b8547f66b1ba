package inbox_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/internal/inbox"
	"weir/internal/storage"
)

// countedFiles counts the listings of a container. After maxLists listings, each call fails.
type countedFiles struct {
	storage.Files
	lists, maxLists int
}

func (c *countedFiles) List(ctx context.Context, prefix, marker string) (storage.FilePage, error) {
	if c.lists++; c.maxLists > 0 && c.lists > c.maxLists {
		return storage.FilePage{},
			&storage.Error{Op: "file list", Kind: storage.Unavailable, Index: -1}
	}
	return c.Files.List(ctx, prefix, marker)
}

// putArchived writes a file into the archive as an earlier run did.
func (w *world) putArchived(name string) {
	if err := w.accepted.Write(w.Context(), name, "application/xml", nil, strings.NewReader("<a/>")); err != nil {
		w.Fatal(err)
	}
}

// listAccepted returns the names of all accepted files.
func (w *world) listAccepted() (names []string) {
	for marker, more := "", true; more; more = marker != "" {
		page, err := w.accepted.List(w.Context(), "", marker)
		if err != nil {
			w.Fatal(err)
		}

		for _, f := range page.Files {
			names = append(names, f.Name)
		}

		marker = page.Next
	}

	return names
}

// The walk over an archive ends at the first young file: the cost does not depend on the number of
// young files.
func TestRemoveAccepted_EndsAtTheFirstYoungFile(t *testing.T) {
	simulateInbox(t, func(w *world) {
		for i := range 2500 {
			w.putArchived(fmt.Sprintf("%s/id%04d/a.xml", time.Now().UTC().Format("20060102"), i))
		}

		time.Sleep(retention + 24*time.Hour)
		for i := range 5000 {
			w.putArchived(fmt.Sprintf("%s/id%04d/a.xml", time.Now().UTC().Format("20060102"), i))
		}

		counted := &countedFiles{Files: w.accepted}
		p := w.startProcess(func(cfg *inbox.Config) { cfg.Accepted = counted })
		defer p.stopProcess()

		_, isDone, err := p.RemoveAccepted(w.Context(), "")
		if err != nil || !isDone {
			t.Errorf("got done %v, %v; want true and no error", isDone, err)
		}

		if left := len(w.listAccepted()); left != 5000 {
			t.Errorf("got %d files left, want the 5000 young ones", left)
		}

		if counted.lists > 3+1+1 {
			t.Errorf("got %d listings, want 3 with old files, and one of the markers",
				counted.lists)
		}
	})
}

// A walk that is cut off goes on at its marker, and reaches its end.
func TestRemoveAccepted_GoesOnAtItsMarker(t *testing.T) {
	simulateInbox(t, func(w *world) {
		for i := range 4500 {
			w.putArchived(fmt.Sprintf("20000101/id%04d/a.xml", i))
		}

		w.putArchived("left/a.xml")
		time.Sleep(retention + 24*time.Hour)
		counted := &countedFiles{Files: w.accepted}
		p := w.startProcess(func(cfg *inbox.Config) { cfg.Accepted = counted })
		defer p.stopProcess()

		marker, calls := "", 0
		for isDone := false; !isDone; calls++ {
			counted.lists, counted.maxLists = 0, 2
			var err error
			if marker, isDone, err = p.RemoveAccepted(w.Context(), marker); isDone ==
				(err != nil) || calls > 40 {
				t.Fatalf("call %d: got done %v, %v", calls, isDone, err)
			}
		}

		if left := w.listAccepted(); len(left) != 0 {
			t.Errorf("got %d files left, want none", len(left))
		}
	})
}

// An erasure finds the file of a message by the day of its acceptance.
func TestEraseMessage_RemovesTheFile(t *testing.T) {
	simulateInbox(t, func(w *world) {
		p := w.startProcess()
		defer p.stopProcess()
		w.dropFile("a.xml", newArticle("/a", 1))
		w.dropFile("b.xml", newArticle("/b", 1))
		p.takeFiles()

		for _, m := range w.lanes.Messages() {
			if m.Key != "/a" {
				continue
			}
			if err := p.EraseMessage(w.Context(), m.Public().String(), m.AcceptedAt); err != nil {
				t.Fatal(err)
			}
		}

		w.checkNames("accepted", w.accepted, "b.xml")
	})
}
