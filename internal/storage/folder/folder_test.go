package folder_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/embedded"
	"weir/internal/storage/folder"
	"weir/internal/storage/storagetest"
)

// clock changes its time only in Advance.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// shortDir returns a folder of the test whose path is short enough for a socket on each system.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })

	return dir
}

// openBoth opens a folder twice: for the process that has it, and for another one.
func openBoth(t *testing.T, o embedded.Options) (owner, other folder.Account) {
	t.Helper()
	dir := shortDir(t)
	o.Program = "weir serve"
	owner, err := folder.Own(dir, o)
	must(t, err)
	t.Cleanup(func() { must(t, owner.Close()) })
	other, err = folder.Open(t.Context(), dir, embedded.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, other.Close()) })

	if owner.Owner().Process != 0 || other.Owner().Program != "weir serve" {
		t.Fatalf("got the owners %+v and %+v, want none, and weir serve", owner.Owner(),
			other.Owner())
	}

	return owner, other
}

func openOther(t *testing.T, o embedded.Options) folder.Account {
	t.Helper()
	_, other := openBoth(t, o)

	return other
}

func TestOther_TableConformance(t *testing.T) {
	t.Parallel()
	storagetest.Table(t, func(t *testing.T) storage.Table { return openOther(t, embedded.Options{}).Table() })
}

func TestOther_PartitionsConformance(t *testing.T) {
	t.Parallel()
	storagetest.Partitions(t, func(t *testing.T) (storage.Table, storage.Partitions) {
		other := openOther(t, embedded.Options{})
		return other.Table(), other
	})
}

func TestOther_QueueConformance(t *testing.T) {
	t.Parallel()
	c := newClock()
	storagetest.Queue(t, storagetest.QueueHarness{
		Open: func(t *testing.T) storagetest.QueuePort {
			return openOther(t, embedded.Options{Now: c.Now}).Tickets()
		},
		Advance: c.Advance,
	})
}

func TestOther_BlobsConformance(t *testing.T) {
	t.Parallel()
	storagetest.Blobs(t, func(t *testing.T) storagetest.BlobPort { return openOther(t, embedded.Options{}).Bodies() })
}

func TestOther_FilesConformance(t *testing.T) {
	t.Parallel()
	storagetest.Files(t, func(t *testing.T) storage.Files { return openOther(t, embedded.Options{}).Inbox() })
}

func TestOther_LeasesConformance(t *testing.T) {
	t.Parallel()
	c := newClock()
	storagetest.Leases(t, storagetest.LeaseHarness{
		Open: func(t *testing.T) storage.Leases {
			return openOther(t, embedded.Options{Now: c.Now}).Leases()
		},
		Advance: c.Advance,
	})
}

func TestOther_LeaseBlobsConformance(t *testing.T) {
	t.Parallel()
	storagetest.LeaseBlobs(t, func(t *testing.T) (storage.Leases, storagetest.LeaseBlobPort) {
		other := openOther(t, embedded.Options{})
		return other.Leases(), other.LeaseBlobs()
	})
}

