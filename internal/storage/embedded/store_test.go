package embedded_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"weir/internal/storage"
	"weir/internal/storage/embedded"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func upsert(key string, values map[string]any) storage.Op {
	return storage.Op{Kind: storage.Upsert, Key: key, Values: values}
}

func TestOpen_InUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	openFolder(t, dir, embedded.Options{Program: "weir serve"})

	_, err := embedded.Open(dir, embedded.Options{})
	var inUse *embedded.InUseError
	if !errors.As(err, &inUse) || inUse.Owner.Process != os.Getpid() {
		t.Fatalf("got %v, want an InUseError with process %d", err, os.Getpid())
	}

	want := fmt.Sprintf("weir serve has this folder open: process %d on ", os.Getpid())
	if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %q, want the folder and %q in it", err, want)
	}
}

func TestOpen_Again(t *testing.T) {
	t.Parallel()
	ctx, dir, c := t.Context(), t.TempDir(), newClock()
	store, err := embedded.Open(dir, embedded.Options{Now: c.Now})
	must(t, err)
	etags, err := store.Table().Transact(ctx, "1.0",
		[]storage.Op{upsert("k", map[string]any{"N": int64(7)})})
	must(t, err)
	must(t, store.Bodies().Put(ctx, "body", []byte("content")))
	must(t, store.Bodies().Mark(ctx, "body"))
	must(t, store.Tickets().Put(ctx, "dequeued", 0))
	must(t, store.Tickets().Put(ctx, "delayed", time.Hour))
	if _, err := store.Tickets().Get(ctx, 1, 10*time.Minute); err != nil {
		t.Fatal(err)
	}

	must(t, store.Leases().Acquire(ctx, "lane-1.0", "0f8fad5b-d9cb-469f-a165-70867728950e",
		time.Minute))
	must(t, store.Close())

	store = openFolder(t, dir, embedded.Options{Now: c.Now})
	row, err := store.Table().Get(ctx, "1.0", "k")
	if err != nil || row.ETag != etags[0] || row.Values["N"] != int64(7) {
		t.Errorf("got the row %+v, %v, want N 7 and ETag %s", row, err, etags[0])
	}

	data, err := store.Bodies().Get(ctx, "body")
	if err != nil || string(data) != "content" {
		t.Errorf("got the blob %q, %v, want content", data, err)
	}

	page, err := store.Bodies().List(ctx, "", "")
	if err != nil || len(page.Infos) != 1 || !page.Infos[0].Marked {
		t.Errorf("got the listing %+v, %v, want one marked blob", page, err)
	}

	// The process that had dequeued the message is gone, so the message is visible at once.
	got, err := store.Tickets().Get(ctx, 32, time.Minute)
	if err != nil || len(got) != 1 || got[0].Text != "dequeued" || got[0].DequeueCount != 2 {
		t.Errorf("got the messages %+v, %v, want the dequeued one, for the second time", got, err)
	}

	must(t, store.Leases().Acquire(ctx, "lane-1.0", "7c9e6679-7425-40de-944b-e07fc1f90ae7",
		time.Minute))
}

// A message that waits for its delay keeps the delay if the clock is set back while no process
// runs.
func TestOpen_ClockSetBack(t *testing.T) {
	t.Parallel()
	ctx, dir, c := t.Context(), t.TempDir(), newClock()
	store, err := embedded.Open(dir, embedded.Options{Now: c.Now})
	must(t, err)
	must(t, store.Tickets().Put(ctx, "delayed", time.Minute))
	must(t, store.Close())

	c.Advance(-24 * time.Hour)
	store = openFolder(t, dir, embedded.Options{Now: c.Now})
	c.Advance(61 * time.Second)
	if got, err := store.Tickets().Get(ctx, 1, time.Minute); err != nil || len(got) != 1 {
		t.Errorf("got %+v, %v, want the message after its delay", got, err)
	}
}

func TestOpen_NewerFormat(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, err := embedded.Open(dir, embedded.Options{})
	must(t, err)
	must(t, store.Close())
	changeData(t, dir, func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("about")).Put([]byte("about"), []byte(`{"format":2,"later":true}`))
	})

	_, err = embedded.Open(dir, embedded.Options{})
	if want := "a newer version of Weir has written this store (format 2)"; err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// changeData changes the file of a closed store.
