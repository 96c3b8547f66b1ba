package batch_test

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"weir/internal/batch"
	"weir/internal/fold"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
	"weir/internal/testkit/ziptest"
	"weir/internal/weir"
	"weir/internal/wire"
)

func TestBatch_FilesEachPartOnceInOrder(t *testing.T) {
	simulate(t, func(w *world) {
		p := w.startProcess()
		defer p.stop()
		keys := []string{"/a", "/b", "/c", "/d"}
		b := p.accept(batch.Spec{}, newFeed(950, keys...))
		if b.State != wire.BatchChecking || b.Parts != 0 || b.Mode != wire.BatchAll ||
			b.Format != wire.BatchXML {
			t.Errorf("accepted: got %+v, want state checking, no parts, mode all and format xml", b)
		}

		got := p.awaitFinal(b.ID)
		if got.State != wire.BatchFiled || got.Parts != 950 || got.Filed != 950 ||
			got.Invalid != 0 ||
			got.Stages[weir.Queued] != 950 || got.FinishedAt.IsZero() {
			t.Errorf("got %+v, want 950 parts filed and queued", got)
		}

		w.checkEachOnce(950, keys...)

		if st := w.lanes.Status(w.idOf("/b", 1)); st.Message.Batch != b.ID ||
			st.Message.BatchPart != 6 {
			t.Errorf("the second message of /b: got part %d of batch %q, want part 6 of %s",
				st.Message.BatchPart, st.Message.Batch, b.ID)
		}

		if w.calls.Wakes.Load() == 0 {
			t.Error("got no wake, want a wake of each lane with a message")
		}

		for _, name := range w.blobNames() {
			if strings.Contains(name, "/document/") {
				t.Errorf("got the blob %s, want no blob of the document", name)
			}
		}
	})
}

// The parts of all spellings of a key have one order: that of the document.
func TestBatch_FilesSpellingsInOrder(t *testing.T) {
	simulate(t, func(w *world) {
		w.lanes.Store.Fold = fold.All
		p := w.startProcess()
		defer p.stop()
		keys := []string{"/news/Café", "/News/cafe", "/NEWS/CAFE", "/other"}
		p.awaitFinal(p.accept(batch.Spec{}, newFeed(400, keys...)).ID)
		var got []string
		for _, m := range w.lanes.Messages() {
			if m.Key != "/other" {
				got = append(got, string(m.Body))
			}
		}

		var want []string
		for i := range 400 {
			if i%4 != 3 {
				want = append(want, newArticle(keys[i%4], i))
			}
		}

		if !slices.Equal(got, want) {
			t.Errorf("got the parts %q, want those of all spellings in the order of the document",
				got)
		}
	})
}

func TestBatch_Modes(t *testing.T) {
	t.Parallel()
	document := "<feed>\n" + newArticle("/a", 1) + "\n<article path='/b'><title/>\n</article>\n" +
		newArticle("/a", 2) + "</feed>"

	for mode, want := range map[wire.BatchMode]struct {
		state wire.BatchState
		filed int
	}{wire.BatchAll: {wire.BatchRejected, 0}, wire.BatchValid: {wire.BatchFiled, 2}} {
		t.Run(string(mode), func(t *testing.T) {
			simulate(t, func(w *world) {
				p := w.startProcess()
				defer p.stop()
				got := p.awaitFinal(p.accept(batch.Spec{Mode: mode}, document).ID)
				if got.State != want.state || got.Filed != want.filed || got.Parts != 3 ||
					got.Invalid != 1 ||
					w.countAll() != want.filed || w.calls.Refusals.Load() != 1 {
					t.Errorf("got %+v and %d messages, want %+v", got, w.countAll(), want)
				}

				if len(got.Problems) != 1 || got.Problems[0].Part != 2 ||
					got.Problems[0].Line != 3 ||
					got.Problems[0].Problems[0].Path != "./title" {
					t.Errorf("got problems %+v, want one of part 2 in line 3", got.Problems)
				}
			})
		})
	}
}

