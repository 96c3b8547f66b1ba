package drain_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/limiter"
	"weir/internal/storage/storagetest"
	"weir/internal/testkit/lanetest"
	"weir/internal/weir"
)

// postVersion posts a message that supersedes older versions of its key. The message's body is the
// version.
func (w *world) postVersion(key, version string, change ...func(*weir.Message)) weir.ID {
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
				ids[key+"/"+version] = w.postVersion(key, version)
			}
		}

		w.start().Wake(0)
		c := w.waitUntilEmpty(time.Minute)
		if n := len(w.cms.listRequests()); n != 20 || c.Tail.Counts.Delivered != 20 ||
			c.Tail.Counts.Superseded != 980 {
			t.Errorf("%d writes, %+v, want 20, Delivered 20 and Superseded 980", n, c.Tail.Counts)
		}

		if st := w.status(ids["k3/7"]); st.Stage != weir.Superseded ||
			st.SupersededBy != ids["k3/49"].String() ||
			st.FinishedAt.IsZero() {
			t.Errorf("got %+v, want Stage superseded, SupersededBy %v and a FinishedAt", st,
				ids["k3/49"].String())
		}
	})
}

func TestDrainer_Supersede_NeverWritesAnOlderVersion(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.postVersion("a", "1.10")
		first := w.start()
		first.Wake(0)
		w.waitUntilEmpty(time.Minute)
		first.close(t)
		old, same, newer := w.postVersion("a", "1.9"), w.postVersion("a", "1.10"),
			w.postVersion("a", "1.10.1")
		second := w.start() // this process reads the delivered version from storage
		second.Wake(0)
		w.waitUntilEmpty(time.Minute)
		if got := w.listDelivered("a"); !slices.Equal(got, []string{"1.10", "1.10.1"}) {
			t.Errorf("written: %v, want [1.10 1.10.1]", got)
		}

		for _, id := range []weir.ID{old, same} {
			if st := w.status(id); st.Stage != weir.Superseded {
				t.Errorf("got %+v, want Stage superseded", st)
			}
		}

		if st := w.status(newer); st.Stage != weir.Delivered {
			t.Errorf("got %+v, want Stage delivered", st)
		}
	})
}

func TestDrainer_Supersede_AnOlderVersionFiledLaterDoesNotWait(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.postVersion("a", "2")
		w.postVersion("a", "3")
		w.postVersion("a", "1")
		w.start().Wake(0)
		w.waitUntilEmpty(time.Minute)
		if got := w.listDelivered("a"); !slices.Equal(got, []string{"3"}) {
			t.Errorf("written: %v, want [3]", got)
		}
	})
}

func TestDrainer_Supersede_IfTheNewestDiesTheNextNewestIsTried(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
			if d.Message.Version == "3" {
				return newAnswer(422)
			}
			return newAnswer(200)
		})

		one := w.postVersion("a", "1")
		w.postVersion("a", "2")
		dead := w.postVersion("a", "3")
		w.start().Wake(0)
		w.waitUntilEmpty(time.Minute)
		if got := w.listDelivered("a"); !slices.Equal(got, []string{"2"}) {
			t.Errorf("written: %v, want [2]", got)
		}

		if w.status(dead).Stage != weir.Dead || w.status(one).Stage != weir.Superseded {
			t.Errorf("got %+v and %+v, want dead and superseded", w.status(dead), w.status(one))
		}
	})
}

func TestDrainer_Supersede_WhileTheNewestWaitsForARetryANewerOneTakesItsPlace(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
			if d.Message.Version == "2" {
				return newAnswer(500)
			}
			return newAnswer(200)
		})

		p := w.start()
		one, two := w.postVersion("a", "1"), w.postVersion("a", "2")
		p.Wake(0)
		time.Sleep(100 * time.Millisecond)
		w.postVersion("a", "3")
		p.Wake(0)
		w.waitUntilEmpty(10 * time.Minute)
		if got := w.listDelivered("a"); !slices.Equal(got, []string{"3"}) {
			t.Errorf("written: %v, want [3]", got)
		}

		if w.status(one).Stage != weir.Superseded || w.status(two).Stage != weir.Superseded ||
			w.status(two).AttemptCount == 0 {
			t.Errorf("got %+v and %+v, want both superseded, the second after an attempt",
				w.status(one), w.status(two))
		}
	})
}

