package drain

import (
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

// newScheduledEntry returns the entry of a scheduled message that was accepted an hour before noon.
func newScheduledEntry(seq int64, key string, dueAt time.Time) *lane.Entry {
	return (&lane.Store{}).NewEntry(
		weir.Message{ID: weir.ID{Epoch: 1, Seq: seq}, Key: key, AcceptedAt: noon.Add(-time.Hour),
			DueAt: dueAt},
	)
}

func TestKeyStates_UnparkGoesOnWithTheNext(t *testing.T) {
	t.Parallel()
	ks := newKeyStates(func() time.Time { return noon }, Backoff{})
	room := memoryRoom{maxHeldEntries, maxHeldBytes}
	first, second := newScheduledEntry(1, "a", noon),
		newScheduledEntry(2, "a", noon.Add(time.Second))
	for _, e := range []*lane.Entry{first, second} {
		(&lane.Change{}).Release(e, 5, &ks.lastReleasedAt)
		ks.byID[e.BlockID()] = ks.byID[e.BlockID()].join(e, 5, &room)
	}

	k := ks.byID[first.BlockID()]
	if !k.isInMemory() || k.first != first || k.last() != second {
		t.Fatalf("after two moves: first %v, last %v, in memory %v; want messages 1 and 2, in memory",
			k.first, k.last(), k.isInMemory())
	}

	ks.unpark(k, &lane.Change{}, first.AsHeld())

	if k.first != second || k.HeldCount != 1 || !k.NextAt.Equal(second.Message.DueAt) {
		t.Errorf("after the first has left: first %v, %d held, next at %v; want message 2, 1, at %v",
			k.first, k.HeldCount, k.NextAt, second.Message.DueAt)
	}

	ks.unpark(k, &lane.Change{}, second.AsHeld())
	if len(ks.byID) != 0 {
		t.Errorf("after both have left: got %d blocks, want none", len(ks.byID))
	}
}

// If storage refuses the write by which a due message joins a block, the holder restores the
// block's former state. So join must not change that state.
func TestKeyState_JoinLeavesTheFormerState(t *testing.T) {
	t.Parallel()
	var placed time.Time
	room := memoryRoom{maxHeldEntries, maxHeldBytes}
	first := newScheduledEntry(1, "a", noon)
	(&lane.Change{}).Release(first, 5, &placed)
	var none *keyState
	before := none.join(first, 5, &room)
	for _, seq := range []int64{2, 3} {
		e := newScheduledEntry(seq, "a", noon.Add(time.Second))
		(&lane.Change{}).Release(e, 5, &placed)

		if after := before.join(e, 5, &room); after.HeldCount != 2 || len(after.rest) != 1 ||
			after.rest[0] != e {
			t.Errorf("after the move of %d: %d held, rest %v; want 2 held, and it behind the first",
				seq, after.HeldCount, after.rest)
		}
	}

	if before.HeldCount != 1 || len(before.rest) != 0 {
		t.Errorf("the former state has %d held, rest %v; want 1 and none", before.HeldCount,
			before.rest)
	}
}

func TestKeyStates_RoomInMemory(t *testing.T) {
	t.Parallel()
	e := newLogEntry(1, "a")
	e.Message.Body, e.Message.Size = make([]byte, 10), 10
	for name, c := range map[string]struct {
		room       memoryRoom
		kept, body bool
	}{
		"ForAll":        {memoryRoom{1, 10}, true, true},
		"ForNoBody":     {memoryRoom{1, 9}, true, false},
		"ForNoMessages": {memoryRoom{0, 10}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := *e
			got := c.room.keep(&e)
			if (got != nil) != c.kept || got != nil && got.HasBody() != c.body {
				t.Errorf("got %v, want kept %v, with body %v", got, c.kept, c.body)
			}
		})
	}
}

// The messages of a paused key keep their order even if the clock is set back.
func TestKeyStates_ParkedTimesRise(t *testing.T) {
	t.Parallel()
	now := noon
	ks := newKeyStates(func() time.Time { return now }, Backoff{})
	first := ks.nextParkedAt()
	now = noon.Add(-time.Second)
	if second := ks.nextParkedAt(); !second.After(first) {
		t.Errorf("second parked time %v, want one after %v", second, first)
	}

	ks.lastReleasedAt = noon.Add(time.Hour) // as written by a holder with a wrong clock
	if got, latest := ks.nextParkedAt(), now.Add(maxSkew); got.After(latest) {
		t.Errorf("got %v, want no later than %v", got, latest)
	}
}
