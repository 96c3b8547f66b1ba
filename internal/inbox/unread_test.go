package inbox_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"weir/internal/inbox"
	"weir/internal/storage"
	"weir/internal/storage/denial"
	"weir/internal/storage/storagetest"
	"weir/internal/testkit/ziptest"
)

// encodedFiles lists each file whose name ends with .gz with the Content-Encoding gzip, as a writer
// can upload it.
type encodedFiles struct{ storage.Files }

// List implements storage.Files.
func (e encodedFiles) List(ctx context.Context, prefix, marker string) (storage.FilePage, error) {
	page, err := e.Files.List(ctx, prefix, marker)
	for i := range page.Files {
		if strings.HasSuffix(page.Files[i].Name, ".gz") {
			page.Files[i].ContentEncoding = "gzip"
		}
	}
	return page, err
}

// A compressed file is taken as its content, as a message or as a batch, and the archive has it as
// it came. A file that is not compressed as it says is rejected, and the others are taken.
func TestCollect_UnpacksGzip(t *testing.T) {
	simulateInbox(t, func(w *world) {
		p := w.startProcess(func(c *inbox.Config) { c.Inbox = encodedFiles{c.Inbox} })
		defer p.stopProcess()
		w.dropFile("0.xml.gz", "\x1f\x8b\x08 no XML")
		w.dropAs("1.zip.gz", "application/zip", nil, "\x1f\x8b\x08 no zip")
		w.dropFile("2.xml", newArticle("/a", 2))
		w.dropFile("3.xml.gz", gzipped(newArticle("/b", 3)))
		p.takeFiles()
		w.checkNames("inbox", w.inbox)
		w.checkNames("accepted", w.accepted, "2.xml", "3.xml.gz")

		if messages := w.lanes.MessagesOf("/b"); len(messages) != 1 ||
			string(messages[0].Body) != newArticle("/b", 3) {
			t.Errorf("got %v, want one message with the unpacked file", messages)
		}

		w.checkNames("rejected", w.rejected, "0.xml.gz", "0.xml.gz.problems.json", "1.zip.gz",
			"1.zip.gz.problems.json")

		for _, name := range []string{"0.xml.gz", "1.zip.gz"} {
			if got := w.problemsOf(w.rejected, name); !strings.Contains(got.Detail, "gzip") ||
				got.Name != name {
				t.Errorf("%s: got the problems %+v, want its name and its Content-Encoding", name,
					got)
			}
		}
	})
}

func gzipped(text string) string { return string(ziptest.Gzip(text)) }

// A bomb, as a message and as a batch, is rejected by its reason, and the others are taken.
func TestCollect_RejectsBombs(t *testing.T) {
	simulateInbox(t, func(w *world) {
		p := w.startProcess(func(c *inbox.Config) { c.Inbox = encodedFiles{c.Inbox} })
		defer p.stopProcess()
		const spaces = 8 << 20
		w.dropFile("0.xml.gz", string(ziptest.Bomb()))
		w.dropFile("1.xml.gz", gzipped("<feed>"+strings.Repeat(" ", spaces)+newArticle("/a", 1)+"</feed>"))
		w.dropAs("2.zip.gz", "application/zip", nil, gzipped("PK\x03\x04"+strings.Repeat("\x00", spaces)))
		w.dropFile("3.xml.gz", gzipped("<feed>"+newArticle("/b", 3)+newArticle("/c", 4)+"</feed>"))
		p.takeFiles()
		w.checkNames("inbox", w.inbox)
		w.checkNames("accepted", w.accepted, "3.xml.gz")

		for _, key := range []string{"/b", "/c"} {
			if got := len(w.lanes.MessagesOf(key)); got != 1 {
				t.Errorf("got %d messages of %s, want 1", got, key)
			}
		}

		for _, name := range []string{"0.xml.gz", "1.xml.gz", "2.zip.gz"} {
			if got := w.problemsOf(w.rejected, name).Detail; !strings.Contains(got,
				"unpacks to more than 200 times its size") {
				t.Errorf("%s: got the reason %q, want the ratio", name, got)
			}
		}
	})
}

