package outbox_test

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/lane/outbox"
	"weir/internal/storage"
	"weir/internal/testkit/lanetest"
)

// bench has the outbox of one lane, on storage in memory.
type bench struct {
	t     *testing.T
	store *lane.Store
	box   outbox.Outbox
}

func newBench(t *testing.T) *bench {
	t.Helper()
	s := lanetest.New(t, 1).Store
	return &bench{t: t, store: s, box: outbox.Outbox{Table: s.Table, Partition: s.Partition(0)}}
}

func (b *bench) readMarker() storage.ETag {
	b.t.Helper()
	c, err := b.store.ReadControl(b.t.Context(), 0)
	if err != nil {
		b.t.Fatal(err)
	}
	return outbox.MarkerOf(c)
}

// insertEvents adds events to the outbox, and returns the events as it reads them from the outbox.
func (b *bench) insertEvents(count int) []outbox.Event {
	b.t.Helper()
	for n := range count {
		e := outbox.NewEvent("test", fmt.Sprint(n), time.Now(), "receiver", nil)
		if err := b.box.Enqueue(b.t.Context(), []outbox.Event{e}); err != nil {
			b.t.Fatal(err)
		}
	}

	page, err := b.box.Read(b.t.Context(), time.Now(), "", count+1)
	if err != nil || len(page.Due) != count {
		b.t.Fatalf("got %d events, %v, want %d", len(page.Due), err, count)
	}

	return page.Due
}

// A sender reads the events and then stalls, and another sender postpones one of the events. The
// first sender's Ack must keep the marker, because without the marker no sender would read the
// postponed event. The test has so many events that this Ack needs two transactions.
func TestAck_KeepsTheMarkerIfAnotherSenderHasPostponedAnEvent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	seen := b.insertEvents(storage.MaxOps + 20)
	marker := b.readMarker()
	later := seen[0]
	later.NextAt = later.NextAt.Add(time.Minute)
	_, whole, err := b.box.Ack(t.Context(), nil,
		[]outbox.Postponement{{Was: seen[0], Is: later}}, "")
	if !whole || err != nil {
		t.Fatalf("the other sender postpones an event: got whole %t, error %v; want whole true",
			whole, err)
	}

	isEmpty, whole, err := b.box.Ack(t.Context(), seen, nil, marker)
	if isEmpty || whole || err != nil {
		t.Errorf("got empty %t, whole %t, error %v; want false, false and no error", isEmpty,
			whole, err)
	}

	if got := b.readMarker(); got != marker {
		t.Errorf("got version %q of the marker, want %q", got, marker)
	}

	page, err := b.box.Read(t.Context(), later.NextAt, "", 10)
	if err != nil || len(page.Due) != 1 || !page.Due[0].NextAt.Equal(later.NextAt) {
		t.Errorf("got the due events %+v, %v, want the postponed event", page.Due, err)
	}
}

func TestClearMarker_KeepsAMarkerThatWasWrittenAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.insertEvents(1)
	old := b.readMarker()

	if err := b.box.Enqueue(t.Context(),
		[]outbox.Event{outbox.NewEvent("test", "late", time.Now(), "receiver", nil)}); err != nil {
		t.Fatal(err)
	}

	if isEmpty, err := b.box.ClearMarker(t.Context(), old); isEmpty || err != nil {
		t.Errorf("with the old version: got empty %t, %v, want false", isEmpty, err)
	}

	if isEmpty, err := b.box.ClearMarker(t.Context(), b.readMarker()); !isEmpty || err != nil {
		t.Errorf("with the present version: got empty %t, %v, want true", isEmpty, err)
	}

	if got := b.readMarker(); got != "" {
		t.Errorf("got a marker of version %q, want none", got)
	}
}
