package inbox_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/batch"
	"weir/internal/fold"
	"weir/internal/inbox"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
	"weir/internal/testkit/ziptest"
	"weir/internal/wire"
)

func TestCollect_TakesMessagesAndBatches(t *testing.T) {
	simulateInbox(t, func(w *world) {
		p := w.startProcess()
		defer p.stopProcess()
		w.dropFile("a.xml", newArticle("/a", 1))
		w.dropAs("deep/folder/it's ä 100% #2.txt", "text/xml; charset=utf-8", nil,
			newArticle("/b", 1))
		w.dropAs("due.xml", "application/octet-stream",
			map[string]string{"Weir_Deliver_After": "90s", "owner": "me"}, newArticle("/due", 1))
		w.dropFile("feed.xml", "<feed>"+newArticle("/f", 1)+newArticle("/f", 2)+"</feed>")
		w.dropAs("named.xml", "", map[string]string{"weir_split": "/x/y/article"},
			"<x><y>"+newArticle("/g", 1)+"</y></x>")
		w.dropFile("all.ZIP", ziptest.New(t, "one.xml", newArticle("/z", 1)))
		droppedAt := time.Now().Truncate(time.Second)
		time.Sleep(20 * time.Second)
		p.takeFiles()
		w.checkNames("inbox", w.inbox)
		w.checkNames("rejected", w.rejected)
		w.checkNames("accepted", w.accepted, "a.xml", "deep/folder/it's ä 100% #2.txt", "due.xml",
			"feed.xml", "named.xml", "all.ZIP")

		for key, want := range map[string]int{"/a": 1, "/b": 1, "/due": 1, "/f": 2,
			"/g": 1, "/z": 1} {
			if got := w.lanes.BodiesOf(key); len(got) != want {
				t.Errorf("%s: got %d messages, want %d", key, len(got), want)
			}
		}

		for _, m := range w.lanes.Messages() {
			if due := droppedAt.Add(90 * time.Second); m.Key == "/due" && !m.DueAt.Equal(due) {
				t.Errorf("got the due time %s, want %s: 90 s after the file was written",
					m.DueAt, due)
			}

			if m.Key == "/a" {
				if got := w.contentOf(w.accepted, m.Public().String()+"/a.xml"); got !=
					newArticle("/a", 1) {
					t.Errorf("got the accepted file %q, want the message under its id", got)
				}
			}
		}

		if w.calls.Wakes.Load() == 0 {
			t.Error("got no wake, want a wake of each lane with a message")
		}
	})
}