// failReadsOf makes the reads of a file in the inbox fail.
func (p *process) failReadsOf(name string, kind storage.Kind) {
	p.faults.Set(func(c storagetest.Call) storagetest.Fault {
		if c.Port != "files" || c.Op != "Read" || c.Key != name {
			return storagetest.Fault{}
		}
		return storagetest.Fault{Kind: storagetest.FailBefore,
			Err: &storage.Error{Op: "file read", Kind: kind, Index: -1, Code: "409 BlobArchived"}}
	})
}

// runMinutes takes files each minute, as the sweep does. Errors of the runs are expected.
func (p *process) runMinutes(n int) {
	for range n {
		_ = p.Collect(p.w.Context())
		time.Sleep(time.Minute)
	}
}

// Storage does not return one file, for good. The others are taken, the problems file has the
// reason, and the file is taken once it can be read.
func TestCollect_PassesOverAFileThatStorageDoesNotReturn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind    storage.Kind
		minutes int // after which the other files are taken
	}{
		"Archived": {storage.Unreadable, 1},
		// The reads of a run have no order: those of the first two runs can all precede the read of
		// bad.xml in the first run and follow it in the second. Then the third run has a read of
		// another file between two of bad.xml.
		"Denied":      {storage.Denied, 3},
		"Unavailable": {storage.Unavailable, 5},
	} {
		t.Run(name, func(t *testing.T) {
			simulateInbox(t, func(w *world) {
				p := w.startProcess(func(cfg *inbox.Config) { cfg.Inbox = denial.Files(cfg.Inbox) })
				defer p.stopProcess()
				p.failReadsOf("bad.xml", c.kind)
				w.dropFile("bad.xml", newArticle("/bad", 1))
				w.dropFile("feed.xml", "<feed>"+newArticle("/f", 1)+"</feed>")
				w.dropFile("good.xml", newArticle("/good", 1))
				p.runMinutes(c.minutes)
				w.checkNames("inbox", w.inbox, "bad.xml")
				w.checkNames("accepted", w.accepted, "feed.xml", "good.xml")
				w.checkNames("rejected", w.rejected, "bad.xml.problems.json")

				if got := w.problemsOf(w.rejected, "bad.xml").Detail; !strings.Contains(got,
					"409 BlobArchived") {
					t.Errorf("got the reason %q, want storage's answer", got)
				}

				w.dropFile("later.xml", newArticle("/later", 1))
				p.runMinutes(1)
				w.checkNames("accepted", w.accepted, "feed.xml", "good.xml", "later.xml")
				p.faults.Set(nil)
				p.runMinutes(1)
				w.checkNames("accepted", w.accepted, "bad.xml", "feed.xml", "good.xml", "later.xml")
			})
		})
	}
}

// A batch is read when it is copied. Storage does not return its file, and the others are taken.
func TestCollect_PassesOverABatchThatStorageDoesNotReturn(t *testing.T) {
	simulateInbox(t, func(w *world) {
		p := w.startProcess()
		defer p.stopProcess()
		p.failReadsOf("bad.zip", storage.Unreadable)
		w.dropAs("bad.zip", "application/zip", nil, "PK")
		w.dropFile("good.xml", newArticle("/good", 1))
		p.takeFiles()
		w.checkNames("inbox", w.inbox, "bad.zip")
		w.checkNames("accepted", w.accepted, "good.xml")
		w.checkNames("rejected", w.rejected, "bad.zip.problems.json")
	})
}

// If storage denies all reads, the run ends: the process lacks its role.
func TestCollect_EndsIfStorageDeniesAllReads(t *testing.T) {
	simulateInbox(t, func(w *world) {
		p := w.startProcess(func(cfg *inbox.Config) { cfg.Inbox = denial.Files(cfg.Inbox) })
		defer p.stopProcess()
		p.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Op != "Read" {
				return storagetest.Fault{}
			}
			return storagetest.Fault{Kind: storagetest.FailBefore,
				Err: &storage.Error{Op: "file read", Kind: storage.Denied, Index: -1}}
		})

		w.dropFile("1.xml", newArticle("/a", 1))
		w.dropFile("2.xml", newArticle("/b", 1))

		if err := p.Collect(w.Context()); !storage.Is(err, storage.Denied) ||
			!strings.Contains(err.Error(), "1.xml") {
			t.Errorf("got %v, want the run to end with the name of the file", err)
		}

		w.checkNames("inbox", w.inbox, "1.xml", "2.xml")
		w.checkNames("rejected", w.rejected)
	})
}