func TestBatch_ZipAndMultipart(t *testing.T) {
	t.Parallel()
	files := []string{"1.xml", newArticle("/a", 0), "dir/2.xml", newArticle("/b", 1), "3.xml",
		newArticle("/a", 2)}
	form, body := multipartOf(t, files...)
	for name, c := range map[string]struct{ contentType, body string }{
		"zip":       {"application/zip", ziptest.New(t, append([]string{"dir/", ""}, files...)...)},
		"multipart": {form, body}} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(w *world) {
				p := w.startProcess()
				defer p.stop()
				got := p.awaitFinal(p.accept(batch.Spec{ContentType: c.contentType}, c.body).ID)
				if got.State != wire.BatchFiled || got.Filed != 3 {
					t.Errorf("got %+v, want three parts filed", got)
				}

				if bodies := w.lanes.BodiesOf("/a"); !slices.Equal(bodies,
					[]string{files[1], files[5]}) {
					t.Errorf("messages of /a: got %q, want the first and the third file", bodies)
				}
			})
		})
	}
}

// If a batch has split paths, each file of its zip is split into parts. The problem of a part names
// the part's file.
func TestBatch_SplitZip(t *testing.T) {
	simulate(t, func(w *world) {
		p := w.startProcess()
		defer p.stop()
		got := p.awaitFinal(p.accept(batch.Spec{ContentType: "application/zip", Mode: wire.BatchValid,
			Split: []string{"/feed/article"}},
			ziptest.New(t, "1.xml", newFeed(3, "/a"), "2.xml", "<feed>\n<article/></feed>")).ID)
		if got.Parts != 4 || got.Filed != 3 || len(got.Problems) != 1 ||
			got.Problems[0].File != "2.xml" ||
			got.Problems[0].Part != 4 || got.Problems[0].Line != 2 {
			t.Errorf("got %+v, want three parts filed and a problem in line 2 of 2.xml", got)
		}
	})
}

// Accept refuses each batch, and leaves neither a blob nor a row.
func TestAccept_Refuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec batch.Spec
		body io.Reader
		kind weir.Kind
	}{
		"Empty": {batch.Spec{}, strings.NewReader(""), weir.Malformed},
		"JSON": {batch.Spec{ContentType: "application/json"}, strings.NewReader("{}"),
			weir.Unsupported},
		"NoType": {batch.Spec{ContentType: ";"}, strings.NewReader("<a/>"), weir.Unsupported},
		"NoBoundary": {batch.Spec{ContentType: "multipart/mixed"}, strings.NewReader("--"),
			weir.Unsupported},
		"NotAZip": {batch.Spec{ContentType: "application/zip"}, strings.NewReader("<feed/>"),
			weir.Unsupported},
		"GzipAsMultipart": {batch.Spec{ContentType: "multipart/mixed; boundary=b"},
			strings.NewReader("\x1f\x8b\x08\x00"), weir.Unsupported},
		"ZipAsXML": {batch.Spec{}, strings.NewReader(ziptest.New(t, "a.xml", newArticle("/a", 1))),
			weir.Unsupported},
		"Gzip": {batch.Spec{}, strings.NewReader("\x1f\x8b\x08\x00"), weir.Unsupported},
		"UnknownCharset": {batch.Spec{ContentType: "text/xml; charset=utf-7"},
			strings.NewReader("<feed/>"), weir.Unsupported},
		"UnknownEncoding": {batch.Spec{},
			strings.NewReader("<?xml version='1.0' encoding='UTF-7'?><feed/>"), weir.Unsupported},
		"NoXML":     {batch.Spec{}, strings.NewReader("hello"), weir.Malformed},
		"JSONAsXML": {batch.Spec{}, strings.NewReader(`{"a":1}`), weir.Malformed},
		"OnlySpace": {batch.Spec{}, strings.NewReader("  \n"), weir.Malformed},
		"DocumentType": {batch.Spec{}, strings.NewReader("<!DOCTYPE feed []><feed/>"),
			weir.Malformed},
		"NotUTF16": {batch.Spec{},
			strings.NewReader("<?xml version='1.0' encoding='utf-16'?><feed/>"), weir.Malformed},
		"PathMalformed": {batch.Spec{Split: []string{"/a["}}, strings.NewReader("<a/>"),
			weir.Invalid},
		"PathOfZip": {batch.Spec{ContentType: "application/zip", Split: []string{"//"}},
			strings.NewReader("PK"), weir.Invalid},
		"TooLarge": {batch.Spec{}, io.MultiReader(strings.NewReader("<feed>"),
			io.LimitReader(repeat(' '), batch.MaxBytes+1)), weir.TooLarge},
		"ClientIsGone": {batch.Spec{}, iotest.ErrReader(&weir.Error{Kind: weir.Malformed}),
			weir.Malformed},
		"ClientGoesInTheMiddle": {batch.Spec{}, io.MultiReader(strings.NewReader("<feed>"),
			io.LimitReader(repeat(' '), 3<<20),
			iotest.ErrReader(&weir.Error{Kind: weir.Malformed})), weir.Malformed},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(w *world) {
				p := w.startProcess()
				defer p.stop()
				b, err := p.Accept(w.Context(), c.spec, c.body)
				if kindOf(err) != c.kind {
					t.Errorf("got %+v, %v, want kind %d", b, err, c.kind)
				}

				if names := w.blobNames(); len(names) > 0 {
					t.Errorf("got the blobs %v, want none", names)
				}

				if all, err := p.List(w.Context()); err != nil || len(all) > 0 {
					t.Errorf("got batches %+v, %v, want none", all, err)
				}
			})
		})
	}
}

