package main

import (
	"bytes"
	"compress/flate"
	"strings"
	"testing"
)

// A body has the asked size and compresses like text: 100 KiB fit into a row, 1 MiB needs a blob.
func TestLongArticle(t *testing.T) {
	t.Parallel()
	for size, inRow := range map[int]bool{1 << 10: true, 100 << 10: true, 1 << 20: false} {
		body := longArticle(message{"/long", 3}, size)
		if len(body) != size || !strings.HasSuffix(body, "</article>") {
			t.Errorf("got %d bytes, want %d that end with </article>", len(body), size)
		}

		var packed bytes.Buffer
		w, err := flate.NewWriter(&packed, flate.BestSpeed)
		if err != nil {
			t.Fatal(err)
		}

		if _, err := w.Write([]byte(body)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}

		if got := packed.Len() <= rawInlineLimit; got != inRow {
			t.Errorf("%d bytes: got %d compressed, want them in the row: %t", size, packed.Len(),
				inRow)
		}
	}
}

func TestFormatBytes(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{1 << 10: "1 KiB", 100 << 10: "100 KiB", 1 << 20: "1 MiB"} {
		if got := formatBytes(n); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
