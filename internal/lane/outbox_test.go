package lane_test

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
)

// If a sender that was suspended removes more events than one transaction takes, and another sender has
// postponed some of them meanwhile, the marker stays. Without it no sender would look for the postponed events.
func TestMailed_LeavesTheNoteIfAnotherSenderPutMailOff(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		seen := b.fillOutbox(storage.MaxOps + 20)
		note := b.readControl().OutboxMarker()
		later := seen[0]
		later.NextAt = later.NextAt.Add(time.Minute)
		if _, whole, err := b.eyes.AckEvents(t.Context(), 0, nil, []lane.Postponement{{Was: seen[0], Is: later}},
			""); !whole || err != nil {
			t.Fatalf("the other sender put mail off: whole %t, %v; want true", whole, err)
		}
		quiet, whole, err := b.eyes.AckEvents(t.Context(), 0, seen, nil, note)
		if quiet || whole || err != nil {
			t.Errorf("Mailed = quiet %t, whole %t, %v; want false, false", quiet, whole, err)
		}
		if got := b.readControl().OutboxMarker(); got != note {
			t.Errorf("the note has version %q; want %q", got, note)
		}
		box, err := b.eyes.ReadOutbox(t.Context(), 0, later.NextAt, 10)
		if err != nil || len(box.Due) != 1 || !box.Due[0].NextAt.Equal(later.NextAt) {
			t.Errorf("the outbox holds %+v, %v; want the mail that was put off", box.Due, err)
		}
	})
}

// fillOutbox puts events into the outbox, and returns them as a sender reads them.
func (b *bench) fillOutbox(count int) []lane.Event {
	b.t.Helper()
	for n := range count {
		mail := lane.NewEvent("test", fmt.Sprint(n), time.Now(), "receiver", nil)
		if err := b.eyes.EnqueueEvents(b.t.Context(), 0, []lane.Event{mail}); err != nil {
			b.t.Fatal(err)
		}
	}
	box, err := b.eyes.ReadOutbox(b.t.Context(), 0, time.Now(), count+1)
	if err != nil || len(box.Due) != count {
		b.t.Fatalf("the outbox holds %d, %v; want %d", len(box.Due), err, count)
	}
	return box.Due
}

func (b *bench) readControl() lane.Control {
	b.t.Helper()
	c, err := b.eyes.ReadControl(b.t.Context(), 0)
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}