// repeat is an endless reader of one byte value.
type repeat byte

// Read implements io.Reader.
func (r repeat) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(r)
	}
	return len(p), nil
}

// Accept takes each batch. The later check of the parts rejects the whole batch, so no part becomes
// a message.
func TestBatch_Rejects(t *testing.T) {
	t.Parallel()
	form, body := multipartOf(t, "a.xml", newArticle("/a", 1))
	zipped := ziptest.New(t, "a.xml", newArticle("/a", 1))
	for name, c := range map[string]struct{ contentType, body, reason string }{
		"NotClosed": {"", "<feed>" + newArticle("/a", 1), "not closed"},
		"CutOff":    {"", "<feed>" + newArticle("/a", 1) + "<article", ""},
		"LateDocumentType": {"", "<feed>" + newArticle("/a", 1) + "</feed><!DOCTYPE feed>",
			"document type"},
		"NoPart":     {"", "<feed/>", "has no part"},
		"OtherRoot":  {"", "<news>" + newArticle("/a", 1) + "</news>", "has no part"},
		"AllInvalid": {"", "<feed><article/></feed>", "no part is valid"},
		"OneInvalid": {"", "<feed><article/>" + newArticle("/a", 1) + "</feed>", "1 of 2"},
		"PartTooLarge": {"", "<feed>" + newArticle("/a", 1) + "<article path='/b'><title>" +
			strings.Repeat("<x/>", maxBody) + "</title></article></feed>", "1 of 2"},
		"NoZip":            {"application/zip", "PK hello", "zip"},
		"ZipCutOff":        {"application/zip", zipped[:len(zipped)-10], "zip"},
		"EmptyZip":         {"application/zip", ziptest.New(t), "has no part"},
		"ZipOfDirectories": {"application/zip", ziptest.New(t, "a/", ""), "has no part"},
		"ZipOfText": {"application/zip", ziptest.New(t, "a.txt", "hello"),
			"no part is valid"},
		"ZipDamaged": {"application/zip",
			strings.Replace(zipped, zipped[40:44], "\xff\xff\xff\xff", 1), "no part is valid"},
		"ZipBomb": {"application/zip", ziptest.New(t, "a.xml", "<a>"+strings.Repeat(" ", 8<<20)),
			"no part is valid"},
		"ZipOfZip": {"application/zip", ziptest.New(t, "a.zip", zipped),
			"no part is valid"},
		"ZipWithEmptyFile": {"application/zip", ziptest.New(t, "a.xml", ""), "no part is valid"},
		"NoMultipart":      {form, "hello", "has no part"},
		"MultipartCutOff":  {form, body[:len(body)-20], "multipart"},
		"MultipartNoParts": {"multipart/mixed; boundary=x", "--x--\r\n", "has no part"},
		"MultipartOther":   {"multipart/mixed; boundary=other", body, "has no part"},
		"MultipartOfJSON": {"multipart/mixed; boundary=x",
			"--x\r\nContent-Type: application/json\r\n\r\n{}\r\n--x--\r\n", "no part is valid"},
		"MultipartTwoBodies": {"multipart/mixed; boundary=x",
			"--x\r\n\r\n" + newArticle("/a", 1) + "<b/>\r\n--x--\r\n", "no part is valid"},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(w *world) {
				p := w.startProcess()
				defer p.stop()
				got := p.awaitFinal(p.accept(batch.Spec{ContentType: c.contentType}, c.body).ID)
				if got.State != wire.BatchRejected || !strings.Contains(got.Reason, c.reason) ||
					got.Filed != 0 ||
					got.FinishedAt.IsZero() || w.countAll() != 0 {
					t.Errorf("got %+v and %d messages, want a rejected batch with the reason %q and no message", got,
						w.countAll(), c.reason)
				}
			})
		})
	}
}

