package drain_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/weir"
)

// TestDrainer_ReplayKnows holds what a holder has to know of a key's deliveries, whoever saw
// its messages die and in which order they went.
func TestDrainer_ReplayKnows(t *testing.T) {
	t.Run("WhatDiedWhileAnotherHeldTheLane", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			w.moody("1")
			one, other := w.start(), w.start()
			w.post("b", "before")
			one.Wake(0)
			w.rests()
			time.Sleep(time.Minute) // the lane is let go
			first := w.post("a", "1")
			other.Wake(0)
			w.rests()
			time.Sleep(time.Minute)
			second := w.post("a", "2")
			one.Wake(0)
			w.rests()
			w.refused(first, second.String())
		})
	})
	t.Run("ThatWhatMayBeLateIsNotTheLast", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			m := w.moody("dead")
			p := w.start(func(c *drain.Config) { c.Backoff.Steps = []time.Duration{10 * time.Second} })
			m.set("late", 500)
			late := w.post("a", "late", skip)
			dead, last := w.post("a", "dead"), w.post("a", "last")
			p.Wake(0)
			time.Sleep(time.Second)
			m.set("late", 200)
			w.rests()
			if got := w.sentBodies(); !slices.Equal(got, []string{"late", "dead", "last", "late"}) {
				t.Errorf("sent %v", got)
			}
			w.refused(dead, last.String())
			w.balances(lane.Counts{Delivered: 2, Dead: 1}, late, dead, last)
		})
	})
	t.Run("ThatACorrectedVersionWins", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			w.moody("1")
			p := w.start()
			old := w.edit("a", "1")
			p.Wake(0)
			w.rests()
			newer := w.edit("a", "2")
			p.Wake(0)
			w.rests()
			w.replay(old, lane.ReplayOptions{Force: true, Edit: &lane.Edit{Body: []byte("3"), Version: "3"}})
			p.Wake(0)
			w.rests()
			w.balances(lane.Counts{Delivered: 2}, old, newer)
		})
	})
}

// A replay that is asked for while a later message of its key is at the CMS is refused, also
// where the holder hears of it before that delivery is committed.
func TestDrainer_ReplayBesideACommit(t *testing.T) {
	for i := range 20 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				w.moody("1")
				p := w.start()
				first := w.post("a", "1")
				p.Wake(0)
				w.rests()
				w.cms.set(func(ctx context.Context, d weir.Delivery) weir.Result {
					if string(d.Message.Body) == "2" {
						if _, err := w.store.Replay(ctx, first, lane.ReplayOptions{}); err != nil {
							t.Error(err)
						}
					}
					return takes(20*time.Millisecond, 200)(ctx, d)
				})
				for n := range 80 {
					if n == 3*i {
						w.post("a", "2")
					}
					w.post(fmt.Sprint(n), "other")
				}
				p.Wake(0)
				w.rests()
				if st := w.status(first); st.Stage != weir.Dead || st.ReplayRefused == "" {
					t.Errorf("%+v", st)
				}
			})
		})
	}
}

// What was replayed goes in front of what stands in the log, also where something that fell
// due waits behind that.
func TestDrainer_ReplayInFrontOfWhatFellDue(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		m := w.moody("1")
		p := w.start()
		first := w.post("a", "1")
		p.Wake(0)
		w.rests()
		m.set("1", 200)
		w.cms.set(takes(2*time.Second, 200))
		w.post("a", "due", due(time.Now().Add(3*time.Second)))
		for i := range 5 {
			w.post(fmt.Sprint(i), "other")
		}
		w.post("a", "2")
		p.Wake(0)
		time.Sleep(5 * time.Second)
		w.replay(first, lane.ReplayOptions{})
		p.Wake(0)
		w.settled(time.Minute)
		if got := w.delivered("a"); !slices.Equal(got, []string{"1", "2", "due"}) {
			t.Errorf("delivered %v", got)
		}
	})
}