// 1.25 is newer than 1.5, because versions are numbers with dots. An upstream that means decimal
// fractions learns it from the warning, whether the message was held or in the log.
func TestDrainer_Supersede_WarnsOfADecimalFraction(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(func(_ context.Context, d weir.Delivery) weir.Result {
			if d.Message.Version == "1.5" {
				return newAnswer(500)
			}
			return newAnswer(200)
		})

		p := w.start()
		held, plain := w.postVersion("a", "1.5"), w.postVersion("a", "1.1")
		p.Wake(0)
		time.Sleep(100 * time.Millisecond)
		w.postVersion("a", "1.25")
		p.Wake(0)
		w.waitUntilEmpty(10 * time.Minute)
		logged := w.postVersion("a", "1.5")
		p.Wake(0)
		w.waitUntilEmpty(time.Minute)

		if got := w.listDelivered("a"); !slices.Equal(got, []string{"1.25"}) ||
			w.status(held).AttemptCount == 0 {
			t.Errorf("written: %v, want [1.25], after an attempt of the first 1.5", got)
		}

		for id, want := range map[weir.ID]string{held: "decimal fraction",
			logged: "decimal fraction", plain: ""} {
			got := w.status(id)
			if got.Stage != weir.Superseded || (got.VersionWarning == "") != (want == "") ||
				!strings.Contains(got.VersionWarning, want) {
				t.Errorf("version %s: got %s with the warning %q, want superseded with %q in it",
					got.Message.Version, got.Stage, got.VersionWarning, want)
			}
		}
	})
}

func TestDrainer_Supersede_AnotherContractInBetweenEndsTheRun(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.postVersion("a", "1")
		w.postVersion("a", "2")
		w.post("a", "gone", func(m *weir.Message) { m.Contract = "delete" })
		w.postVersion("a", "3")
		w.start().Wake(0)
		w.waitUntilEmpty(time.Minute)
		if got := w.listDelivered("a"); !slices.Equal(got, []string{"2", "gone", "3"}) {
			t.Errorf("written: %v, want [2 gone 3]", got)
		}
	})
}

func TestDrainer_Supersede_ACrashBeforeTheRestIsSupersededChangesNothing(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		for v := range 200 {
			w.postVersion("a", fmt.Sprint(v))
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
		c := w.waitUntilEmpty(5 * time.Minute)
		if got := w.listDelivered("a"); !slices.Equal(got, []string{"199"}) ||
			c.Tail.Counts.Superseded != 199 ||
			c.Tail.Fence != 2 {
			t.Errorf("written: %v, %+v, want [199], Superseded 199 and Fence 2", got, c.Tail)
		}
	})
}

func TestDrainer_Bodies_SentWholeAfterTheCMSWasAway(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		away := 0
		w.cms.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
			if d.Message.Key == "k0" {
				if away++; away < 4 {
					return newAnswer(503)
				}
			}
			return answerAfter(time.Millisecond, 200)(ctx, d)
		})

		w.post("small", "x")
		w.post("k0", newNoise(100<<10, 0))
		w.start(func(c *drain.Config) { c.Backoff.Max = time.Second }).Wake(0)
		w.waitUntilEmpty(5 * time.Minute)

		for _, s := range w.cms.listRequests() {
			if s.body == "" {
				t.Errorf("an empty body was sent for %s, want a body", s.key)
			}
		}

		if got := w.listDelivered("k0"); len(got) != 1 || got[0] != newNoise(100<<10, 0) {
			t.Errorf("got %d bodies, want one, the whole body", len(got))
		}
	})
}

