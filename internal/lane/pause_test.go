package lane_test

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

// pauses returns the pauses in force as text.
func (b *bench) pauses() []string {
	b.t.Helper()
	c, err := b.eyes.ReadControl(b.t.Context(), 0)
	if err != nil {
		b.t.Fatal(err)
	}
	out := []string{}
	for _, p := range c.Pauses(time.Now()) {
		out = append(out, p.Key+":"+p.Reason)
	}
	return out
}

func (b *bench) pause(p weir.Pause) {
	b.t.Helper()
	p.Since = time.Now()
	if err := b.store.Pause(b.t.Context(), p); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) resume(key string) {
	b.t.Helper()
	if err := b.store.Resume(b.t.Context(), 0, key); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) paused(want ...string) {
	b.t.Helper()
	if got := b.pauses(); fmt.Sprint(got) != fmt.Sprint(want) {
		b.t.Errorf("paused are %q, want %q", got, want)
	}
}

func TestPause_ComesAndGoes(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		b.paused()
		b.pause(weir.Pause{Reason: "fire", Until: time.Now().Add(time.Hour)})
		b.pause(weir.Pause{Key: "a", Reason: "odd"})
		b.pause(weir.Pause{Key: "b", Reason: "also", Until: time.Now().Add(time.Minute)})
		b.pause(weir.Pause{Reason: "great fire", Until: time.Now().Add(time.Hour)})
		c, err := b.eyes.ReadControl(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if p, ok := c.LanePause(time.Now()); !ok || p.Reason != "great fire" ||
			!p.Until.Equal(time.Now().Add(time.Hour).Truncate(time.Microsecond)) || p.Since.IsZero() {
			t.Errorf("the lane's pause is %+v", p)
		}
		if at, ok := c.NextWorkAt(time.Now()); !ok || at.After(time.Now()) {
			t.Errorf("touched, and the holder is to look at %s", at)
		}
		if len(b.pauses()) != 3 {
			t.Errorf("paused are %q", b.pauses())
		}
		time.Sleep(2 * time.Minute)
		b.paused(":great fire", "a:odd")
		b.resume("")
		b.resume("") // no pause: no change
		b.paused("a:odd")
		b.resume("a")
		b.paused()
	})
}

func TestPause_WhatIsOverIsRemoved(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		b.pause(weir.Pause{Key: "old", Reason: "r", Until: time.Now().Add(time.Second)})
		time.Sleep(time.Minute)
		b.pause(weir.Pause{Key: "new", Reason: "r"})
		page, err := b.account.Table().Range(t.Context(),
			storage.Query{Partition: "1.0", From: "!pause", To: "!pause~"})
		if err != nil || len(page.Rows) != 1 {
			t.Errorf("%d found, %v", len(page.Rows), err)
		}
	})
}

func TestPause_TooManyKeys(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		for i := range 200 {
			b.pause(weir.Pause{Key: fmt.Sprint(i), Reason: "r"})
		}
		b.pause(weir.Pause{Key: "7", Reason: "the same key again"})
		if err := b.store.Pause(t.Context(), weir.Pause{Key: "one more", Reason: "r",
			Since: time.Now()}); weir.KindOf(err) != weir.Conflict {
			t.Errorf("one more: %v", err)
		}
		b.pause(weir.Pause{Reason: "the lane can still be paused"})
	})
}

func TestPause_SealedLane(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		b.pause(weir.Pause{Key: "a", Reason: "r"})
		if err := b.eyes.SealLane(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if err := b.store.Pause(t.Context(), weir.Pause{Reason: "r",
			Since: time.Now()}); weir.KindOf(err) != weir.Conflict {
			t.Errorf("pause: %v", err)
		}
		b.resume("a") // without this the lane would never become empty
		b.paused()
	})
}

func TestPause_LostAnswerIsNoFailure(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		lose := func() {
			b.faults.Once(func(c storagetest.Call) bool { return c.Op == "Transact" },
				storagetest.Fault{Kind: storagetest.FailAfter})
		}
		lose()
		b.pause(weir.Pause{Reason: "r"})
		b.paused(":r")
		lose()
		b.resume("")
		b.paused()
	})
}

// No pause is written into a lane that was sealed after it was read.
func TestPause_SealedMeanwhile(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		b.faults.Once(func(c storagetest.Call) bool {
			if c.Op != "Transact" {
				return false
			}
			if err := b.eyes.SealLane(t.Context(), 0); err != nil {
				t.Error(err)
			}
			return true
		}, storagetest.Fault{})
		if err := b.store.Pause(t.Context(), weir.Pause{Reason: "fire"}); weir.KindOf(err) != weir.Conflict {
			t.Errorf("%v", err)
		}
		if c, err := b.eyes.ReadControl(t.Context(), 0); err != nil || len(c.Pauses(time.Now())) > 0 {
			t.Errorf("%+v, %v", c, err)
		}
	})
}
