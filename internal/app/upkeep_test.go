package app

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/audit"
	"weir/internal/inbox"
	"weir/internal/storage"
	"weir/internal/testkit/lanetest"
	"weir/internal/upkeep"
)

// newTestKeeper returns the upkeep of a process, on storage in memory. The settings keep the audit
// log for two days, and the archive of files for three.
func newTestKeeper(t *testing.T, lanes *lanetest.Lanes, accepted storage.Files) (*upkeep.Keeper,
	*audit.Log) {
	t.Helper()
	a, err := New(newEnvironment(t,
		minimal+"\nauditRetention: 48h\nintake: { files: { retention: 72h } }\n"),
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}

	r := &running{App: a, pipeline: &pipeline{store: lanes.Store},
		audit: a.newAuditLog(lanes.Store.Table)}
	r.inbox = inbox.New(inbox.Config{Inbox: lanes.Account.Files("inbox"), Accepted: accepted,
		Rejected: lanes.Account.Files("rejected"), Retention: 72 * time.Hour, Now: time.Now,
		Logger: a.log})

	return r.newKeeper(lanes.Account.Leases()), r.audit
}

// sweepFor begins a round of upkeep each minute.
func sweepFor(k *upkeep.Keeper, span time.Duration) {
	for range span / time.Minute {
		k.BeginPass()
		time.Sleep(time.Minute)
	}
}

// longArchive is an archive of n files, of which only the last one is past its retention. A page
// takes a second.
type longArchive struct {
	n       int
	since   time.Time
	removed bool
	lists   int
}

func (m *longArchive) List(ctx context.Context, prefix, marker string) (storage.FilePage, error) {
	if prefix != "" {
		return storage.FilePage{}, nil
	}

	m.lists++

	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return storage.FilePage{},
			&storage.Error{Op: "file list", Kind: storage.Unavailable, Index: -1, Err: ctx.Err()}
	}

	from, _ := strconv.Atoi(marker)

	// To keep the test fast, a page shows only the last of its thousand files.
	last := min(from+1000, m.n) - 1
	page := storage.FilePage{Files: []storage.File{{Name: fmt.Sprintf("%09d/a.xml", last), ModifiedAt: time.Now()}}}
	if last == m.n-1 {
		page.Files[0].ModifiedAt = m.since
	} else {
		page.Next = strconv.Itoa(last + 1)
	}

	return page, nil
}

func (m *longArchive) Delete(context.Context, string, storage.ETag) error {
	m.removed = true
	return nil
}

func (m *longArchive) Read(context.Context, string, storage.ETag, int64, int64) ([]byte, error) {
	return nil, nil
}

func (m *longArchive) Write(context.Context, string, string, map[string]string, io.Reader) error {
	return nil
}

// A long archive of files keeps no other job from its work, and its own last file is removed, too.
func TestUpkeep_ALongArchiveStarvesNoJob(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lanes := lanetest.New(t, 1)
		forgotten := time.Now().UTC().Format(time.DateOnly) + "/1.0/forgotten"
		if err := lanes.Account.Blobs().Put(t.Context(), forgotten, []byte("x")); err != nil {
			t.Fatal(err)
		}

		archive := &longArchive{n: 200_000, since: time.Now()}
		k, _ := newTestKeeper(t, lanes, archive)
		sweepFor(k, 5*24*time.Hour)
		lanetest.Close(t, k)
		_, err := lanes.Account.Blobs().Get(t.Context(), forgotten)
		if !archive.removed || !storage.Is(err, storage.NotFound) {
			t.Errorf("got the file past its retention removed: %v, the forgotten body: %v; want both removed",
				archive.removed, err)
		}

		if most := 2 * 5 * 200; archive.lists > most {
			t.Errorf("got %d listings in five days, want at most %d", archive.lists, most)
		}
	})
}

// Twelve instances write the history for three weeks, and operators change 26,000 messages in an
// hour. The clean-up removes everything that is expired.
func TestUpkeep_HistoryAndAuditLogStayBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lanes := lanetest.New(t, 1)
		table := lanes.Store.Table
		k, log := newTestKeeper(t, lanes, lanes.Account.Files("accepted"))
		const days, instances = 21, 12
		for hour := range days * 24 {
			var ops []storage.Op
			for i := range instances {
				ops = append(ops, storage.Op{Kind: storage.Upsert, Values: map[string]any{},
					Key: fmt.Sprintf("%s_other%02d", time.Now().UTC().Format("2006010215"), i)})
			}

			if _, err := table.Transact(t.Context(), "history", ops); err != nil {
				t.Fatal(err)
			}

			if hour == 0 {
				for range 26_000 {
					log.Record(t.Context(), audit.Entry{Action: "cancel", Subject: "m"})
				}
			}

			for range 6 {
				k.BeginPass()
				time.Sleep(10 * time.Minute)
			}
		}

		lanetest.Close(t, k)
		old := time.Now().UTC().Add(-8*24*time.Hour - 2*time.Hour).Format("2006010215")
		if n := len(listRows(t, table, storage.Query{Partition: "history", To: old})); n > 0 {
			t.Errorf("got %d rows of the history that are over eight days old, want none", n)
		}

		for _, row := range listRows(t, table, storage.Query{Partition: "audit"}) {
			if !strings.HasPrefix(row, "a_") {
				t.Fatalf("got the row %s of the audit log, want none after two days", row)
			}
		}
	})
}

func listRows(t *testing.T, table storage.Table, q storage.Query) (keys []string) {
	t.Helper()
	for q.Columns = []string{}; ; {
		page, err := table.Range(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}

		for _, row := range page.Rows {
			keys, q.After = append(keys, row.Key), row.Key
		}

		if !page.More {
			return keys
		}
	}
}
