package drain_test

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/weir"
)

// withRetryFor sets Config.RetryFor of each contract.
func withRetryFor(d time.Duration) func(*drain.Config) {
	return func(c *drain.Config) { c.RetryFor = func(string) time.Duration { return d } }
}

// answersUntil makes the CMS answer with a status until the given time has passed, and then take
// all messages.
func (w *world) answersUntil(d time.Duration, status int) {
	end := time.Now().Add(d)
	w.cms.setAnswer(func(ctx context.Context, m weir.Delivery) weir.Result {
		if time.Now().Before(end) {
			return answerAfter(10*time.Millisecond, status)(ctx, m)
		}
		return answerAfter(10*time.Millisecond, 200)(ctx, m)
	})
}

// The database of the CMS restarts. A lane with few messages loses none of them.
func TestLeastTime_OutlivesAShortOutage(t *testing.T) {
	for name, keys := range map[string][]string{"OneKey": {"a"}, "TwoKeys": {"a", "b"},
		"ThreeKeys": {"a", "b", "c"}} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				w.answersUntil(2*time.Minute, 500)
				p := w.start(withRetryFor(15 * time.Minute))
				var ids []weir.ID
				for _, key := range keys {
					ids = append(ids, w.post(key, "x"))
				}

				p.Wake(0)
				w.waitUntilEmpty(10 * time.Minute)

				for _, id := range ids {
					if st := w.status(id); st.Stage != weir.Delivered {
						t.Errorf("seq %d is %s after %d attempts, want it delivered", id.Seq,
							st.Stage, st.AttemptCount)
					}
				}
			})
		})
	}
}

// The commit of a failed attempt ends between two steps in which the holder chooses a message. The
// holder then chooses anew: it begins the next round. Otherwise it would stay in the lane for ever
// without sending. A third of the runs meet such a commit, because PreemptedNow lets the committer
// run between the steps.
func TestSession_SeesACommitThatEndsWhileItChooses(t *testing.T) {
	for run := range 12 {
		t.Run(strconv.Itoa(run), func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				w.answersUntil(2*time.Minute, 500)
				p := w.start(withRetryFor(15 * time.Minute))
				for _, key := range []string{"a", "b", "c"} {
					w.post(key, "x")
				}

				p.Wake(0)
				w.waitUntilEmpty(10 * time.Minute)
			})
		})
	}
}

// A message that gets no verdict is dead when its attempts and the least time are used up. The time
// outlasts its holder.
func TestLeastTime_EndsAMessageAfterTheTime(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		const least = 20 * time.Minute
		w.answersUntil(24*time.Hour, 500)
		p := w.start(withRetryFor(least))
		id := w.post("a", "x")
		p.Wake(0)
		time.Sleep(5 * time.Minute)
		first := w.cms.listRequests()[0].at
		st := w.status(id)
		if st.Stage != weir.Retrying || st.AttemptCount < 5 ||
			!st.RetryUntil.Equal(first.Add(least)) {
			t.Errorf("got %s after %d attempts, tried until %s; want it retrying after 5 at least, until %s",
				st.Stage, st.AttemptCount, st.RetryUntil, first.Add(least))
		}

		p.close(t)
		w.start(withRetryFor(least)).Wake(0)
		w.waitUntilEmpty(time.Hour)
		log := w.cms.listRequests()
		tried := log[len(log)-1].at.Sub(first)
		if st := w.status(id); st.Stage != weir.Dead || tried < least || tried > least+time.Minute {
			t.Errorf("got %s after %s of attempts, want dead after %s to a minute more", st.Stage,
				tried, least)
		}
	})
}

// A verdict of the CMS needs no time, and a replay begins a new one.
func TestLeastTime_OfVerdictsAndReplays(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.answersUntil(time.Hour, 422)
		p := w.start(withRetryFor(time.Hour))
		id := w.post("a", "x")
		p.Wake(0)
		w.waitUntilEmpty(time.Minute)

		if st := w.status(id); st.Stage != weir.Dead || st.AttemptCount != 1 {
			t.Fatalf("got %s after %d attempts, want dead after the first", st.Stage,
				st.AttemptCount)
		}

		time.Sleep(2 * time.Hour)
		w.answersUntil(30*time.Minute, 500)
		w.replay(id, lane.ReplayOptions{})
		p.Wake(0)
		time.Sleep(5 * time.Second) // until then the holder takes the message back
		w.waitUntilEmpty(2 * time.Hour)

		if st := w.status(id); st.Stage != weir.Delivered {
			t.Errorf("got %s after %d attempts, want the replayed message delivered when the CMS is back", st.Stage,
				st.AttemptCount)
		}
	})
}

