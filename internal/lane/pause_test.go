package lane_test

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/lane/epochend"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

// listPauses returns the pauses in force, each as <key>:<reason>.
func (b *bench) listPauses() []string {
	b.t.Helper()
	c, err := b.faultless.ReadControl(b.t.Context(), 0)
	if err != nil {
		b.t.Fatal(err)
	}

	out := []string{}
	for _, p := range c.Pauses(time.Now()) {
		out = append(out, p.Key+":"+p.Reason)
	}

	return out
}

// pauseLane begins or changes a pause of the lane, or of a key.
func (b *bench) pauseLane(p weir.Pause) {
	b.t.Helper()
	p.Since = time.Now()
	if err := b.store.Pauses().Pause(b.t.Context(), p); err != nil {
		b.t.Fatal(err)
	}
}

// resumeKey ends the pause of a key, or of the lane if key is empty.
func (b *bench) resumeKey(key string) {
	b.t.Helper()
	if err := b.store.Pauses().Resume(b.t.Context(), 0, key); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) expectPauses(want ...string) {
	b.t.Helper()
	if got := b.listPauses(); fmt.Sprint(got) != fmt.Sprint(want) {
		b.t.Errorf("paused are %q, want %q", got, want)
	}
}

func TestPause_BeginsAndEnds(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		b.expectPauses()
		b.pauseLane(weir.Pause{Reason: "fire", Until: time.Now().Add(time.Hour)})
		b.pauseLane(weir.Pause{Key: "a", Reason: "odd"})
		b.pauseLane(weir.Pause{Key: "b", Reason: "also", Until: time.Now().Add(time.Minute)})
		b.pauseLane(weir.Pause{Reason: "great fire", Until: time.Now().Add(time.Hour)})
		c, err := b.faultless.ReadControl(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}

		if p, ok := c.LanePause(time.Now()); !ok || p.Reason != "great fire" ||
			!p.Until.Equal(time.Now().Add(time.Hour).Truncate(time.Microsecond)) ||
			p.Since.IsZero() {
			t.Errorf("got the pause %+v, want an hour for \"great fire\"", p)
		}

		if at, ok := c.NextWorkAt(time.Now()); !ok || at.After(time.Now()) {
			t.Errorf("NextWorkAt = %s, %t; want now, because the holder has to read the pauses", at,
				ok)
		}

		if len(b.listPauses()) != 3 {
			t.Errorf("paused are %q, want 3 pauses", b.listPauses())
		}

		time.Sleep(2 * time.Minute)
		b.expectPauses(":great fire", "a:odd")
		b.resumeKey("")
		b.resumeKey("") // there is no pause any more, so nothing changes
		b.expectPauses("a:odd")
		b.resumeKey("a")
		b.expectPauses()
	})
}

func TestPause_EndedPausesAreRemoved(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		b.pauseLane(weir.Pause{Key: "old", Reason: "r", Until: time.Now().Add(time.Second)})
		time.Sleep(time.Minute)
		b.pauseLane(weir.Pause{Key: "new", Reason: "r"})
		page, err := b.account.Table().Range(t.Context(),
			storage.Query{Partition: "1.0", From: "!pause", To: "!pause~"})
		if err != nil || len(page.Rows) != 1 {
			t.Errorf("%d rows of pauses, %v, want 1 and no error", len(page.Rows), err)
		}
	})
}

func TestPause_TooManyKeys(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		for i := range 200 {
			b.pauseLane(weir.Pause{Key: fmt.Sprint(i), Reason: "r"})
		}

		b.pauseLane(weir.Pause{Key: "7", Reason: "the same key again"})

		if err := b.store.Pauses().Pause(t.Context(), weir.Pause{Key: "one more", Reason: "r",
			Since: time.Now()}); weir.KindOf(err) != weir.Conflict {
			t.Errorf("one more: %v, want an error of kind Conflict", err)
		}

		b.pauseLane(weir.Pause{Reason: "the lane can still be paused"})
	})
}

func TestPause_SealedLane(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		b.pauseLane(weir.Pause{Key: "a", Reason: "r"})
		if err := (epochend.Lanes{Store: b.faultless}).Seal(t.Context(), 0); err != nil {
			t.Fatal(err)
		}

		if err := b.store.Pauses().Pause(t.Context(), weir.Pause{Reason: "r",
			Since: time.Now()}); weir.KindOf(err) != weir.Conflict {
			t.Errorf("pause: %v, want an error of kind Conflict", err)
		}

		// A pause can be ended in a sealed lane. Otherwise messages of a paused key would wait in
		// the lane for ever, and the lane would never become empty.
		b.resumeKey("a")
		b.expectPauses()
	})
}

func TestPause_LostAnswerIsNoFailure(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		lose := func() {
			b.faults.Once(func(c storagetest.Call) bool { return c.Op == "Transact" },
				storagetest.Fault{Kind: storagetest.FailAfter})
		}

		lose()
		b.pauseLane(weir.Pause{Reason: "r"})
		b.expectPauses(":r")
		lose()
		b.resumeKey("")
		b.expectPauses()
	})
}

// If a lane is sealed after Pause has read the control rows, Pause writes nothing.
func TestPause_SealedMeanwhile(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		b.faults.Once(func(c storagetest.Call) bool {
			if c.Op != "Transact" {
				return false
			}

			if err := (epochend.Lanes{Store: b.faultless}).Seal(t.Context(), 0); err != nil {
				t.Error(err)
			}
			return true
		}, storagetest.Fault{})

		if err := b.store.Pauses().Pause(t.Context(), weir.Pause{Reason: "fire"}); weir.KindOf(err) != weir.Conflict {
			t.Errorf("got %v, want an error of kind Conflict", err)
		}

		if c, err := b.faultless.ReadControl(t.Context(), 0); err != nil ||
			len(c.Pauses(time.Now())) > 0 {
			t.Errorf("got %+v, %v, want no pause and no error", c, err)
		}
	})
}