func changeData(t *testing.T, dir string, change func(*bolt.Tx) error) {
	t.Helper()
	db, err := bolt.Open(filepath.Join(dir, "weir.db"), 0o600, nil)
	must(t, err)
	must(t, db.Update(change))
	must(t, db.Close())
}

func TestOpen_NoStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "weir.db"), bytes.Repeat([]byte("text"), 4096), 0o600))
	_, err := embedded.Open(dir, embedded.Options{})
	if want := "weir.db is no store of Weir, or it is damaged"; err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// A process can die while it makes the file.
func TestOpen_AfterCreationWasCutOff(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "weir.db.new"), make([]byte, 5000), 0o600))
	openFolder(t, dir, embedded.Options{})
}

// Writers of many lanes share commits; the transaction whose condition does not hold fails alone.
func TestTransact_GroupsOfLanes(t *testing.T) {
	t.Parallel()
	const lanes, rounds = 16, 20
	store := openStore(t, embedded.Options{})
	var group sync.WaitGroup
	for lane := range lanes {
		group.Go(func() {
			partition, tag := fmt.Sprintf("1.%d", lane), storage.ETag("")
			for round := range rounds {
				kind := storage.Replace
				if round == 0 {
					kind = storage.Insert
				}

				etags, err := store.Table().Transact(t.Context(), partition, []storage.Op{
					{Kind: kind, Key: "!head", IfMatch: tag,
						Values: map[string]any{"N": int64(round)}},
					{Kind: storage.Insert, Key: fmt.Sprintf("m_%03d", round)}})
				if err != nil {
					t.Errorf("lane %d, round %d: %v, want no error", lane, round, err)
					return
				}

				_, err = store.Table().Transact(t.Context(), partition, []storage.Op{
					{Kind: storage.Insert, Key: "n"},
					{Kind: storage.Replace, Key: "!head", IfMatch: `W/"0"`}})
				if !storage.Is(err, storage.Precondition) || storage.FailedAt(err) != 1 {
					t.Errorf("lane %d: got %v at %d, want a failed precondition at 1", lane, err,
						storage.FailedAt(err))
				}

				tag = etags[0]
			}
		})
	}

	group.Wait()

	for lane := range lanes {
		page, err := store.Table().Range(t.Context(),
			storage.Query{Partition: fmt.Sprintf("1.%d", lane)})
		if err != nil || len(page.Rows) != rounds+1 {
			t.Errorf("lane %d has %d rows, %v, want %d", lane, len(page.Rows), err, rounds+1)
		}
	}
}

// A page ends after some MiB, so that its reader needs no more memory.
func TestRange_LargeRows(t *testing.T) {
	t.Parallel()
	const rows = 200
	store := openStore(t, embedded.Options{})
	for i := range rows {
		_, err := store.Table().Transact(t.Context(), "p", []storage.Op{
			upsert(fmt.Sprintf("m_%03d", i), map[string]any{"B": make([]byte, 60<<10)})})
		must(t, err)
	}

	var keys []string
	q := storage.Query{Partition: "p"}
	for more := true; more; {
		page, err := store.Table().Range(t.Context(), q)
		must(t, err)
		if len(page.Rows) > 80 || len(page.Rows) == 0 {
			t.Fatalf("got a page of %d rows of 60 KiB, want 1 to 80", len(page.Rows))
		}

		for _, row := range page.Rows {
			keys = append(keys, row.Key)
		}

		q.After, more = keys[len(keys)-1], page.More
	}

	if len(keys) != rows {
		t.Errorf("got %d rows in all, want %d", len(keys), rows)
	}
}

func TestClose_RefusesCalls(t *testing.T) {
	t.Parallel()
	store, err := embedded.Open(t.TempDir(), embedded.Options{})
	must(t, err)
	must(t, store.Close())
	must(t, store.Close())
	_, err = store.Table().Transact(t.Context(), "p", []storage.Op{upsert("k", nil)})
	if !storage.Is(err, storage.Unavailable) {
		t.Errorf("Transact: got %v, want an error of kind Unavailable", err)
	}

	if _, err = store.Table().Get(t.Context(), "p", "k"); !storage.Is(err, storage.Unavailable) {
		t.Errorf("Get: got %v, want an error of kind Unavailable", err)
	}
}
