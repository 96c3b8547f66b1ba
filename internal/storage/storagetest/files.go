package storagetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"weir/internal/storage"
)

// Files is the suite for storage.Files. The function open returns an empty container.
func Files(t *testing.T, open func(t *testing.T) storage.Files) {
	t.Helper()
	runEach(t, open, map[string]func(*testing.T, storage.Files){
		"Write/Whole":        writeFiles,
		"Write/BrokenBody":   writeBrokenBody,
		"Write/OddNames":     writeOddNames,
		"Read/Versions":      readVersions,
		"Delete/Versions":    deleteVersions,
		"List/Prefix":        listFiles,
		"Files/ContextEnded": filesContextEnded,
	})
}

// findFile returns a file's entry in the listing.
func findFile(t *testing.T, f storage.Files, name string) storage.File {
	t.Helper()
	page, err := f.List(t.Context(), "", "")
	requireNoError(t, err)
	i := slices.IndexFunc(page.Files, func(one storage.File) bool { return one.Name == name })
	if i < 0 {
		t.Fatalf("the listing has %+v, want %q among them", page.Files, name)
	}

	return page.Files[i]
}

// writeText writes a file, and returns the file's entry in the listing.
func writeText(t *testing.T, f storage.Files, name, text string) storage.File {
	t.Helper()
	requireNoError(t, f.Write(t.Context(), name, "text/xml", nil, strings.NewReader(text)))
	return findFile(t, f, name)
}

func writeFiles(t *testing.T, f storage.Files) {
	for name, data := range map[string][]byte{
		"empty": {}, "a/b/c.xml": []byte("<a/>"), "it's ä 100% [1] #2 &+?=.xml": {0, 1, 2},
		"block":  bytes.Repeat([]byte{7}, 4<<20),
		"blocks": bytes.Repeat([]byte("0123456789\x00\xff"), 9<<20/12),
	} {
		given := map[string]string{"Weir_Deliver_At": "2030-01-01T00:00:00Z"}
		requireNoError(t, f.Write(t.Context(), name, "text/plain", nil,
			strings.NewReader("something longer than it")))
		requireNoError(t, f.Write(t.Context(), name, "application/x-test", given,
			bytes.NewReader(data)))
		found := findFile(t, f, name)
		if found.Size != int64(len(data)) || found.ContentType != "application/x-test" ||
			found.ModifiedAt.IsZero() ||
			found.IsGrowing || found.ETag == "" || len(found.Metadata) != 1 {
			t.Errorf("%s: got %+v, want %d bytes with their type, a version and one metadata", name,
				found, len(data))
		}

		for key, value := range found.Metadata {
			if !strings.EqualFold(key, "Weir_Deliver_At") || value != given["Weir_Deliver_At"] {
				t.Errorf("%s: got the metadata %s = %s, want %v", name, key, value, given)
			}
		}

		if len(data) == 0 {
			continue
		}

		got, err := f.Read(t.Context(), name, found.ETag, 0, found.Size)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("Read(%s) = %d bytes, %v, want the %d written ones", name, len(got),
				err, len(data))
		}

		if got, err := f.Read(t.Context(), name, found.ETag, found.Size-2, 2); err != nil ||
			!bytes.Equal(got, data[len(data)-2:]) {
			t.Errorf("%s: got the end %v, %v, want %v", name, got, err, data[len(data)-2:])
		}
	}
}

var errBody = errors.New("the body broke")

