package batch_test

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"weir/internal/batch"
	"weir/internal/storage/storagetest"
	"weir/internal/wire"
)

// newJumpingZip returns a zip with "places" groups of articles that lie 1 MiB apart. The directory
// has one article of each group in turn, so that a reader in the order of the directory jumps from
// group to group.
func newJumpingZip(t *testing.T, places, articlesOfEach int) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	add := func(name, content string) {
		f, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
		if err == nil {
			_, err = io.WriteString(f, content)
		}

		if err != nil {
			t.Fatal(err)
		}
	}

	for place := range places {
		for i := range articlesOfEach {
			add(fmt.Sprintf("%04d-%02d.xml", i, place),
				newArticle(fmt.Sprintf("/%d/%d", i, place), i))
		}
		add(fmt.Sprintf("pad%d", place), strings.Repeat("x", 1<<20))
	}

	if err := z.Close(); err != nil {
		t.Fatal(err)
	}

	return sortDirectory(b.Bytes())
}

// sortDirectory returns a zip whose directory is sorted by the names of the files. The files stay
// in their places.
func sortDirectory(content []byte) string {
	const signature, endSignature = "PK\x01\x02", "PK\x05\x06"
	begin, end := bytes.Index(content, []byte(signature)),
		bytes.LastIndex(content, []byte(endSignature))
	records := strings.Split(string(content[begin:end]), signature)[1:]

	// the fixed fields without the signature
	nameOf := func(record string) string { return record[42:] }
	sorted := append([]string(nil), records...)
	for i := range sorted {
		for j := i; j > 0 && nameOf(sorted[j]) < nameOf(sorted[j-1]); j-- {
			sorted[j], sorted[j-1] = sorted[j-1], sorted[j]
		}
	}

	return string(content[:begin]) + signature + strings.Join(sorted, signature) +
		string(content[end:])
}

// A zip whose directory jumps between three places is read with few reads of storage. One that
// jumps between so many places that the chunks in memory do not help is rejected.
func TestBatch_BoundsTheReadsOfAZip(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		places, articlesOfEach int
		isRejected             bool
		most                   int // reads of chunks
	}{"ThreePlaces": {3, 60, false, 30}, "TenPlaces": {10, 60, true, 600}} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(w *world) {
				p := w.startProcess()
				defer p.stop()
				reads := 0
				p.faults.Set(func(call storagetest.Call) storagetest.Fault {
					if strings.Contains(call.Op, "Get") &&
						strings.Contains(call.Key, "/document/") {
						reads++
					}
					return storagetest.Fault{}
				})

				b := p.awaitFinal(
					p.accept(batch.Spec{ContentType: "application/zip", Mode: wire.BatchValid},
						newJumpingZip(w.T, c.places, c.articlesOfEach)).ID)
				isRejected := b.State == wire.BatchRejected &&
					strings.Contains(b.Reason, "pack the zip anew")
				if isRejected != c.isRejected ||
					!isRejected && b.Filed != c.places*c.articlesOfEach {
					t.Errorf("got %s %q with %d parts filed, want it rejected for its reads: %t",
						b.State, b.Reason, b.Filed, c.isRejected)
				}

				if reads == 0 || reads > c.most {
					t.Errorf("got %d reads of chunks, want 1 to %d", reads, c.most)
				}
			})
		})
	}
}