// Both processes use the same store and the same leases.
func TestOpen_SharesTheStore(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	owner, other := openBoth(t, embedded.Options{})
	const ours, theirs = "0f8fad5b-d9cb-469f-a165-70867728950e",
		"7c9e6679-7425-40de-944b-e07fc1f90ae7"
	must(t, owner.Leases().Acquire(ctx, "lane-1.0", ours, time.Minute))

	if err := other.Leases().Acquire(ctx, "lane-1.0", theirs, time.Minute); !storage.Is(err,
		storage.Conflict) {
		t.Errorf("got %v for a lease of the owner, want an error of kind Conflict", err)
	}

	_, err := owner.Table().Transact(ctx, "1.0", []storage.Op{{Kind: storage.Insert, Key: "k"}})
	must(t, err)
	must(t, owner.Poison().Put(ctx, "poison", 0))
	must(t, owner.InboxEvents().Put(ctx, "event", 0))
	must(t, owner.Accepted().Write(ctx, "accepted", "text/xml", nil, strings.NewReader("<a/>")))
	must(t, owner.Rejected().Write(ctx, "rejected", "text/xml", nil, strings.NewReader("<r/>")))

	var names []string
	must(t, other.Partitions(ctx, func(name string) error {
		names = append(names, name)
		return nil
	}))

	if !slices.Equal(names, []string{"1.0"}) {
		t.Errorf("got the partitions %q, want 1.0", names)
	}

	for text, q := range map[string]storage.Queue{"poison": other.Poison(),
		"event": other.InboxEvents()} {
		if got, err := q.Get(ctx, 1, time.Minute); err != nil || len(got) != 1 ||
			got[0].Text != text {
			t.Errorf("got %+v, %v, want the message %s", got, err, text)
		}
	}

	for name, f := range map[string]storage.Files{"accepted": other.Accepted(),
		"rejected": other.Rejected()} {
		if page, err := f.List(ctx, "", ""); err != nil || len(page.Files) != 1 ||
			page.Files[0].Name != name {
			t.Errorf("got %+v, %v, want the file %s", page, err, name)
		}
	}

	r, err := other.Check(ctx)
	if err != nil || r.Rows != 1 || r.Blobs != 2 || r.Messages != 2 || len(r.Problems) > 0 {
		t.Errorf("got %+v, %v, want 1 row, 2 files and 2 messages without problems", r, err)
	}

	must(t, other.Scrub(ctx))

	var copied bytes.Buffer
	must(t, other.Backup(ctx, &copied))
	file, restored := filepath.Join(shortDir(t), "backup"), filepath.Join(shortDir(t), "restored")
	must(t, os.WriteFile(file, copied.Bytes(), 0o600))
	must(t, embedded.Restore(restored, file))
	third, err := folder.Open(ctx, restored, embedded.Options{})
	must(t, err)
	if _, err := third.Table().Get(ctx, "1.0", "k"); err != nil {
		t.Errorf("got %v of the restored row, want no error", err)
	}

	must(t, third.Close())
}

func TestOwn_InUse(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	owner, err := folder.Own(dir, embedded.Options{})
	must(t, err)
	defer func() { must(t, owner.Close()) }()
	var inUse *embedded.InUseError
	if _, err := folder.Own(dir, embedded.Options{}); !errors.As(err, &inUse) {
		t.Errorf("got %v, want an InUseError", err)
	}
}

// A killed process leaves its socket.
func TestOwn_SocketLeftOver(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	must(t, os.WriteFile(filepath.Join(dir, "weir.sock"), nil, 0o600))
	owner, err := folder.Own(dir, embedded.Options{})
	must(t, err)
	other, err := folder.Open(t.Context(), dir, embedded.Options{})
	must(t, err)
	must(t, other.Close())
	must(t, owner.Close())
}

// If the process that has the folder ends, the result of a write is unknown or it was not sent, and
// later reads fail.
func TestOther_OwnerEnds(t *testing.T) {
	t.Parallel()
	ctx, dir := t.Context(), shortDir(t)
	owner, err := folder.Own(dir, embedded.Options{})
	must(t, err)
	other, err := folder.Open(ctx, dir, embedded.Options{})
	must(t, err)
	defer func() { must(t, other.Close()) }()
	must(t, owner.Close())

	if _, err := other.Table().Get(ctx, "p", "k"); !storage.Is(err, storage.Unavailable) {
		t.Errorf("Get: got %v, want an error of kind Unavailable", err)
	}

	_, err = other.Table().Transact(ctx, "p", []storage.Op{{Kind: storage.Insert, Key: "k"}})
	if !storage.Is(err, storage.Unavailable) && !storage.Is(err, storage.Ambiguous) {
		t.Errorf("Transact: got %v, want an error of kind Unavailable or Ambiguous", err)
	}

	if err := other.Backup(ctx, &bytes.Buffer{}); err == nil {
		t.Error("Backup: got no error, want one")
	}
}

// A store can have a lock and no socket, if another version of the program has it.
func TestOpen_NoSocket(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	store, err := embedded.Open(dir, embedded.Options{Program: "weir serve"})
	must(t, err)
	defer func() { must(t, store.Close()) }()
	_, err = folder.Open(t.Context(), dir, embedded.Options{})
	if err == nil || !strings.Contains(err.Error(), "weir serve has this folder open") ||
		!strings.Contains(err.Error(), "does not answer at its socket") {
		t.Errorf("got %v, want the process, and that it does not answer", err)
	}
}

func TestOwn_PathTooLong(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(shortDir(t), strings.Repeat("long", 30))
	_, err := folder.Own(dir, embedded.Options{})
	if want := "take a folder with a shorter path"; err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Fatalf("got %v, want %q", err, want)
	}
}