func TestCollect_KeepsTheOrderOfAKey(t *testing.T) {
	simulateInbox(t, func(w *world) {
		var processes []*process
		for range 3 {
			p := w.startProcess()
			defer p.stopProcess()
			processes = append(processes, p)
		}

		const versions, keys = 60, 5
		var want [keys][]string
		for n := range versions {
			for k := range keys {
				body := newArticle(fmt.Sprintf("/%d", k), n)
				// names that sort in the reverse order
				w.dropFile(fmt.Sprintf("%d-%03d.xml", k, versions-n), body)
				want[k] = append(want[k], body)
			}

			time.Sleep(time.Second)
		}

		var running sync.WaitGroup
		for _, p := range processes {
			running.Go(func() {
				for range 3 {
					if err := p.Collect(w.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}

		running.Wait()

		for k := range keys {
			if got := w.lanes.BodiesOf(fmt.Sprintf("/%d", k)); !slices.Equal(got, want[k]) {
				t.Errorf("key %d: got the bodies %q, want each version once, in the order of the files", k, got)
			}
		}

		w.checkNames("inbox", w.inbox)
	})
}

// The files of all spellings of a key have one order: that of their last changes.
func TestCollect_KeepsTheOrderOfSpellings(t *testing.T) {
	simulateInbox(t, func(w *world) {
		w.lanes.Store.Fold = fold.All
		p := w.startProcess()
		defer p.stopProcess()
		var want []string
		for n := range 60 {
			body := newArticle([]string{"/Café", "/cafe", "/CAFE"}[n%3], n)
			w.dropFile(fmt.Sprintf("%03d.xml", 60-n), body)
			want = append(want, body)
			time.Sleep(time.Second)
		}

		p.takeFiles()
		var got []string
		for _, m := range w.lanes.Messages() {
			got = append(got, string(m.Body))
		}

		if !slices.Equal(got, want) {
			t.Errorf("got the bodies %q, want them in the order of the files", got)
		}
	})
}

func TestCollect_OverwrittenOrDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"Read", "Transact", "Write", "Delete"} {
		t.Run(op+"/Overwritten", func(t *testing.T) {
			simulateInbox(t, func(w *world) {
				p := w.startProcess()
				defer p.stopProcess()
				w.dropFile("a.xml", newArticle("/a", 1))
				p.changeAt(op, func() { w.dropFile("a.xml", newArticle("/a", 2)) })
				p.takeFiles()
				p.takeFiles()
				want := []string{newArticle("/a", 1), newArticle("/a", 2)}
				if op == "Read" {
					want = want[1:] // the first version was replaced before the read
				}

				if got := w.lanes.BodiesOf("/a"); !slices.Equal(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}

				w.checkNames("inbox", w.inbox)
			})
		})

		t.Run(op+"/Deleted", func(t *testing.T) {
			simulateInbox(t, func(w *world) {
				p := w.startProcess()
				defer p.stopProcess()
				w.dropFile("a.xml", newArticle("/a", 1))
				p.changeAt(op, func() { _ = w.inbox.Delete(w.Context(), "a.xml", "") })
				p.takeFiles()
				want := 1
				if op == "Read" {
					want = 0
				}

				if got := len(w.lanes.BodiesOf("/a")); got != want {
					t.Errorf("got %d messages, want %d", got, want)
				}
			})
		})
	}
}

// changeAt calls the function "change" once: before the first call of the operation op on files or
// on the table.
func (p *process) changeAt(op string, change func()) {
	p.faults.Once(func(c storagetest.Call) bool {
		if c.Op != op || (c.Port != "files" && c.Port != "table") {
			return false
		}
		change()
		return true
	}, storagetest.Fault{})
}

func TestCollect_LeavesIncompleteFiles(t *testing.T) {
	simulateInbox(t, func(w *world) {
		p := w.startProcess()
		defer p.stopProcess()
		w.inbox.Append("grows.xml", []byte(`<article path="/a">`))
		w.dropFile("empty.xml", "")

		for _, name := range []string{"b.xml.part", "b.xml.FilePart", "x/b.tmp", ".b.xml",
			"x/~b.xml"} {
			w.dropFile(name, newArticle("/temporary", 1))
		}

		time.Sleep(59 * time.Second)
		p.takeFiles()
		w.inbox.Append("grows.xml", []byte(`<title>t</title></article>`))
		p.takeFiles()
		time.Sleep(59 * time.Second)
		p.takeFiles()
		if got := w.lanes.BodiesOf("/a"); len(got) != 0 {
			t.Errorf("got %q, want no message of a file that has just grown", got)
		}

		time.Sleep(time.Second)
		p.takeFiles()

		if got := w.lanes.BodiesOf("/a"); len(got) != 1 ||
			!strings.HasSuffix(got[0], "</article>") {
			t.Errorf("got %q, want one message with the whole content of the file", got)
		}

		time.Sleep(58*time.Minute - time.Second)
		p.takeFiles() // empty.xml is less than an hour old

		// a file that SFTP uploads is empty until the end
		w.dropFile("empty.xml", newArticle("/b", 1))
		p.takeFiles()
		if got := w.lanes.BodiesOf("/b"); len(got) != 1 {
			t.Errorf("got %q, want the message of the file that was empty at first", got)
		}

		w.checkNames("inbox", w.inbox, "b.xml.part", "b.xml.FilePart", "x/b.tmp", ".b.xml",
			"x/~b.xml")
		w.checkNames("rejected", w.rejected)
	})
}

func TestCollect_WaitsForTheQuietTime(t *testing.T) {
	simulateInbox(t, func(w *world) {
		p := w.startProcess(func(c *inbox.Config) { c.Quiet = 5 * time.Minute })
		defer p.stopProcess()
		w.dropFile("a.xml", newArticle("/a", 1))
		time.Sleep(5*time.Minute - time.Second)
		p.takeFiles()
		w.checkNames("inbox", w.inbox, "a.xml")
		time.Sleep(time.Second)
		p.takeFiles()
		w.checkNames("inbox", w.inbox)
	})
}

func TestCollect_BatchesWithInvalidParts(t *testing.T) {
	simulateInbox(t, func(w *world) {
		p := w.startProcess()
		defer p.stopProcess()
		feed := "<feed>" + newArticle("/a", 1) + "\n<article path='/b'/></feed>"
		w.dropFile("all.xml", feed)
		w.dropAs("valid.xml", "", map[string]string{"weir_mode": "valid"}, feed)
		p.takeFiles()
		w.checkNames("inbox", w.inbox)
		w.checkNames("accepted", w.accepted, "valid.xml", "valid.xml.problems.json")
		w.checkNames("rejected", w.rejected, "all.xml", "all.xml.problems.json")

		for files, name := range map[storage.Files]string{w.rejected: "all.xml",
			w.accepted: "valid.xml"} {
			got := w.problemsOf(files, name)
			if got.Name != name || got.Batch == "" || got.Detail == "" || len(got.Parts) != 1 ||
				got.Parts[0].Line != 2 {
				t.Errorf("%s: got %+v, want the batch and the problem of its second part in line 2",
					name, got)
			}
		}

		if got := len(w.lanes.Messages()); got != 1 {
			t.Errorf("got %d messages, want 1: the valid part of valid.xml", got)
		}
	})
}

func TestCollect_LeavesAFileThatIsTooLargeToCopy(t *testing.T) {
	simulateInbox(t, func(w *world) {
		p := w.startProcess()
		defer p.stopProcess()
		w.dropFile("large.xml", strings.Repeat("x", batch.MaxBytes+1))
		w.dropFile("small.xml", newArticle("/a", 1))
		p.takeFiles()
		p.takeFiles()
		w.checkNames("inbox", w.inbox, "large.xml")
		w.checkNames("rejected", w.rejected, "large.xml.problems.json")

		if got := w.problemsOf(w.rejected, "large.xml"); !strings.Contains(got.Detail, "remove it from the inbox") ||
			w.calls.Refusals.Load() != 1 {
			t.Errorf("got %+v and %d refusals, want 1 refusal with the request to remove the file",
				got, w.calls.Refusals.Load())
		}
	})
}

func TestRemoveExpired_AndEraseMessage(t *testing.T) {
	simulateInbox(t, func(w *world) {
		p := w.startProcess()
		defer p.stopProcess()
		w.dropFile("old.xml", newArticle("/a", 1))
		w.dropFile("bad.xml", "<article/>")
		p.takeFiles()
		time.Sleep(retention)
		w.dropFile("new.xml", newArticle("/b", 1))
		w.dropFile("erased.xml", newArticle("/c", 1))
		p.takeFiles()

		for _, m := range w.lanes.Messages() {
			if m.Key == "/c" {
				if err := p.EraseMessage(w.Context(), m.Public().String(), m.AcceptedAt); err !=
					nil {
					t.Fatal(err)
				}
			}
		}

		w.checkNames("accepted", w.accepted, "old.xml", "new.xml")
		time.Sleep(time.Second)
		if err := p.removeOld(w.Context()); err != nil {
			t.Fatal(err)
		}

		w.checkNames("accepted", w.accepted, "new.xml")
		w.checkNames("rejected", w.rejected)
	})
}

// A process dies after it has appended the message of a file, and before it has copied the file.
// The message is erased. The next run finds the message by its idempotency key. It removes the file
// from the inbox without a copy.
func TestCollect_OfAFileWhoseMessageWasErased(t *testing.T) {
	simulateInbox(t, func(w *world) {
		w.dropAs("person.xml", "", map[string]string{"weir_deliver_after": "1h"},
			newArticle("/person/1", 1))
		w.collectWithoutCopies()
		w.eraseOnlyMessage(w.startProcess())
		next := w.startProcess()
		defer next.stopProcess()
		time.Sleep(time.Minute)
		copies := 0
		next.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Port == "files" && c.Op == "Write" {
				copies++
			}
			return storagetest.Fault{}
		})

		next.takeFiles()
		w.checkNames("accepted", w.accepted)
		w.checkNames("inbox", w.inbox)
		if copies != 0 {
			t.Errorf("got %d copies of the erased content, want none", copies)
		}
	})
}