// A post with a used Idempotency-Key and the same document returns the earlier batch. With another
// document or another mode, the post is refused. The key of a rejected batch can be used for a new
// batch.
func TestAccept_Idempotency(t *testing.T) {
	simulate(t, func(w *world) {
		p := w.startProcess()
		defer p.stop()
		first := p.accept(batch.Spec{IdempotencyKey: "k"}, newFeed(3, "/a"))
		again := p.accept(batch.Spec{IdempotencyKey: "k"}, newFeed(3, "/a"))
		if again.ID != first.ID || !again.Duplicate || first.Duplicate {
			t.Errorf("got %+v after %+v, want the same batch", again, first)
		}

		if _, err := p.Accept(w.Context(), batch.Spec{IdempotencyKey: "k", Mode: wire.BatchAll},
			strings.NewReader(newFeed(4, "/a"))); kindOf(err) != weir.Invalid {
			t.Errorf("another document: got %v, want Invalid", err)
		}

		if _, err := p.Accept(w.Context(), batch.Spec{IdempotencyKey: "k", Mode: wire.BatchValid},
			strings.NewReader(newFeed(3, "/a"))); kindOf(err) != weir.Invalid {
			t.Errorf("another mode: got %v, want Invalid", err)
		}

		p.awaitFinal(first.ID)
		w.checkEachOnce(3, "/a")
		rejected := p.awaitFinal(
			p.accept(batch.Spec{IdempotencyKey: "r"}, "<feed><article/></feed>").ID)
		if anew := p.accept(batch.Spec{IdempotencyKey: "r"}, "<feed><article/></feed>"); anew.ID ==
			rejected.ID {
			t.Error("posted again after it was rejected: got the rejected batch, want a new one")
		}
	})
}

// In each run a process is killed just before or just after one of its writes to storage. Another
// process then completes the batch.
func TestBatch_Killed(t *testing.T) {
	t.Parallel()
	keys := []string{"/a", "/b", "/c"}
	for _, kind := range []storagetest.FaultKind{storagetest.FailBefore, storagetest.FailAfter} {
		for at := 1; at <= 91; at += 6 {
			t.Run(fmt.Sprintf("fault %d at write %d", kind, at), func(t *testing.T) {
				simulate(t, func(w *world) { w.killAt(kind, at, keys) })
			})
		}
	}
}

// killAt posts a batch to a process that is killed at a write. The argument "at" is the number of
// that write; 1 = the first write after the batch was accepted. Another process then completes the
// batch.
func (w *world) killAt(kind storagetest.FaultKind, at int, keys []string) {
	w.Helper()
	p, writes, isDead := w.startProcess(), 0, false
	b := p.accept(batch.Spec{}, newFeed(450, keys...))
	p.faults.Set(func(c storagetest.Call) storagetest.Fault {
		if isDead {
			return storagetest.Fault{Kind: storagetest.FailBefore}
		}

		if c.Op == "Transact" || c.Op == "Put" || c.Op == "Delete" {
			if writes++; writes == at {
				isDead = true
				return storagetest.Fault{Kind: kind}
			}
		}

		return storagetest.Fault{}
	})

	time.Sleep(time.Minute)
	p.kill()
	next := w.startProcess()
	defer next.stop()
	if err := next.ResumeOrphans(w.Context()); err != nil {
		w.Fatal(err)
	}

	if got := next.awaitFinal(b.ID); got.State != wire.BatchFiled || got.Filed != 450 ||
		got.Stages[weir.Queued] != 450 {
		w.Errorf("got %+v, want 450 parts filed and queued", got)
	}

	w.checkEachOnce(450, keys...)

	for _, name := range w.blobNames() {
		if strings.Contains(name, "/document/") {
			w.Errorf("got the blob %s, want no blob of the document", name)
		}
	}
}

