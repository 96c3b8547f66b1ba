package drain

import (
	"strings"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

// A holder is slower than the receiver of its process, and wakes after each append. The messages
// that wait in memory and their bodies stay bounded; the others are read from the log.
func TestReadAhead_TakesFewAppends(t *testing.T) {
	t.Parallel()
	const size = 10 << 10
	for name, c := range map[string]struct {
		memory *laneMemory
		most   int // bytes of bodies
	}{
		"Alone":            {newLaneMemory(0), pageBytes},
		"AmongOtherLanes":  {newLaneMemory(6 * 64 << 10), 64 << 10},
		"AmongManySession": {newLaneMemory(0), int(defaultMemory / 6 / 1024)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "AmongManySession" {
				for range 1024 {
					defer c.memory.beginSession()()
				}
			}

			appends := &recentAppends{room: c.memory.appends}
			w := &readAhead{store: &lane.Store{Lanes: 1, Now: time.Now}, appends: appends,
				memory: c.memory, nextRead: 1, dues: &dueCache{}, hasCaughtUp: true, isAtEnd: true}

			for seq := range int64(5000) {
				body := []byte(strings.Repeat("x", size))
				appends.addMessages(
					[]weir.Message{{ID: weir.ID{Seq: seq + 1}, Key: "k", Body: body, Size: size}})
				w.onWake()
			}

			bytes := 0
			for _, e := range w.entries {
				if e.HasBody() {
					bytes += e.Message.Size
				}
			}

			if len(w.entries) > pageMax || bytes > max(c.most, size) || bytes == 0 {
				t.Errorf("%d messages with %d bytes of bodies wait in memory, want at most %d and %d", len(w.entries),
					bytes, pageMax, max(c.most, size))
			}

			if w.isAtEnd {
				t.Error("the log counts as read, want the other messages to be read from it")
			}

			if !c.memory.appends.TryAcquire(c.memory.part - int64(appends.bytes)) {
				t.Error("the room of recent appends is used up, want that of the messages that were taken to be free")
			}
		})
	}
}

// If no room is left for a page, it is read without bodies.
func TestReadAhead_ReadsAPageWithoutBodies(t *testing.T) {
	runWithParts(t, func(t *testing.T, p *sessionParts) {
		p.appendMessages("a", "b", "c")
		p.readAhead.memory = newLaneMemory(1 << 20)
		p.readAhead.appends = &recentAppends{room: p.readAhead.memory.appends}
		for p.readAhead.memory.reservePage(pageMin) != nil { // other lanes read pages
		}
		p.readAhead.startRead(t.Context())
		if _, err := p.readAhead.awaitRead(t.Context()); err != nil {
			t.Fatal(err)
		}

		if n := len(p.readAhead.entries); n != 3 {
			t.Fatalf("got %d messages, want 3", n)
		}

		for _, e := range p.readAhead.entries {
			if e.HasBody() {
				t.Errorf("message %d has its body in memory, want none", e.Seq())
			}
			if err := p.store.LoadBody(t.Context(), e); err != nil || len(e.Message.Body) == 0 {
				t.Errorf("LoadBody = %v with %d bytes, want the body", err, len(e.Message.Body))
			}
		}
	})
}