// writeOddNames writes files with names that a URL can distort, for example if a client decodes the
// URL twice or removes dots. Each name must be a file of its own. No name has a backslash, because
// Azurite replaces backslashes by slashes.
func writeOddNames(t *testing.T, f storage.Files) {
	names := []string{"a%2Fb.xml", "a/b.xml", "a%252Fb.xml", "x/../a.xml", "a.xml", "../out.xml",
		"x/./b.xml", "x//b.xml",
		"a?b=c#d", "dot.", "dots...", " space ", "+", "%", "<a href='x'>.xml", "ä/漢字/😀.xml",
		strings.Repeat("n", 1024)}
	for _, name := range names {
		requireNoError(t, f.Write(t.Context(), name, "text/xml", nil, strings.NewReader("<"+name)))
	}

	for i, name := range names {
		found := findFile(t, f, name)
		if got, err := f.Read(t.Context(), name, found.ETag, 0, found.Size); err != nil ||
			string(got) != "<"+name {
			t.Errorf("%.60q: got %.60q, %v; want its own content", name, got, err)
		}

		if err := f.Delete(t.Context(), name, found.ETag); err != nil {
			t.Errorf("%.60q: got %v, want it deleted", name, err)
		}

		page, err := f.List(t.Context(), "", "")
		if left := len(names) - i - 1; err != nil || len(page.Files) != left {
			t.Errorf("after %.60q was deleted: got %d files, %v; want %d", name,
				len(page.Files), err, left)
		}
	}
}

// writeBrokenBody writes files from bodies that fail before their end. The files must not appear in
// the listing.
func writeBrokenBody(t *testing.T, f storage.Files) {
	for name, before := range map[string]int{"short": 3, "long": 5 << 20} {
		body := io.MultiReader(bytes.NewReader(make([]byte, before)), brokenReader{})
		if err := f.Write(t.Context(), name, "text/xml", nil, body); !errors.Is(err, errBody) {
			t.Errorf("%s: got %v, want the error of the body", name, err)
		}
	}

	if page, err := f.List(t.Context(), "", ""); err != nil || len(page.Files) != 0 {
		t.Errorf("got %+v, %v, want no file", page.Files, err)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errBody }

func readVersions(t *testing.T, f storage.Files) {
	first := writeText(t, f, "n", "first")
	second := writeText(t, f, "n", "other")
	if first.ETag == second.ETag {
		t.Fatalf("both versions have the ETag %s, want two", first.ETag)
	}

	_, err := f.Read(t.Context(), "n", first.ETag, 0, 1)
	wantKind(t, "read of an earlier version", err, storage.Precondition)

	if got, err := f.Read(t.Context(), "n", second.ETag, 0, 5); err != nil ||
		string(got) != "other" {
		t.Errorf("got %q, %v, want the second version", got, err)
	}

	_, err = f.Read(t.Context(), "none", "", 0, 1)
	wantKind(t, "read of no file", err, storage.NotFound)
}

func deleteVersions(t *testing.T, f storage.Files) {
	first := writeText(t, f, "n", "first")
	second := writeText(t, f, "n", "other")
	wantKind(t, "delete of an earlier version", f.Delete(t.Context(), "n", first.ETag),
		storage.Precondition)
	requireNoError(t, f.Delete(t.Context(), "n", second.ETag))

	if err := f.Delete(t.Context(), "n", second.ETag); !storage.Is(err, storage.NotFound) &&
		!storage.Is(err, storage.Precondition) {
		t.Errorf("delete of no file: got %v, want not found or precondition failed", err)
	}

	_ = writeText(t, f, "n", "again")
	requireNoError(t, f.Delete(t.Context(), "n", ""))
	wantKind(t, "delete of no file, any version", f.Delete(t.Context(), "n", ""), storage.NotFound)
}

func listFiles(t *testing.T, f storage.Files) {
	for _, name := range []string{"b/2", "a/1", "b/1"} {
		writeText(t, f, name, name)
	}

	page, err := f.List(t.Context(), "b/", "")
	requireNoError(t, err)

	if len(page.Files) != 2 || page.Files[0].Name != "b/1" || page.Files[1].Name != "b/2" ||
		page.Next != "" {
		t.Errorf("got %+v, want b/1 and b/2, and no further page", page)
	}
}

func filesContextEnded(t *testing.T, f storage.Files) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := f.List(ctx, "", "")
	wantKind(t, "list", err, storage.Unavailable)
	_, err = f.Read(ctx, "n", "", 0, 1)
	wantKind(t, "read", err, storage.Unavailable)
	wantKind(t, "write", f.Write(ctx, "n", "text/xml", nil, strings.NewReader("x")),
		storage.Unavailable)
	wantKind(t, "delete", f.Delete(ctx, "n", ""), storage.Unavailable)
}
