package embedded_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/storage"
	"weir/internal/storage/embedded"
)

// fillStore writes rows, a body, a file of several commits, and a message, all with a text.
func fillStore(t *testing.T, store *embedded.Store, text string) {
	t.Helper()
	ctx := t.Context()
	for i := range 200 {
		_, err := store.Table().Transact(ctx, "1.0", []storage.Op{
			upsert(fmt.Sprintf("m_%04d", i), map[string]any{"Body": strings.Repeat(text, 50)})})
		must(t, err)
	}

	must(t, store.Bodies().Put(ctx, "body", bytes.Repeat([]byte(text), 10_000)))
	must(t, store.Inbox().Write(ctx, "file.xml", "text/xml", nil,
		strings.NewReader(strings.Repeat(text, 600_000))))
	must(t, store.Tickets().Put(ctx, text, 0))
}

func eraseStore(t *testing.T, store *embedded.Store) {
	t.Helper()
	ctx := t.Context()
	for i := range 200 {
		_, err := store.Table().Transact(ctx, "1.0", []storage.Op{
			upsert(fmt.Sprintf("m_%04d", i), map[string]any{"Body": "erased"})})
		must(t, err)
	}

	must(t, store.Bodies().Delete(ctx, "body"))
	must(t, store.Inbox().Delete(ctx, "file.xml", ""))
	got, err := store.Tickets().Get(ctx, 1, 1e9)
	must(t, err)
	must(t, store.Tickets().Delete(ctx, got[0]))
}

func readData(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)

	return data
}

// After a scrub, no page of the file has a byte of what was erased, and everything else is whole.
func TestScrub_ErasedBytesLeaveTheFile(t *testing.T) {
	t.Parallel()
	const text = "Erika Mustermann "
	dir := t.TempDir()
	store := openFolder(t, dir, embedded.Options{})
	fillStore(t, store, text)
	eraseStore(t, store)
	must(t, store.Bodies().Put(t.Context(), "other", []byte("stays")))
	path := filepath.Join(dir, "weir.db")
	if !bytes.Contains(readData(t, path), []byte(text)) {
		t.Fatal("the file has no erased byte before the scrub: the test shows nothing")
	}

	must(t, store.Scrub(t.Context()))

	if n := bytes.Count(readData(t, path), []byte("Mustermann")); n != 0 {
		t.Errorf("the file has the erased text %d times after the scrub, want 0", n)
	}

	if data, err := store.Bodies().Get(t.Context(), "other"); err != nil ||
		string(data) != "stays" {
		t.Errorf("got %q, %v, want the other blob", data, err)
	}

	must(t, store.Close())

	if r, err := embedded.CheckFile(t.Context(), dir, embedded.Options{}); err != nil ||
		len(r.Problems) > 0 ||
		r.Rows != 200 {
		t.Errorf("got %+v, %v, want 200 rows without problems", r, err)
	}
}

// A back-up is the state at one moment while others write, and has no erased byte.
func TestBackup_Restore(t *testing.T) {
	t.Parallel()
	const text = "Erika Mustermann "
	ctx, dir := t.Context(), t.TempDir()
	store := openFolder(t, filepath.Join(dir, "a"), embedded.Options{})
	fillStore(t, store, text)
	eraseStore(t, store)
	fillStore(t, store, "kept text ")
	table := store.Table()
	write := func(n int64) error {
		values := map[string]any{"N": n}
		_, err := table.Transact(ctx, "meta",
			[]storage.Op{upsert("a", values), upsert("b", values)})
		return err
	}

	must(t, write(0))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for n := int64(1); ; n++ {
			select {
			case <-stop:
				return
			default:
			}

			if err := write(n); err != nil {
				t.Error(err)
				return
			}
		}
	}()

	var copied bytes.Buffer
	err := store.Backup(ctx, &copied)
	close(stop)
	<-stopped
	must(t, err)

	if bytes.Contains(copied.Bytes(), []byte("Mustermann")) {
		t.Error("the back-up has erased text, want none")
	}

	left, err := filepath.Glob(filepath.Join(dir, "a", "*.tmp"))
	if err != nil || len(left) > 0 {
		t.Errorf("got the files %v, %v, want none left over", left, err)
	}

	file := filepath.Join(dir, "backup")
	must(t, os.WriteFile(file, copied.Bytes(), 0o600))
	must(t, embedded.Restore(filepath.Join(dir, "b"), file))
	other := openFolder(t, filepath.Join(dir, "b"), embedded.Options{})
	page, err := other.Table().Range(ctx, storage.Query{Partition: "meta"})
	if err != nil || len(page.Rows) != 2 || page.Rows[0].Values["N"] != page.Rows[1].Values["N"] {
		t.Errorf("got %+v, %v, want two rows with the same N", page.Rows, err)
	}

	r, err := other.Check(ctx)
	if err != nil || len(r.Problems) > 0 || r.Rows != 202 || r.Blobs != 2 || r.Messages != 1 {
		t.Errorf("got %+v, %v, want 202 rows, 2 blobs, 1 message and no problem", r, err)
	}

	// The next ETag is another one than each of the original.
	first, err := store.Table().Transact(ctx, "new", []storage.Op{upsert("k", nil)})
	must(t, err)
	if row, err := other.Table().Get(ctx, "meta", "a"); err != nil || row.ETag == first[0] {
		t.Errorf("got the ETag %s, %v, want another than %s", row.ETag, err, first[0])
	}
}

func TestRestore_Refusals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, err := embedded.Open(filepath.Join(dir, "a"), embedded.Options{})
	must(t, err)
	var copied bytes.Buffer
	must(t, store.Backup(t.Context(), &copied))
	must(t, store.Close())
	whole, cut, text := filepath.Join(dir, "whole"), filepath.Join(dir, "cut"),
		filepath.Join(dir, "text")
	must(t, os.WriteFile(whole, copied.Bytes(), 0o600))
	must(t, os.WriteFile(cut, copied.Bytes()[:copied.Len()/2], 0o600))
	must(t, os.WriteFile(text, bytes.Repeat([]byte("text"), 10_000), 0o600))

	for name, test := range map[string]struct{ folder, file, want string }{
		"used folder":  {"a", whole, "the folder has a store already"},
		"no file":      {"b", filepath.Join(dir, "none"), "no such file"},
		"half a file":  {"c", cut, "damaged"},
		"another file": {"d", text, "no store of Weir"},
	} {
		err := embedded.Restore(filepath.Join(dir, test.folder), test.file)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}

		left, err := filepath.Glob(filepath.Join(dir, test.folder, "*.new"))
		if err != nil || len(left) > 0 {
			t.Errorf("%s: got the files %v, %v, want none left over", name, left, err)
		}
	}

	must(t, embedded.Restore(filepath.Join(dir, "e"), whole))
}

// Check finds a byte that changed on the disk.
func TestCheck_ChangedByte(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, err := embedded.Open(dir, embedded.Options{})
	must(t, err)
	fillStore(t, store, "kept text ")
	must(t, store.Close())
	path := filepath.Join(dir, "weir.db")
	data := readData(t, path)
	at := bytes.LastIndex(data, []byte("kept text kept text"))
	data[at]++
	must(t, os.WriteFile(path, data, 0o600))

	r, err := embedded.CheckFile(t.Context(), dir, embedded.Options{})
	if err != nil || len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "damaged") {
		t.Errorf("got %+v, %v, want one damaged row or blob", r, err)
	}
}