// The message is erased at any moment while a collector copies its file. The copy must not outlive
// the erasure.
func TestCollect_WhileTheMessageIsErased(t *testing.T) {
	for _, point := range []string{"before the copy", "after the copy",
		"after the file was taken"} {
		t.Run(point, func(t *testing.T) {
			simulateInbox(t, func(w *world) {
				w.dropAs("person.xml", "", map[string]string{"weir_deliver_after": "1h"},
					newArticle("/person/1", 1))
				w.collectWithoutCopies()
				eraser, next := w.startProcess(), w.startProcess()
				defer next.stopProcess()
				isErased := false
				erase := func() {
					if !isErased {
						isErased = true
						w.eraseOnlyMessage(eraser)
					}
				}

				next.faults.Set(func(c storagetest.Call) storagetest.Fault {
					switch {
					case point == "before the copy" && c.Port == "files" && c.Op == "Write",
						point == "after the copy" && len(w.namesIn(w.accepted)) > 0:
						erase()
					}
					return storagetest.Fault{}
				})

				time.Sleep(time.Minute)
				next.takeFiles()
				erase()
				if names := w.namesIn(w.accepted); len(names) > 0 {
					t.Errorf("erased %s: got the files %q, want none", point, names)
				}
			})
		})
	}
}

// collectWithoutCopies takes the files of the inbox with a process that cannot write into the
// archive.
func (w *world) collectWithoutCopies() {
	w.Helper()
	p := w.startProcess()
	defer p.stopProcess()
	p.faults.Set(func(c storagetest.Call) storagetest.Fault {
		if c.Port == "files" && c.Op == "Write" {
			return storagetest.Fault{Kind: storagetest.FailBefore}
		}
		return storagetest.Fault{}
	})

	if err := p.Collect(w.Context()); err == nil {
		w.Fatal("got no error without an archive")
	}
}

