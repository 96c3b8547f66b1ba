package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"weir/internal/storage"
)

// Blobs is the suite for storage.Blobs and storage.BlobMarks. The function open returns an empty
// container.
func Blobs(t *testing.T, open func(t *testing.T) interface {
	storage.Blobs
	storage.BlobMarks
}) {
	t.Helper()
	runEach(t, open, map[string]func(*testing.T, BlobPort){
		"Put/Whole":      putWhole,
		"Put/Copied":     putCopied,
		"NotFound":       blobNotFound,
		"Mark/Cleared":   markCleared,
		"Mark/KeepsData": markKeepsData,
		"List/Order":     listOrder,
		"List/Prefix":    listPrefix,
		"List/Continued": listContinued,
		"List/Empty":     listEmpty,
		"ContextEnded":   blobContextEnded,
	})
}

func putWhole(t *testing.T, b BlobPort) {
	ctx := t.Context()
	for name, data := range map[string][]byte{
		"1.0/m_1": []byte("<article/>"), "empty": {},
		"large":       bytes.Repeat([]byte("0123456789\x00\xff\r\n."), 1<<18),
		"it's ä 100%": {0, 1, 2},
	} {
		requireNoError(t, b.Put(ctx, name, []byte("something else, and longer than nothing")))
		requireNoError(t, b.Put(ctx, name, data))
		got, err := b.Get(ctx, name)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes of %d, %v, want the same bytes and no error", name, len(got),
				len(data), err)
		}
	}
}

// putCopied checks that changes to the slices of Put and Get do not change the stored blob.
func putCopied(t *testing.T, b BlobPort) {
	data := []byte("given")
	requireNoError(t, b.Put(t.Context(), "n", data))
	data[0] = 'X'
	got, err := b.Get(t.Context(), "n")
	requireNoError(t, err)
	got[1] = 'Y'

	if again, err := b.Get(t.Context(), "n"); err != nil || string(again) != "given" {
		t.Errorf("after writer and reader changed their bytes: %q, %v, want given and no error",
			again, err)
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
	requireNoError(t, b.Put(ctx, "n", []byte("x")))
	requireNoError(t, b.Delete(ctx, "n"))
	missing("after delete")
}

func markCleared(t *testing.T, b BlobPort) {
	ctx := t.Context()
	requireNoError(t, b.Put(ctx, "n", nil))
	wantMarked(t, b, false)
	requireNoError(t, b.Mark(ctx, "n"))
	requireNoError(t, b.Mark(ctx, "n"))
	wantMarked(t, b, true)
	requireNoError(t, b.Put(ctx, "n", nil))
	wantMarked(t, b, false)
}

func markKeepsData(t *testing.T, b BlobPort) {
	requireNoError(t, b.Put(t.Context(), "n", []byte("kept")))
	requireNoError(t, b.Mark(t.Context(), "n"))
	if got, err := b.Get(t.Context(), "n"); err != nil || string(got) != "kept" {
		t.Errorf("after mark: %q, %v, want kept and no error", got, err)
	}
}

func listOrder(t *testing.T, b BlobPort) {
	ctx := t.Context()
	names := []string{"1.0/a", "1.0/b", "1.0/c/d", "1.1/a", "A", "a"}
	for _, i := range []int{3, 0, 5, 2, 4, 1} {
		requireNoError(t, b.Put(ctx, names[i], []byte("x")))
	}

	requireNoError(t, b.Mark(ctx, "1.0/b"))
	found := listAll(t, b, "")
	wantNames(t, "all", found, names...)

	for _, info := range found {
		if info.ModifiedAt.IsZero() || info.ModifiedAt.Location() != time.UTC ||
			info.Marked != (info.Name == "1.0/b") {
			t.Errorf("got %+v, want a ModifiedAt, Location %v and Marked %v", info, time.UTC,
				info.Name == "1.0/b")
		}
	}
}

func listPrefix(t *testing.T, b BlobPort) {
	var names []string
	for i := range 12 {
		names = append(names, fmt.Sprintf("1.0/%02d", i))
	}

	for _, name := range append(slices.Clone(names), "1.00", "1", "1.1/00") {
		requireNoError(t, b.Put(t.Context(), name, nil))
	}

	wantNames(t, "all of the prefix", listAll(t, b, "1.0/"), names...)
}

// listContinued lists more blobs than one page can have. Each page must begin after the last name
// of the previous page.
func listContinued(t *testing.T, b BlobPort) {
	const blobs = 1100
	var names []string
	for i := range blobs {
		names = append(names, fmt.Sprintf("2.0/%04d", i))
	}

	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() {
			for n := i; n < blobs; n += len(errs) {
				errs[i] = errors.Join(errs[i], b.Put(t.Context(), names[n], nil))
			}
		})
	}

	wg.Wait()
	requireNoError(t, errors.Join(errs...))
	first, err := b.List(t.Context(), "2.0/", "")
	requireNoError(t, err)

	if len(first.Infos) == 0 || len(first.Infos) > 1000 || first.Next == "" {
		t.Fatalf("the first page has %d of %d blobs, and goes on with %q, want 1 to 1000 and a "+
			"continuation", len(first.Infos), blobs, first.Next)
	}

	wantNames(t, "page by page", listAll(t, b, "2.0/"), names...)
	requireNoError(t, b.Delete(t.Context(), names[0]))
	rest, err := b.List(t.Context(), "2.0/", first.Next)
	requireNoError(t, err)

	if len(rest.Infos) == 0 || rest.Infos[0].Name != names[len(first.Infos)] {
		t.Errorf("after a blob of the first page was deleted, the second begins with %+v, want %s",
			rest.Infos[:min(1, len(rest.Infos))], names[len(first.Infos)])
	}
}

// listAll returns the blobs of all pages.
func listAll(t *testing.T, b BlobPort, prefix string) (all []storage.BlobInfo) {
	t.Helper()
	for marker := ""; ; {
		page, err := b.List(t.Context(), prefix, marker)
		requireNoError(t, err)
		all = append(all, page.Infos...)
		if marker = page.Next; marker == "" {
			return all
		}
	}
}

func listEmpty(t *testing.T, b BlobPort) {
	requireNoError(t, b.Put(t.Context(), "b", nil))
	for _, prefix := range []string{"a", "c", "bb"} {
		wantNames(t, fmt.Sprintf("prefix %q", prefix), listAll(t, b, prefix))
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
	wantKind(t, "get a blob of a request that was not sent", err, storage.NotFound)
}

func wantMarked(t *testing.T, b BlobPort, want bool) {
	t.Helper()
	if found := listAll(t, b, ""); len(found) != 1 || found[0].Marked != want {
		t.Errorf("found %+v, want marked %t", found, want)
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
