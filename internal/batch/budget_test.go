package batch_test

import (
	"io"
	"strings"
	"testing"

	"weir/internal/batch"
	"weir/internal/testkit/ziptest"
	"weir/internal/weir"
	"weir/internal/wire"
)

func newReader(text string) io.Reader { return strings.NewReader(text) }

// manySteps returns 16 split paths with 63 steps each, the most that a post may have.
func manySteps() (paths []string) {
	for range 16 {
		paths = append(paths, strings.Repeat("//*", 62)+"//none")
	}
	return paths
}

// A document whose split would cost too much CPU time is refused while it is received, and leaves
// nothing.
func TestAccept_RefusesTooMuchWork(t *testing.T) {
	simulate(t, func(w *world) {
		p := w.startProcess()
		defer p.stop()
		document := "<feed>" + strings.Repeat("<a/>", 1_500_000) + "</feed>"
		_, err := p.Accept(w.Context(), batch.Spec{Mode: wire.BatchAll, Split: manySteps()},
			newReader(document))
		if weir.KindOf(err) != weir.TooLarge ||
			!strings.Contains(err.Error(), "send smaller batches") ||
			len(w.blobNames()) != 0 {
			t.Errorf("got %v and the blobs %v, want TooLarge and no blob", err, w.blobNames())
		}
	})
}

// A zip of a few kilobytes unpacks to more tags than its size may buy. It is rejected when the tags
// are counted.
func TestBatch_RejectsAZipWithTooManyTags(t *testing.T) {
	simulate(t, func(w *world) {
		p := w.startProcess()
		defer p.stop()

		// counts as 60 Ki tags, and is read faster
		comment := "<!--" + strings.Repeat("<", 60<<10) + "-->"
		document := "<feed>" + newArticle("/a", 1) + strings.Repeat(comment, 12) + "</feed>"
		b := p.awaitFinal(p.accept(batch.Spec{ContentType: "application/zip", Split: manySteps()},
			ziptest.New(t, "feed.xml", document)).ID)
		if b.State != wire.BatchRejected || !strings.Contains(b.Reason, "tags") ||
			w.countAll() != 0 {
			t.Errorf("got %s because of %q, want it rejected for its tags", b.State, b.Reason)
		}
	})
}
