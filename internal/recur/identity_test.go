package recur_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/recur"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

// A schedule that was deleted and created again under its name is another schedule. Its runs must
// not be taken for the runs of the first one.
func TestRunner_RunAfterDeleteAndCreate(t *testing.T) {
	for name, message := range map[string]string{
		"FixedMessage":      `<a key="k" run="0" due="x"/>`,
		"MessageWithFields": text,
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				r := w.newRunner("a", 0)
				d := newDefinition("0 0 1 1 *")
				d.Message = []byte(message)

				for creation := range 3 {
					w.putSchedule(r, "s", d)
					for range 2 {
						w.runSchedule(r, "s")
						passTime(time.Minute)
					}

					if err := r.Delete(t.Context(), "s", recur.Condition{}); err != nil {
						t.Fatal(err)
					}

					if got, want := len(w.listMessages()), 2*(creation+1); got != want {
						t.Errorf("creation %d: got %d messages, want %d", creation, got, want)
					}
				}
			})
		})
	}
}

// runSchedule runs a schedule by hand, and checks that the run has a message of its own.
func (w *world) runSchedule(r *recur.Runner, name string) {
	w.t.Helper()
	receipt, run, err := r.Run(w.t.Context(), name)
	if err != nil || receipt.Duplicate {
		w.t.Errorf("run %d: got duplicate %v, error %v; want a new message", run,
			receipt.Duplicate, err)
	}
}

// An upstream can post with any Idempotency-Key. A post must not take the place of an occurrence.
func TestRunner_PostUnderAGuessedKeyOfAnOccurrence(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		r := w.newRunner("a", 0)
		w.putSchedule(r, "s", newDefinition("@every 1h"))
		post := weir.Message{Contract: "a", Key: "k",
			Body: []byte(`<a key="k" run="0" due="post"/>`)}
		post.Size = len(post.Body)
		appender := lane.NewAppender(w.newStore(""), quiet)
		if _, err := appender.Append(t.Context(), post, "s@2000-01-01T01:00:00Z"); err != nil {
			t.Fatal(err)
		}

		passTime(time.Hour)
		if got, want := w.listDueTimes(), "post 01:00:00Z"; got != want {
			t.Errorf("filed %q, want %q", got, want)
		}
	})
}

// A run must not be answered with the message of another run.
func TestRunner_RunThatFindsAnEarlierMessage(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		r := w.newRunner("a", 0)
		d := newDefinition("0 0 1 1 *")
		d.Message = []byte(`<a key="k" run="0" due="x"/>`)
		w.putSchedule(r, "s", d)
		m := weir.Message{Contract: "a", Key: "k", ContentType: "application/xml", Body: d.Message,
			Size: len(d.Message)}
		if _, err := lane.NewAppender(w.newStore(""), quiet).Append(t.Context(), m, "s@"+w.readColumn("s", "CreationID")+"@run-2"); err != nil {
			t.Fatal(err)
		}

		if _, _, err := r.Run(t.Context(), "s"); weir.KindOf(err) != weir.Conflict {
			t.Errorf("run 2: got %v, want an error of kind Conflict", err)
		}

		w.runSchedule(r, "s")
	})
}

// readColumn returns a text in a schedule's row.
func (w *world) readColumn(name, column string) string {
	w.t.Helper()
	row, err := w.memory.Table().Get(w.t.Context(), "schedules", name)
	if err != nil {
		w.t.Fatal(err)
	}

	text, _ := row.Values[column].(string)
	return text
}

// Each run that was answered has a message of its own, whatever users do with the schedule and
// whatever happens to storage.
func TestRunner_EachAnsweredRunHasAMessage(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint("Seed", seed), func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				dice := rand.New(rand.NewPCG(seed, 1))
				w.faults.Set(func(c storagetest.Call) storagetest.Fault {
					if c.Op == "Transact" && dice.Float64() < 0.2 {
						return storagetest.Fault{
							Kind: []storagetest.FaultKind{storagetest.FailBefore,
								storagetest.FailAfter}[dice.IntN(2)]}
					}
					return storagetest.Fault{}
				})

				w.runAtRandom(dice)
			})
		})
	}
}

