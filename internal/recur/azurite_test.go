package recur_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"sync"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/recur"
	"weir/internal/storage"
	"weir/internal/storage/azure"
	"weir/internal/storage/storagetest"
	"weir/internal/testkit/azurite"
	"weir/internal/weir"
)

// TestRunner_OnAzurite repeats some tests on Azurite: rows, conditions, large messages, and several
// processes that accept the message of the same occurrence concurrently.
func TestRunner_OnAzurite(t *testing.T) {
	t.Parallel()
	account, err := azure.Open(azure.Config{ConnectionString: azurite.Shared(t),
		Prefix: fmt.Sprintf("recur%d", time.Now().UnixNano())})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(account.Close)
	if err := account.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}

	lanes := &lane.Store{Table: storagetest.Patient(account.Table()), Bodies: account.Bodies(),
		Lanes: 2, Now: time.Now}
	if err := lanes.Open(t.Context()); err != nil {
		t.Fatal(err)
	}

	clock := &clock{now: time.Date(2026, 1, 8, 12, 0, 0, 0, time.UTC)}
	process := func() *recur.Runner {
		r := recur.New(recur.Config{
			Store: &recur.Store{Table: storagetest.Patient(account.Table()),
				Bodies: account.Bodies(), Now: clock.Now},
			Log: struct {
				*lane.Appender
				lane.Messages
			}{lane.NewAppender(lanes, quiet), lanes.Messages()},
			Contracts: contracts{}, Waker: noRinger{}, Now: clock.Now, Logger: quiet,
		})

		t.Cleanup(func() { r.Close(context.Background()) })
		return r
	}

	a := process()
	large := newDefinition("0 * * * *", withKey("large"), func(d *recur.Definition) {
		d.Start, d.End = clock.Now().Add(-time.Hour), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
		noise := make([]byte, 300<<10)
		_, _ = rand.Read(noise)
		d.Message = append(d.Message, base64.StdEncoding.EncodeToString(noise)...)
		d.Missed, d.Overlap = recur.All, recur.Skip
	})

	put := func(name string, d recur.Definition, cond recur.Condition) (recur.Schedule, error) {
		s, _, err := a.Put(t.Context(), name, d, cond)
		return s, err
	}

	first, err := put("large", large, recur.Condition{NotExists: true})
	if err != nil {
		t.Fatal(err)
	}

	got, err := a.Get(t.Context(), "large")
	if err != nil || string(got.Message) != string(large.Message) ||
		!got.Start.Equal(large.Start) ||
		!got.End.Equal(large.End) || got.Overlap != recur.Skip || !got.NextAt.Equal(first.NextAt) ||
		got.Version != first.Version {
		t.Errorf("got %+v, %v, want Message %.40q, Start %v, End %v, Overlap %v, NextAt %v, Version %v and no error",
			got.State, err, string(large.Message), large.Start, large.End, recur.Skip, first.NextAt,
			first.Version)
	}

	_, err = put("large", newDefinition("@daily"), recur.Condition{NotExists: true})
	if weir.KindOf(err) != weir.Stale {
		t.Errorf("Put with NotExists of a schedule that exists: got %v, want Stale", err)
	}

	if _, err := put("every", newDefinition("@every 1h",
		func(d *recur.Definition) { d.Missed = recur.All }), recur.Condition{}); err != nil {
		t.Fatal(err)
	}

	a.Close(t.Context())
	clock.Add(3 * time.Hour)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := process().Load(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}

	wg.Wait()
	b := process()
	if err := fileByPut(t, b, "every"); err != nil { // while the timers of the other processes fire
		t.Fatal(err)
	}

	count := 0
	for number := range lanes.Lanes {
		entries, err := lanes.ReadLog(t.Context(), number, 1, 100)
		if err != nil {
			t.Fatal(err)
		}

		for _, e := range entries {
			if e.Message.Key == "k" {
				count++
			}
		}
	}

	if s, err := b.Get(t.Context(), "every"); err != nil || s.Filed != 3 || count != 3 {
		t.Errorf("got %d messages for three occurrences, %+v, %v; want 3 messages, Filed 3 and no error",
			count, s.State, err)
	}

	if err := b.Delete(t.Context(), "large", recur.Condition{Versions: []string{first.Version}}); err != nil {
		t.Error(err)
	}

	page, err := account.Bodies().List(t.Context(), "schedules/", "")
	if list, listErr := b.List(t.Context()); err != nil || listErr != nil || len(list) != 1 ||
		len(page.Infos) != 0 {
		t.Errorf("after Delete: got %d schedules and %d blobs, errors %v and %v; want 1 schedule, no blob, no error",
			len(list), len(page.Infos), err, listErr)
	}
}

// fileByPut replaces the definition of a schedule. Before Put stores the new definition, Put
// accepts the messages of the old definition's due occurrences.
func fileByPut(t *testing.T, r *recur.Runner, name string) error {
	t.Helper()
	s, err := r.Get(t.Context(), name)
	if err != nil {
		return err
	}

	d := s.Definition
	d.End = time.Date(9000+time.Now().Nanosecond()%900, 1, 1, 0, 0, 0, 0, time.UTC)
	_, _, err = r.Put(t.Context(), name, d, recur.Condition{})
	if weir.KindOf(err) == weir.Unavailable && err != nil || storage.Is(err, storage.Ambiguous) {
		return fileByPut(t, r, name)
	}

	return err
}

// clock is a clock that only Add moves forward.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
