package storagetest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/internal/storage"
)

// Blobs is the suite for storage.Blobs and storage.BlobMarks.
func Blobs(t *testing.T, open func(t *testing.T) interface {
	storage.Blobs
	storage.BlobMarks
}) {
	t.Helper()
	each(t, open, map[string]func(*testing.T, BlobPort){
		"Put/Whole":        putWhole,
		"Put/OfTheirOwn":   putOfTheirOwn,
		"NotFound":         blobNotFound,
		"Mark/Cleared":     markCleared,
		"Mark/KeepsData":   markKeepsData,
		"List/Order":       listOrder,
		"List/AfterPrefix": listAfterPrefix,
		"List/Empty":       listEmpty,
		"ContextEnded":     blobContextEnded,
	})
}

func putWhole(t *testing.T, b BlobPort) {
	ctx := t.Context()
	for name, data := range map[string][]byte{
		"1.0/m_1": []byte("<article/>"), "empty": {}, "large": bytes.Repeat([]byte("0123456789\x00\xff\r\n."), 1<<18),
		"it's ä 100%": {0, 1, 2},
	} {
		must(t, b.Put(ctx, name, []byte("something else, and longer than nothing")))
		must(t, b.Put(ctx, name, data))
		got, err := b.Get(ctx, name)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes of %d, %v", name, len(got), len(data), err)
		}
	}
}

func putOfTheirOwn(t *testing.T, b BlobPort) {
	data := []byte("given")
	must(t, b.Put(t.Context(), "n", data))
	data[0] = 'X'
	got, err := b.Get(t.Context(), "n")
	must(t, err)
	got[1] = 'Y'
	if again, err := b.Get(t.Context(), "n"); err != nil || string(again) != "given" {
		t.Errorf("the blob follows others' bytes: %q, %v", again, err)
	}
}

func blobNotFound(t *testing.T, b BlobPort) {
	ctx := t.Context()
	missing := func(when string) {
		t.Helper()
		_, err := b.Get(ctx, "n")
		wantKind(t, when+": get", err, storage.NotFound)
		wantKind(t, when+": delete", b.Delete(ctx, "n"), storage.NotFound)
		wantKind(t, when+": mark", b.Mark(ctx, "n"), storage.NotFound)
	}
	missing("before")
	must(t, b.Put(ctx, "n", []byte("x")))
	must(t, b.Delete(ctx, "n"))
	missing("after delete")
}

func markCleared(t *testing.T, b BlobPort) {
	ctx := t.Context()
	must(t, b.Put(ctx, "n", nil))
	wantMarked(t, b, false)
	must(t, b.Mark(ctx, "n"))
	must(t, b.Mark(ctx, "n"))
	wantMarked(t, b, true)
	must(t, b.Put(ctx, "n", nil))
	wantMarked(t, b, false)
}

func markKeepsData(t *testing.T, b BlobPort) {
	must(t, b.Put(t.Context(), "n", []byte("kept")))
	must(t, b.Mark(t.Context(), "n"))
	if got, err := b.Get(t.Context(), "n"); err != nil || string(got) != "kept" {
		t.Errorf("after mark: %q, %v", got, err)
	}
}

func listOrder(t *testing.T, b BlobPort) {
	ctx := t.Context()
	names := []string{"1.0/a", "1.0/b", "1.0/c/d", "1.1/a", "A", "a"}
	for _, i := range []int{3, 0, 5, 2, 4, 1} {
		must(t, b.Put(ctx, names[i], []byte("x")))
	}
	must(t, b.Mark(ctx, "1.0/b"))
	found, err := b.List(ctx, "", "")
	must(t, err)
	wantNames(t, "all", found, names...)
	for _, info := range found {
		if info.ModifiedAt.IsZero() || info.ModifiedAt.Location() != time.UTC || info.Marked != (info.Name == "1.0/b") {
			t.Errorf("%+v", info)
		}
	}
}

// listAfterPrefix goes through a listing from answer to answer.
func listAfterPrefix(t *testing.T, b BlobPort) {
	var names []string
	for i := range 12 {
		names = append(names, fmt.Sprintf("1.0/%02d", i))
	}
	for _, name := range append(slices.Clone(names), "1.00", "1", "1.1/00") {
		must(t, b.Put(t.Context(), name, nil))
	}
	found, err := b.List(t.Context(), "1.0/", "1.0/09")
	must(t, err)
	wantNames(t, "after the tenth", found, names[10:]...)
	var all []storage.BlobInfo
	for after := ""; len(all) <= len(names); after = all[len(all)-1].Name {
		found, err := b.List(t.Context(), "1.0/", after)
		must(t, err)
		if len(found) == 0 {
			break
		}
		all = append(all, found...)
	}
	wantNames(t, "answer by answer", all, names...)
}

func listEmpty(t *testing.T, b BlobPort) {
	must(t, b.Put(t.Context(), "b", nil))
	for _, q := range [][2]string{{"a", ""}, {"c", ""}, {"", "b"}, {"b", "b"}, {"", "c"}} {
		found, err := b.List(t.Context(), q[0], q[1])
		must(t, err)
		wantNames(t, fmt.Sprintf("prefix %q after %q", q[0], q[1]), found)
	}
}

func blobContextEnded(t *testing.T, b BlobPort) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Get(ctx, "n")
	wantKind(t, "get", err, storage.Unavailable)
	_, err = b.List(ctx, "", "")
	wantKind(t, "list", err, storage.Unavailable)
	wantKind(t, "put", b.Put(ctx, "n", nil), storage.Unavailable)
	wantKind(t, "mark", b.Mark(ctx, "n"), storage.Unavailable)
	wantKind(t, "delete", b.Delete(ctx, "n"), storage.Unavailable)
	_, err = b.Get(t.Context(), "n")
	wantKind(t, "get what was not sent", err, storage.NotFound)
}

func wantMarked(t *testing.T, b BlobPort, want bool) {
	t.Helper()
	found, err := b.List(t.Context(), "", "")
	if err != nil || len(found) != 1 || found[0].Marked != want {
		t.Errorf("found %+v, %v, want marked %t", found, err, want)
	}
}

func wantNames(t *testing.T, what string, found []storage.BlobInfo, want ...string) {
	t.Helper()
	var names []string
	for _, info := range found {
		names = append(names, info.Name)
	}
	if !slices.Equal(names, want) {
		t.Errorf("%s: %q, want %q", what, names, want)
	}
}