func TestDrainer_Bodies_LargeOnesOfEachKey(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		for k := range 10 {
			w.post(fmt.Sprint("k", k), newNoise(100<<10, k))
		}

		w.start().Wake(0)
		w.waitUntilEmpty(time.Minute)

		for k := range 10 {
			if got := w.listDelivered(fmt.Sprint("k", k)); len(got) != 1 ||
				got[0] != newNoise(100<<10, k) {
				t.Errorf("key %d: got %d bodies, want one, the key's own", k, len(got))
			}
		}
	})
}

// newNoise returns n bytes that do not compress. A large body of this kind is stored as a blob.
func newNoise(n, seed int) string {
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
			w.cms.setAnswer(answerAfter(time.Millisecond, 200))
			for i := range 40 {
				w.post(fmt.Sprint("k", i), "x")
			}

			p := w.start(w.limitRate(10, time.Second))
			p.Wake(0)
			c := w.waitUntilEmpty(time.Minute)
			w.checkSpacing(100 * time.Millisecond)
			log := w.cms.listRequests()
			if took := log[39].at.Sub(log[0].at); took > 5200*time.Millisecond ||
				c.Tail.Counts.Delivered != 40 {
				t.Errorf("40 took %s, %+v, want at most 5.2s and Delivered 40", took, c.Tail.Counts)
			}
		})
	})

	t.Run("IsKeptAcrossProcesses", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			rate := w.limitRate(1, 40*time.Second)
			w.post("a", "0")
			first := w.start(rate)
			first.Wake(0)
			w.waitUntilEmpty(time.Minute)
			first.close(t)
			w.post("b", "1")
			second := w.start(rate)
			second.Wake(0)
			for len(w.cms.listRequests()) < 2 {
				time.Sleep(time.Second)
			}

			second.kill()
			w.post("c", "2")
			third := w.start(rate)
			third.Wake(0)
			w.waitUntilEmpty(5 * time.Minute)
			w.checkSpacing(40 * time.Second)
		})
	})
}

// limitRate returns the change of a Config that limits the rate, with a limiter for each process.
func (w *world) limitRate(count int, per time.Duration) func(c *drain.Config) {
	return func(c *drain.Config) {
		c.Limiter = limiter.New(limiter.Config{Table: w.store.Table, CMS: "cms",
			Rate: limiter.Rate{Count: count, Per: per}, Now: c.Now, Log: c.Log})
		w.t.Cleanup(c.Limiter.Close)
	}
}

// checkSpacing checks that each attempt began at least the given time after the previous attempt.
func (w *world) checkSpacing(apart time.Duration) {
	w.t.Helper()
	log := w.cms.listRequests()
	for i := range log[1:] {
		if d := log[i+1].at.Sub(log[i].at); d < apart {
			w.t.Errorf("attempts %d and %d are %s apart, want at least %v", i, i+1, d, apart)
		}
	}
}

func TestDrainer_AtOnce(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		many := *w.store
		many.Lanes = 4
		for n := range 4 {
			if err := many.EnsureControlRows(t.Context(), n, 0); err != nil {
				t.Fatal(err)
			}
		}

		w.store = &many
		w.lanes.Appender = lane.NewAppender(w.store, lanetest.Quiet)
		for i := range 80 {
			w.post(fmt.Sprint("k", i), "x")
		}

		p := w.start(func(c *drain.Config) { c.AtOnce = 2 })
		for n := range 4 {
			p.Wake(n)
		}

		for len(w.cms.listRequests()) < 80 {
			time.Sleep(10 * time.Millisecond)
		}

		if got := w.mostAtOnce(); got != 2 {
			t.Errorf("%d at once, want 2", got)
		}
	})
}

// mostAtOnce returns the largest number of requests that were at the CMS at one time.
func (w *world) mostAtOnce() int {
	most := 0
	log := w.cms.listRequests()
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