// eraseOnlyMessage cancels the only message, and erases it as functions/write does. It stops the
// process.
func (w *world) eraseOnlyMessage(p *process) {
	w.Helper()
	defer p.stopProcess()
	messages := w.lanes.Messages()
	if len(messages) != 1 {
		w.Fatalf("got %d messages, want 1", len(messages))
	}

	id := messages[0].Public()
	_, err := w.lanes.Store.Requests().Cancel(w.Context(), id)
	for _, step := range []func() error{
		func() error { return p.EraseMessage(w.Context(), id.String(), messages[0].AcceptedAt) },
		func() error { _, err := w.lanes.Store.Requests().Erase(w.Context(), id); return err },
		func() error { return p.EraseMessage(w.Context(), id.String(), messages[0].AcceptedAt) },
	} {
		if err == nil {
			err = step()
		}
	}

	if err != nil {
		w.Fatal(err)
	}
}

func TestFinishBatch_OfAFileThatRetentionRemoved(t *testing.T) {
	simulateInbox(t, func(w *world) {
		p := w.startProcess()
		defer p.stopProcess()
		err := p.FinishBatch(w.Context(),
			wire.Batch{ID: "b", State: wire.BatchRejected, Reason: "why"}, "folder/a.xml")
		if err != nil {
			t.Errorf("got %v, want no error", err)
		}

		w.checkNames("rejected", w.rejected, "a.xml.problems.json")
	})
}