// The sweep of one process finds a batch on which another process works. Each part still becomes
// only one message.
func TestBatch_OneProcessAtATime(t *testing.T) {
	simulate(t, func(w *world) {
		p, other := w.startProcess(), w.startProcess()
		defer p.stop()
		defer other.stop()
		b := p.accept(batch.Spec{}, newFeed(400, "/a", "/b"))

		for range 5 {
			if err := other.ResumeOrphans(w.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}

		if got := other.awaitFinal(b.ID); got.Filed != 400 {
			t.Errorf("got %+v, want 400 parts filed", got)
		}

		w.checkEachOnce(400, "/a", "/b")
	})
}

// Storage fails for two minutes. After that, a sweep continues the work.
func TestBatch_StorageAway(t *testing.T) {
	simulate(t, func(w *world) {
		p := w.startProcess()
		defer p.stop()
		b := p.accept(batch.Spec{}, newFeed(300, "/a", "/b"))
		p.faults.Set(func(storagetest.Call) storagetest.Fault { return storagetest.Fault{Kind: storagetest.FailBefore} })

		if _, err := p.Accept(w.Context(), batch.Spec{Mode: wire.BatchAll},
			strings.NewReader(newFeed(1, "/a"))); kindOf(err) !=
			weir.Unavailable {
			t.Errorf("a post meanwhile: got %v, want Unavailable", err)
		}

		if _, err := p.Get(w.Context(), b.ID); kindOf(err) != weir.Unavailable {
			t.Errorf("a read meanwhile: got %v, want Unavailable", err)
		}

		time.Sleep(2 * time.Minute)
		p.faults.Set(nil)
		if err := p.ResumeOrphans(w.Context()); err != nil { // p has lost the batch's lease
			t.Fatal(err)
		}

		p.awaitFinal(b.ID)
		w.checkEachOnce(300, "/a", "/b")
	})
}

// RemoveExpired removes an old batch with its rows and blobs. It also removes an old document
// without a batch. A crash during a post can leave such a document.
func TestRemoveExpired(t *testing.T) {
	simulate(t, func(w *world) {
		p := w.startProcess()
		defer p.stop()
		old := p.awaitFinal(p.accept(batch.Spec{IdempotencyKey: "k", Mode: wire.BatchValid},
			"<feed><article/>"+newArticle("/a", 1)+"</feed>").ID)

		if err := w.lanes.Account.Blobs().Put(w.Context(),
			"batches/9999999999999aaaabbbbccccdddd/document/0000", nil); err != nil {
			t.Fatal(err)
		}

		time.Sleep(29 * 24 * time.Hour)
		young := p.awaitFinal(p.accept(batch.Spec{}, newFeed(1, "/b")).ID)
		if err := removeOld(w.Context(), p.Runner); err != nil {
			t.Fatal(err)
		}

		if names := strings.Join(w.blobNames(), " "); strings.Contains(names, "aaaabbbb") ||
			!strings.Contains(names, old.ID) {
			t.Errorf("after 29 days: got blobs %s, want the blobs of batches, and not the document without a batch",
				names)
		}

		time.Sleep(2 * 24 * time.Hour)
		if err := removeOld(w.Context(), p.Runner); err != nil {
			t.Fatal(err)
		}

		if _, err := p.Get(w.Context(), old.ID); kindOf(err) != weir.NotFound {
			t.Errorf("the old batch: got %v, want NotFound", err)
		}

		if _, err := p.Get(w.Context(), young.ID); err != nil {
			t.Error(err)
		}

		page, err := w.lanes.Account.Table().Range(w.Context(), storage.Query{Partition: "batches"})
		if err != nil || len(page.Rows) != 1 ||
			strings.Contains(strings.Join(w.blobNames(), " "), old.ID) {
			t.Errorf("got rows %v, %v and blobs %v, want the row of the young batch, and no blob of the old one",
				page.Rows, err, w.blobNames())
		}
	})
}

// Get returns NotFound for an id that no batch has, and for a text that does not have the form of
// an id.
func TestGet_Unknown(t *testing.T) {
	simulate(t, func(w *world) {
		p := w.startProcess()
		defer p.stop()

		for _, id := range []string{"", "x", "../a", "i_00000000000000000000000000000000",
			"!8302144555000", "83021445550000123456789abcdef"} {
			if _, err := p.Get(w.Context(), id); kindOf(err) != weir.NotFound {
				t.Errorf("%q: got %v, want NotFound", id, err)
			}
		}
	})
}