// runAtRandom creates, deletes and runs two schedules at random on two processes, one step at a
// time. It checks the messages of the runs that were answered.
func (w *world) runAtRandom(dice *rand.Rand) {
	w.t.Helper()
	runners := []*recur.Runner{w.newRunner("a", 0), w.newRunner("b", time.Second)}
	messages, answered := map[weir.ID]int{}, 0
	for step := range 60 {
		r, name := runners[dice.IntN(2)], []string{"s", "t"}[dice.IntN(2)]
		switch dice.IntN(6) {
		case 0:
			_ = r.Delete(w.t.Context(), name, recur.Condition{})
		case 1, 2:
			d := newDefinition("0 0 1 1 *")
			d.Message = []byte(`<a key="k" run="0" due="x"/>`)
			_, _, _ = r.Put(w.t.Context(), name, d, recur.Condition{})

		default:
			receipt, _, err := r.Run(w.t.Context(), name)
			if err != nil {
				continue
			}

			answered++
			messages[receipt.Message.ID]++
			if n := messages[receipt.Message.ID]; n > 1 {
				w.t.Errorf("step %d: %d runs were answered with message %s, want one", step, n,
					receipt.Message.ID)
			}
		}

		passTime(time.Second)
	}

	if answered == 0 {
		w.t.Error("got no answered run, want some")
	}

	if got := len(w.listMessages()); got < answered {
		w.t.Errorf("got %d messages for %d answered runs, want one each at least", got, answered)
	}
}

// A process appends an occurrence. Before the process moves the schedule on, a user deletes the
// schedule and creates it again. The message of the deleted schedule must not enter the state of
// the new one.
func TestRunner_DeleteAndCreateBetweenAppendAndMove(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		user := w.newRunner("", 0)
		w.putSchedule(user, "s", newDefinition("0 * * * *"))
		w.startRunner("a")
		user.Close(t.Context())
		w.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Actor == "a" && writesRow(c) {
				w.faults.Set(nil)
				if err := user.Delete(t.Context(), "s", recur.Condition{}); err != nil {
					t.Error(err)
				}
				w.putSchedule(user, "s", newDefinition("30 * * * *", withKey("other")))
			}

			return storagetest.Fault{}
		})

		passTime(time.Hour + 20*time.Minute)
		if got := len(w.listMessages()); got != 1 {
			t.Errorf("got %d messages, want the one of the deleted schedule", got)
		}

		if s := w.getSchedule("s"); s.Filed != 0 || s.Last.MessageID != "" {
			t.Errorf("got Filed %d with the message %q, want a schedule without messages", s.Filed,
				s.Last.MessageID)
		}
	})
}

// No process ran for a day. A user who then pauses the schedule gets none of the late messages.
func TestRunner_PauseFilesNoMissedOccurrence(t *testing.T) {
	for _, missed := range []recur.Missed{recur.One, recur.All, recur.None} {
		t.Run(string(missed), func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				a := w.newRunner("a", 0)
				w.putSchedule(a, "s", newDefinition("@every 1s",
					func(d *recur.Definition) { d.Missed = missed }))
				a.Close(t.Context())
				passTime(24 * time.Hour)
				writes := 0
				w.faults.Set(func(c storagetest.Call) storagetest.Fault {
					if c.Op == "Transact" {
						writes++
					}
					return storagetest.Fault{}
				})

				s, err := w.newRunner("b", 0).SetPaused(t.Context(), "s", true)
				if err != nil || !s.Paused {
					t.Fatalf("got paused %v, %v; want the schedule paused", s.Paused, err)
				}

				if got := len(w.listMessages()); got != 0 || writes > 3 {
					t.Errorf("got %d messages and %d writes, want no message and at most 3 writes",
						got, writes)
				}

				if s.State.Missed != 24*3600 {
					t.Errorf("got %d missed occurrences, want 86400", s.State.Missed)
				}
			})
		})
	}
}

func TestRunner_IdempotencyKeysFit(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		r, name := w.newRunner("a", 0), strings.Repeat("x", 64)
		w.putSchedule(r, name, newDefinition("@every 1h"))
		w.runSchedule(r, name)
		passTime(time.Hour)
		if got := len(w.listMessages()); got != 2 {
			t.Errorf("got %d messages, want 2", got)
		}
	})
}