// In a lane with two waiting keys the CMS answers 500 to both for longer than the least time.
// Nothing shows that the messages are the cause, so none is dead. As soon as the CMS has taken
// another message, the attempts count.
func TestLeastTime_TwoKeysOfAQuietLane(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
			if strings.HasPrefix(d.Message.Key, "bad") {
				return answerAfter(10*time.Millisecond, 500)(ctx, d)
			}
			return answerAfter(10*time.Millisecond, 200)(ctx, d)
		})

		p := w.start(withRetryFor(10 * time.Minute))
		ids := []weir.ID{w.post("bad1", "x"), w.post("bad2", "x")}
		p.Wake(0)
		time.Sleep(5 * time.Hour)

		for _, id := range ids {
			if st := w.status(id); st.Stage.Final() {
				t.Fatalf("seq %d is %s after %d attempts, want it waiting", id.Seq, st.Stage,
					st.AttemptCount)
			}
		}

		for range 30 {
			w.post("good", "x")
			p.Wake(0)
			time.Sleep(2 * time.Minute)
		}

		for _, id := range ids {
			if st := w.status(id); st.Stage != weir.Dead {
				t.Errorf("seq %d is %s after %d attempts, want dead: the CMS takes other messages",
					id.Seq, st.Stage, st.AttemptCount)
			}
		}
	})
}

// A message with which three holders end waits until the least time is over, is sent again, and is
// then delivered.
func TestLeastTime_OfAMessageThatEndedTheProcess(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		const least = 20 * time.Minute
		id := w.post("a", "x")
		if _, err := w.account.Table().Transact(t.Context(), "1.0",
			[]storage.Op{{Kind: storage.Merge, Key: "!tail",
				Values: map[string]any{"Open": true, "Crashes": int64(2), "Trying": id.Seq,
					"TryingCrashes": int64(2), "TryingFence": w.control().Tail.Fence}}}); err !=
			nil {
			t.Fatal(err)
		}

		began := time.Now()
		w.start(withRetryFor(least)).Wake(0)
		w.waitUntilEmpty(time.Hour)
		log := w.cms.listRequests()
		if st := w.status(id); st.Stage != weir.Delivered || len(log) != 1 ||
			log[0].at.Sub(began) < least {
			t.Errorf("got %s with the requests %v, want one delivery after %s", st.Stage,
				log, least)
		}
	})
}

// A panic is no verdict, and shows nothing about the CMS: the message is tried again, and other
// keys go on.
func TestLeastTime_OfAPanic(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		var calls atomic.Int64
		w.cms.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
			if strings.HasPrefix(d.Message.Key, "bad") {
				calls.Add(1)
				panic("boom")
			}
			return answerAfter(10*time.Millisecond, 200)(ctx, d)
		})

		p := w.start(withRetryFor(10 * time.Minute))
		var bad []weir.ID
		for _, key := range []string{"bad1", "bad2", "bad3", "bad4"} {
			bad = append(bad, w.post(key, "x"))
		}

		p.Wake(0)
		time.Sleep(5 * time.Minute)
		good := w.post("good", "x")
		p.Wake(0)
		time.Sleep(5 * time.Second)
		if st := w.status(good); st.Stage != weir.Delivered {
			t.Errorf("another key's message is %s after 5s, want it delivered", st.Stage)
		}

		for _, id := range bad {
			if st := w.status(id); st.Stage != weir.Retrying {
				t.Errorf("seq %d is %s, want it retrying", id.Seq, st.Stage)
			}
		}

		w.waitUntilEmpty(time.Hour)

		if st := w.status(bad[0]); st.Stage != weir.Dead || calls.Load() < 20 {
			t.Errorf("got %s and %d calls, want dead after 5 calls each at least", st.Stage,
				calls.Load())
		}
	})
}
