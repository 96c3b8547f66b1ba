package drain_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

// edit posts a version of a key that supersedes.
func (w *world) edit(key, version string, change ...func(*weir.Message)) weir.ID {
	return w.post(
		key,
		version,
		append([]func(*weir.Message){func(m *weir.Message) { m.Supersede, m.Version = true, version }}, change...)...)
}

func TestDrainer_Supersede_OnlyTheNewestOfABurstIsWritten(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		ids := map[string]weir.ID{}
		for v := range 50 {
			for k := range 20 {
				key, version := fmt.Sprint("k", k), fmt.Sprint(v)
				ids[key+"/"+version] = w.edit(key, version)
			}
		}
		w.start().Wake(0)
		c := w.settled(time.Minute)
		if n := len(w.cms.requests()); n != 20 || c.Tail.Counts.Delivered != 20 || c.Tail.Counts.Superseded != 980 {
			t.Errorf("%d writes, %+v", n, c.Tail.Counts)
		}
		if st := w.status(ids["k3/7"]); st.Stage != weir.Superseded || st.SupersededBy != ids["k3/49"].String() ||
			st.FinishedAt.IsZero() {
			t.Errorf("%+v", st)
		}
	})
}

func TestDrainer_Supersede_WhatIsOlderThanTheLastDeliveredIsNeverWritten(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.edit("a", "1.10")
		first := w.start()
		first.Wake(0)
		w.settled(time.Minute)
		first.close(t)
		old, same, newer := w.edit("a", "1.9"), w.edit("a", "1.10"), w.edit("a", "1.10.1")
		second := w.start() // another process: the version stands in storage
		second.Wake(0)
		w.settled(time.Minute)
		if got := w.delivered("a"); !slices.Equal(got, []string{"1.10", "1.10.1"}) {
			t.Errorf("written: %v", got)
		}
		for _, id := range []weir.ID{old, same} {
			if st := w.status(id); st.Stage != weir.Superseded {
				t.Errorf("%+v", st)
			}
		}
		if st := w.status(newer); st.Stage != weir.Delivered {
			t.Errorf("%+v", st)
		}
	})
}

func TestDrainer_Supersede_AnOlderOneThatComesLaterWaitsForNothing(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.edit("a", "2")
		w.edit("a", "3")
		w.edit("a", "1")
		w.start().Wake(0)
		w.settled(time.Minute)
		if got := w.delivered("a"); !slices.Equal(got, []string{"3"}) {
			t.Errorf("written: %v", got)
		}
	})
}

func TestDrainer_Supersede_WhereTheNewestDiesTheNextNewestIsTried(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.set(func(ctx context.Context, d weir.Delivery) weir.Result {
			if d.Message.Version == "3" {
				return answer(422)
			}
			return answer(200)
		})
		one := w.edit("a", "1")
		w.edit("a", "2")
		dead := w.edit("a", "3")
		w.start().Wake(0)
		w.settled(time.Minute)
		if got := w.delivered("a"); !slices.Equal(got, []string{"2"}) {
			t.Errorf("written: %v", got)
		}
		if w.status(dead).Stage != weir.Dead || w.status(one).Stage != weir.Superseded {
			t.Errorf("%+v, %+v", w.status(dead), w.status(one))
		}
	})
}

func TestDrainer_Supersede_WhileTheNewestWaitsForARetryANewerOneTakesItsPlace(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.set(func(ctx context.Context, d weir.Delivery) weir.Result {
			if d.Message.Version == "2" {
				return answer(500)
			}
			return answer(200)
		})
		p := w.start()
		one, two := w.edit("a", "1"), w.edit("a", "2")
		p.Wake(0)
		time.Sleep(100 * time.Millisecond)
		w.edit("a", "3")
		p.Wake(0)
		w.settled(10 * time.Minute)
		if got := w.delivered("a"); !slices.Equal(got, []string{"3"}) {
			t.Errorf("written: %v", got)
		}
		if w.status(one).Stage != weir.Superseded || w.status(two).Stage != weir.Superseded ||
			w.status(two).AttemptCount == 0 {
			t.Errorf("%+v, %+v", w.status(one), w.status(two))
		}
	})
}

func TestDrainer_Supersede_AnotherContractInBetweenEndsTheStretch(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.edit("a", "1")
		w.edit("a", "2")
		w.post("a", "gone", func(m *weir.Message) { m.Contract = "delete" })
		w.edit("a", "3")
		w.start().Wake(0)
		w.settled(time.Minute)
		if got := w.delivered("a"); !slices.Equal(got, []string{"2", "gone", "3"}) {
			t.Errorf("written: %v", got)
		}
	})
}

