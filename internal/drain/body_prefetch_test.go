package drain

import (
	"fmt"
	"testing"
	"testing/synctest"

	"golang.org/x/sync/semaphore"

	"weir/internal/lane"
	"weir/internal/weir"
)

// checkRoom checks the number of bytes that prefetched bodies have of the room.
func checkRoom(t *testing.T, when string, room *semaphore.Weighted, want int64) {
	t.Helper()
	if !room.TryAcquire(maxPrefetchTotal - want) {
		t.Errorf("%s: got less room left than %d bytes", when, maxPrefetchTotal-want)
		return
	}

	if room.TryAcquire(1) {
		room.Release(1)
		t.Errorf("%s: got more room left than %d bytes", when, maxPrefetchTotal-want)
	}

	room.Release(maxPrefetchTotal - want)
}

// The lanes of a process share the room for prefetched bodies. A body without room is loaded when
// it is sent. A body that was sent or forgotten frees its room, and so does the end of a session.
func TestBodyPrefetch_LanesShareTheRoom(t *testing.T) {
	runWithParts(t, func(t *testing.T, p *sessionParts) {
		p.appendMessages("a", "b", "c", "d", "e")
		entries := p.readLog()
		const size = maxPrefetchBytes / 4
		for _, e := range entries {
			e.Message.Body, e.Message.Size = nil, size
		}

		room := newPrefetchRoom()
		one, other := &bodyPrefetch{store: p.store, room: room},
			&bodyPrefetch{store: p.store, room: room}
		one.prefetchAll(t.Context(), entries[:4])
		checkRoom(t, "four bodies", room, 4*size)
		one.prefetchAll(t.Context(), entries[1:4])
		checkRoom(t, "three of them", room, 3*size)

		if err := one.loadBody(t.Context(), entries[1]); err != nil ||
			len(entries[1].Message.Body) == 0 {
			t.Errorf("load: got %q, %v; want the body", entries[1].Message.Body, err)
		}

		checkRoom(t, "after one was loaded", room, 2*size)

		if !room.TryAcquire(maxPrefetchTotal - 2*size) {
			t.Fatal("got no room, want the rest of it")
		}

		other.prefetchAll(t.Context(), entries[4:])
		if len(other.running) != 0 {
			t.Error("without room: got a body prefetched, want none")
		}

		if err := other.loadBody(t.Context(), entries[4]); err != nil ||
			len(entries[4].Message.Body) == 0 {
			t.Errorf("without room: got %q, %v; want the body", entries[4].Message.Body, err)
		}

		room.Release(maxPrefetchTotal - 2*size)
		one.forgetAll()
		synctest.Wait()
		checkRoom(t, "at the end", room, 0)
	})
}

// However large the first bodies of many lanes are, they have no more memory than the room has.
func TestBodyPrefetch_ManyLanesStayInTheRoom(t *testing.T) {
	runWithParts(t, func(t *testing.T, p *sessionParts) {
		room := newPrefetchRoom()
		var prefetched int64
		var lanes []*bodyPrefetch
		for n := range 1024 {
			e := p.store.NewEntry(weir.Message{Key: fmt.Sprint(n), Body: []byte("<a/>"),
				Size: 1 << 20})
			l := &bodyPrefetch{store: p.store, room: room}
			l.prefetchAll(t.Context(), []*lane.Entry{e})
			for at := range l.running {
				prefetched += int64(at.Message.Size)
			}

			lanes = append(lanes, l)
		}

		if prefetched != maxPrefetchTotal {
			t.Errorf("got %d bytes prefetched over 1024 lanes, want %d", prefetched,
				maxPrefetchTotal)
		}

		for _, l := range lanes {
			l.forgetAll()
		}

		synctest.Wait()
		checkRoom(t, "at the end", room, 0)
	})
}