func TestDrainer_Supersede_ACrashBeforeTheRestIsSupersededChangesNothing(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		for v := range 200 {
			w.edit("a", fmt.Sprint(v))
		}
		a, b := w.start(), w.start()
		commits := 0
		a.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if isTail(c) && len(c.Ops) > 1 {
				if commits++; commits == 2 {
					go a.kill()
					return storagetest.Fault{Kind: storagetest.FailBefore}
				}
			}
			return storagetest.Fault{}
		})
		a.Wake(0)
		time.Sleep(time.Second)
		b.Wake(0)
		c := w.settled(5 * time.Minute)
		if got := w.delivered("a"); !slices.Equal(got, []string{"199"}) || c.Tail.Counts.Superseded != 199 ||
			c.Tail.Fence != 2 {
			t.Errorf("written: %v, %+v", got, c.Tail)
		}
	})
}

func TestDrainer_Supersede_ABodyThatFoundTheCMSAwayIsSentWholeLater(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		away := 0
		w.cms.set(func(ctx context.Context, d weir.Delivery) weir.Result {
			if d.Message.Key == "k0" {
				if away++; away < 4 {
					return answer(503)
				}
			}
			return takes(time.Millisecond, 200)(ctx, d)
		})
		w.post("small", "x")
		w.post("k0", noise(100<<10, 0))
		w.start(func(c *drain.Config) { c.Backoff.Max = time.Second }).Wake(0)
		w.settled(5 * time.Minute)
		for _, s := range w.cms.requests() {
			if s.body == "" {
				t.Errorf("an empty body was sent for %s", s.key)
			}
		}
		if got := w.delivered("k0"); len(got) != 1 || got[0] != noise(100<<10, 0) {
			t.Errorf("%d bodies", len(got))
		}
	})
}

func TestDrainer_Supersede_LargeBodiesAreFetchedWhereTheyStand(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		for k := range 10 {
			w.post(fmt.Sprint("k", k), noise(100<<10, k))
		}
		w.start().Wake(0)
		w.settled(time.Minute)
		for k := range 10 {
			if got := w.delivered(fmt.Sprint("k", k)); len(got) != 1 || got[0] != noise(100<<10, k) {
				t.Errorf("key %d: %d bodies", k, len(got))
			}
		}
	})
}

// noise does not compress, so it becomes a blob.
func noise(n, seed int) string {
	b := make([]byte, n)
	x := uint32(seed + 1)
	for i := range b {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b[i] = byte(x)
	}
	return string(b)
}

func TestDrainer_Rate(t *testing.T) {
	t.Run("NoSecondHasMoreThanWasAskedFor", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			w.cms.set(takes(time.Millisecond, 200))
			for i := range 40 {
				w.post(fmt.Sprint("k", i), "x")
			}
			p := w.start(func(c *drain.Config) { c.Rate = 100 * time.Millisecond })
			p.Wake(0)
			c := w.settled(time.Minute)
			w.spaced(100 * time.Millisecond)
			log := w.cms.requests()
			if took := log[39].at.Sub(log[0].at); took > 4100*time.Millisecond || c.Tail.Counts.Delivered != 40 {
				t.Errorf("40 took %s, %+v", took, c.Tail.Counts)
			}
		})
	})
	t.Run("IsKeptAcrossProcesses", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			rate := func(c *drain.Config) { c.Rate = 40 * time.Second }
			w.post("a", "0")
			first := w.start(rate)
			first.Wake(0)
			w.settled(time.Minute)
			first.close(t)
			w.post("b", "1")
			second := w.start(rate)
			second.Wake(0)
			for len(w.cms.requests()) < 2 {
				time.Sleep(time.Second)
			}
			second.kill()
			w.post("c", "2")
			third := w.start(rate)
			third.Wake(0)
			w.settled(5 * time.Minute)
			w.spaced(40 * time.Second)
		})
	})
}

// spaced checks that attempts begin at least so far apart.
func (w *world) spaced(apart time.Duration) {
	w.t.Helper()
	log := w.cms.requests()
	for i := range log[1:] {
		if d := log[i+1].at.Sub(log[i].at); d < apart {
			w.t.Errorf("attempts %d and %d are %s apart", i, i+1, d)
		}
	}
}

func TestDrainer_AtOnce(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		many := *w.store
		many.Lanes = 4
		for n := range 4 {
			if err := many.EnsureControlRows(t.Context(), n); err != nil {
				t.Fatal(err)
			}
		}
		w.store = &many
		w.useAppender()
		for i := range 80 {
			w.post(fmt.Sprint("k", i), "x")
		}
		p := w.start(func(c *drain.Config) { c.AtOnce = 2 })
		for n := range 4 {
			p.Wake(n)
		}
		for len(w.cms.requests()) < 80 {
			time.Sleep(10 * time.Millisecond)
		}
		if got := w.mostAtOnce(); got != 2 {
			t.Errorf("%d at once", got)
		}
	})
}

// mostAtOnce is the largest number of requests that were at the CMS at one moment.
func (w *world) mostAtOnce() int {
	most := 0
	log := w.cms.requests()
	for _, a := range log {
		n := 0
		for _, b := range log {
			if !b.at.After(a.at) && b.end.After(a.at) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}
