package recur_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"testing"
	"time"

	"weir/internal/recur"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

func withKey(key string) func(*recur.Definition) {
	return func(d *recur.Definition) {
		d.Message = []byte(strings.Replace(text, `"k"`, `"`+key+`"`, 1))
	}
}

func TestRunner_Put(t *testing.T) {
	t.Run("TheSameAgainChangesNothing", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			r := w.newRunner("a", 0)
			first := w.putSchedule(r, "s", newDefinition("@every 1h"))
			passTime(90 * time.Minute)
			d := newDefinition("@every 1h", func(d *recur.Definition) {
				d.CopiedFrom, d.TimeZone, d.Missed = "m1", "UTC",
					recur.One
			})

			again, created, err := r.Put(t.Context(), "s", d, recur.Condition{})
			if err != nil || created || again.Version != first.Version ||
				!again.ChangedAt.Equal(first.ChangedAt) ||
				again.NextAt.Format("15:04") != "02:00" {
				t.Errorf("got %+v, created %v, %v, want the first schedule again, next at 02:00",
					again, created, err)
			}
		})
	})

	t.Run("AnotherMessageKeepsTheTimes", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			r := w.newRunner("a", 0)
			w.putSchedule(r, "s", newDefinition("@every 1h"))
			passTime(90 * time.Minute)
			s := w.putSchedule(r, "s", newDefinition("@every 1h", withKey("other")))
			if s.NextAt.Format("15:04") != "02:00" || s.NextRun != 2 || s.Filed != 1 {
				t.Errorf("got %+v, want Filed 1, and NextRun 2 at 02:00", s.State)
			}

			passTime(time.Hour)
			if got := w.listMessages(); len(got) != 2 || got[0].Key == got[1].Key {
				t.Errorf("got the messages %+v, want two of different keys", got)
			}
		})
	})

	t.Run("AnotherProcessesTimersFollow", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			r := w.newRunner("a", 0)
			w.putSchedule(r, "s", newDefinition("@every 1h"))
			w.startRunner("b")
			passTime(30 * time.Minute)
			w.putSchedule(r, "s", newDefinition("@every 10m"))
			r.Close(t.Context()) // b continues, and its timer still has the old time
			passTime(31 * time.Minute)
			if got := w.listDueTimes(); got != "01:00:00Z" {
				t.Errorf("filed %s, want 01:00:00Z: b fires at the old time, and files the last missed occurrence", got)
			}

			passTime(10 * time.Minute)
			if got := w.listDueTimes(); got != "01:00:00Z 01:10:00Z" {
				t.Errorf("filed %s, want \"01:00:00Z 01:10:00Z\"", got)
			}
		})
	})

	t.Run("DueOccurrencesKeepTheOldDefinition", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			a := w.newRunner("a", 0)
			w.putSchedule(a, "s", newDefinition("@every 1h"))
			a.Close(t.Context())

			// no process ran; the occurrence is late, but not missed (recur.Grace)
			passTime(time.Hour + 2*time.Second)
			w.putSchedule(w.newRunner("b", 0), "s", newDefinition("@every 1h", withKey("other")))
			passTime(time.Hour)
			got := w.listMessages()
			if len(got) != 2 || got[0].Key == got[1].Key {
				t.Errorf("got the messages %+v, want two of different keys", got)
			}
		})
	})
}

// The clock of process a is fast. Process a appends an occurrence, and stalls before it writes the
// schedule's row. Process b, whose clock is slow, then puts a definition with another ordering key.
// The occurrence must not become a second message.
func TestRunner_PutBetweenAppendAndMove(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.putSchedule(w.newRunner("a", 2*time.Second), "s", newDefinition("0 * * * *"))
		w.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Actor == "a" && writesRow(c) {
				return storagetest.Fault{Kind: storagetest.Hang}
			}
			return storagetest.Fault{}
		})

		passTime(time.Hour - 2*time.Second)
		if len(w.listMessages()) != 1 {
			t.Fatalf("got %+v, want 1 message", w.listMessages())
		}

		b := w.newRunner("b", -2*time.Second)
		w.putSchedule(b, "s", newDefinition("0 * * * *", withKey("other")))
		passTime(90 * time.Minute)
		w.checkEachOnce()
		if got := w.listMessages(); len(got) != 2 {
			t.Errorf("got the messages %+v, want 2", got)
		}
	})
}

// A new definition is put shortly before an occurrence is due. The occurrence must become a message
// of the old definition, with the occurrence's due time.
func TestRunner_PutShortlyBeforeADueTime(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		a := w.newRunner("a", 0)
		w.putSchedule(a, "s", newDefinition("@every 1h"))
		passTime(time.Hour - 3*time.Second)
		w.putSchedule(a, "s", newDefinition("@every 1h", withKey("other")))
		got := w.listMessages()
		if len(got) != 1 || got[0].Key != "k" || !got[0].DueAt.Equal(parseDue(t, got[0])) {
			t.Errorf("got the messages %+v, want one of key k with the occurrence's due time", got)
		}
	})
}

func TestRunner_PutRefuses(t *testing.T) {
	for name, d := range map[string]recur.Definition{
		"ABadCron":    newDefinition("every day"),
		"ASlip":       newDefinition("*-5 * * * *"),
		"ACommaMore":  newDefinition("0 1,,2 * * *"),
		"ABadOverlap": newDefinition("@daily", func(d *recur.Definition) { d.Overlap = "wait" }),
		"ABadMissed":  newDefinition("@daily", func(d *recur.Definition) { d.Missed = "some" }),
		"AYearTooFar": newDefinition("@daily",
			func(d *recur.Definition) { d.Start = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }),
		"AnUnknownField": newDefinition("@daily",
			func(d *recur.Definition) { d.Message = []byte(`<a key="{{.Name}}"/>`) }),
		"ACall": newDefinition("@daily",
			func(d *recur.Definition) { d.Message = []byte(`<a key="{{printf "%d" .Run}}"/>`) }),
		"APipe": newDefinition("@daily",
			func(d *recur.Definition) { d.Message = []byte(`<a key="{{.Run | .DueAt}}"/>`) }),
		"AnIf": newDefinition("@daily",
			func(d *recur.Definition) { d.Message = []byte(`<a key="{{if .Run}}x{{end}}"/>`) }),
		"AVariable": newDefinition("@daily",
			func(d *recur.Definition) { d.Message = []byte(`<a key="{{$x := .Run}}"/>`) }),
		"ADefinition": newDefinition("@daily",
			func(d *recur.Definition) { d.Message = []byte(`<a key="1"/>{{define "x"}}y{{end}}`) }),
		"AnOpenBrace": newDefinition("@daily",
			func(d *recur.Definition) { d.Message = []byte(`<a key="{{.Run"/>`) }),
		"ABrokenRule": newDefinition("@daily",
			func(d *recur.Definition) { d.Message = []byte(`<b/>`) }),
		"NoMessage": newDefinition("@daily", func(d *recur.Definition) { d.Message = nil }),
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				r := w.newRunner("a", 0)
				_, _, err := r.Put(t.Context(), "s", d, recur.Condition{})
				if _, tried := r.Try(t.Context(), d, 3); fmt.Sprint(tried) != fmt.Sprint(err) {
					t.Errorf("Try: got %v, want the error of Put: %v", tried, err)
				}

				var e *weir.Error
				if !errors.As(err, &e) || e.Kind != weir.Invalid || len(e.Problems) == 0 {
					t.Errorf("got %v, want an error of kind Invalid with problems", err)
				}
			})
		})
	}
}

func TestRunner_TryStoresNothing(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		r := w.newRunner("a", 0)
		p, err := r.Try(t.Context(), newDefinition("@every 1h"), 3)
		if err != nil || len(p.Runs) != 3 || p.Runs[2].DueAt.Format("15:04") != "03:00" {
			t.Errorf("got %+v, %v, want 3 runs, the last at 03:00, and no error", p, err)
		}

		if list, err := r.List(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("got %+v, %v, want no schedule and no error", list, err)
		}
	})
}

func TestRunner_Template(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		r := w.newRunner("a", 0)
		w.putSchedule(r, "s", newDefinition("@every 1h", func(d *recur.Definition) {
			d.Message = []byte(`<a key="k" run="{{ .Run }}" due="{{- .DueAt -}}" x="{{"{{<"}}"/>`)
		}))
		passTime(time.Hour)
		entries, err := w.newStore("").ReadLog(t.Context(), w.messageLane(), 1, 10)
		if err != nil || len(entries) != 1 {
			t.Fatalf("got %v, %v, want 1 entry and no error", entries, err)
		}

		if err := w.newStore("").LoadBody(t.Context(), entries[0]); err != nil {
			t.Fatal(err)
		}

		if got := string(entries[0].Message.Body); got !=
			`<a key="k" run="1" due="2000-01-01T01:00:00Z" x="{{&lt;"/>` {
			t.Errorf(`got %v, want <a key="k" run="1" due="2000-01-01T01:00:00Z" x="{{&lt;"/>`, got)
		}
	})
}

// messageLane returns the number of the first lane that has a message, or 0 if there is no message.
func (w *world) messageLane() int {
	for number := range w.lanes {
		if c, err := w.newStore("").ReadControl(w.t.Context(), number); err == nil &&
			c.Head.Next > 1 {
			return number
		}
	}
	return 0
}

func TestRunner_Conditions(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		r := w.newRunner("a", 0)
		try := func(what string, d recur.Definition, c recur.Condition, want error) recur.Schedule {
			t.Helper()
			s, _, err := r.Put(t.Context(), "s", d, c)
			if (err == nil) != (want == nil) || err != nil && weir.KindOf(err) != weir.Stale {
				t.Errorf("%s: got %v, want Stale: %t", what, err, want != nil)
			}
			return s
		}

		refused := errors.New("412")
		hourly, daily := newDefinition("@hourly"), newDefinition("@daily")
		try("If-Match: * on nothing", hourly, recur.Condition{Versions: []string{"*"}}, refused)
		first := try("If-None-Match on nothing", hourly, recur.Condition{NotExists: true}, nil)
		try("If-None-Match on something", hourly, recur.Condition{NotExists: true}, refused)
		second := try("If-Match with its version", daily,
			recur.Condition{Versions: []string{"x", first.Version}}, nil)
		try("If-Match with an older version", hourly,
			recur.Condition{Versions: []string{first.Version}}, refused)
		err := r.Delete(t.Context(), "s", recur.Condition{Versions: []string{first.Version}})
		if weir.KindOf(err) != weir.Stale {
			t.Errorf("delete with an older version: got %v, want kind %v", err, weir.Stale)
		}

		passTime(25 * time.Hour) // a run does not change the version
		if err := r.Delete(t.Context(), "s", recur.Condition{Versions: []string{second.Version}}); err != nil {
			t.Error(err)
		}

		if err := r.Delete(t.Context(), "s", recur.Condition{}); weir.KindOf(err) != weir.NotFound {
			t.Errorf("Delete of no schedule = %v, want %v", err, weir.NotFound)
		}

		passTime(25 * time.Hour)
		if got := w.listDueTimes(); len(strings.Fields(got)) != 1 {
			t.Errorf("filed the due times %s, want one", got)
		}
	})
}

// Two users change a schedule at the same time, both from the same version. One of the changes is
// refused.
func TestRunner_LostUpdate(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		a, b := w.newRunner("a", 0), w.newRunner("b", 0)
		first := w.putSchedule(a, "s", newDefinition("@hourly"))
		answers := make(chan error, 2)
		for i, r := range []*recur.Runner{a, b} {
			go func() {
				_, _, err := r.Put(context.Background(), "s",
					newDefinition(fmt.Sprintf("%d * * * *", i+1)),
					recur.Condition{Versions: []string{first.Version}})
				answers <- err
			}()
		}

		one, other := <-answers, <-answers
		if (one == nil) == (other == nil) || weir.KindOf(errors.Join(one, other)) != weir.Stale {
			t.Errorf("got %v, %v, want one error, of kind Stale", one, other)
		}
	})
}

func TestRunner_AnswerOfPutIsLost(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.faults.Once(writesRow, storagetest.Fault{Kind: storagetest.FailAfter})
		w.putSchedule(w.newRunner("a", 0), "s", newDefinition("@every 1h"))
		passTime(time.Hour)
		if got := w.listDueTimes(); got != "01:00:00Z" {
			t.Errorf("filed %s, want 01:00:00Z", got)
		}
	})
}

func TestRunner_LargeMessage(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		noise := make([]byte, 300<<10)
		_, _ = rand.Read(noise)
		large := strings.Replace(text, "/>",
			` x="`+base64.StdEncoding.EncodeToString(noise)+`"/>`, 1)
		r := w.newRunner("a", 0)
		w.putSchedule(r, "s", newDefinition("@every 1h",
			func(d *recur.Definition) { d.Message = []byte(large) }))
		blobs := func() int {
			page, err := w.memory.Blobs().List(t.Context(), "schedules/", "")
			if err != nil {
				t.Fatal(err)
			}
			return len(page.Infos)
		}
		if got := w.getSchedule("s"); string(got.Message) != large || blobs() != 1 {
			t.Errorf("got %d bytes in %d blobs, want %d bytes in 1 blob", len(got.Message), blobs(),
				len(large))
		}

		passTime(time.Hour)
		if got := w.listDueTimes(); got != "01:00:00Z" {
			t.Errorf("filed %s, want 01:00:00Z", got)
		}

		w.putSchedule(r, "s", newDefinition("@every 1h",
			func(d *recur.Definition) { d.Message = []byte(large + "\n") }))
		if blobs() != 1 {
			t.Errorf("after a change: got %d blobs, want 1", blobs())
		}

		w.putSchedule(r, "s", newDefinition("@every 1h"))
		if blobs() != 0 {
			t.Errorf("after a change to a small message: got %d blobs, want 0", blobs())
		}
	})
}

// A Put stores the blob of its message, and then fails. The schedule must still have the old
// message.
func TestRunner_LargeMessageNotPut(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		noise := make([]byte, 100<<10)
		_, _ = rand.Read(noise)
		large := newDefinition("@every 1h", func(d *recur.Definition) {
			d.Message = append(d.Message, base64.StdEncoding.EncodeToString(noise)...)
		})
		r := w.newRunner("a", 0)
		w.putSchedule(r, "s", large)
		other := large
		other.Message = append([]byte(`<a key="other"/>`), large.Message...)
		w.faults.Once(writesRow, storagetest.Fault{Kind: storagetest.FailBefore})

		if _, _, err := r.Put(t.Context(), "s", other, recur.Condition{}); weir.KindOf(err) !=
			weir.Unavailable {
			t.Errorf("Put while storage fails: got %v, want Unavailable", err)
		}

		if got := w.getSchedule("s"); string(got.Message) != string(large.Message) {
			t.Errorf("got the message %.40q, want %.40q", got.Message, string(large.Message))
		}
	})
}

// A message that no schedule has, because a change failed or its process died, is removed after a
// day. A message that a schedule has stays, however old it is.
func TestStore_RemoveMessages(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		noise := make([]byte, 100<<10)
		_, _ = rand.Read(noise)
		large := newDefinition("@every 1000h", func(d *recur.Definition) {
			d.Message = append(d.Message, base64.StdEncoding.EncodeToString(noise)...)
		})
		r := w.newRunner("a", 0)
		w.putSchedule(r, "s", large)
		w.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if writesRow(c) {
				return storagetest.Fault{Kind: storagetest.FailBefore}
			}
			return storagetest.Fault{}
		})

		if _, _, err := r.Put(t.Context(), "other", large, recur.Condition{}); err == nil {
			t.Fatal("Put while storage fails: got no error, want one")
		}

		w.faults.Set(nil)

		store := &recur.Store{Table: w.memory.Table(), Bodies: w.memory.Blobs(), Now: time.Now}
		for _, c := range []struct {
			age  time.Duration
			want int
		}{{time.Hour, 2}, {25 * time.Hour, 1}, {400 * 24 * time.Hour, 1}} {
			passTime(c.age)
			next, isDone, err := store.RemoveMessages(t.Context(), "")
			if next != "" || !isDone || err != nil {
				t.Errorf("after %s: got %q, %v, %v, want \"\", true and no error", c.age, next,
					isDone, err)
			}

			page, err := w.memory.Blobs().List(t.Context(), "schedules/", "")
			if err != nil || len(page.Infos) != c.want {
				t.Errorf("after %s: got %d blobs, %v, want %d", c.age, len(page.Infos), err, c.want)
			}
		}

		if got := w.getSchedule("s"); string(got.Message) != string(large.Message) {
			t.Errorf("got a message of %d bytes, want %d", len(got.Message), len(large.Message))
		}
	})
}

// A blob that storage refuses to remove does not keep the walk from those behind it.
func TestStore_RemoveMessages_GoesOnBehindARefusedBlob(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		for _, name := range []string{"schedules/a/1", "schedules/b/1", "schedules/c/1"} {
			if err := w.memory.Blobs().Put(t.Context(), name, []byte("x")); err != nil {
				t.Fatal(err)
			}
		}

		passTime(25 * time.Hour)
		faults := storagetest.NewFaults()
		faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Op == "Delete" && c.Key == "schedules/b/1" {
				return storagetest.Fault{Kind: storagetest.FailBefore,
					Err: &storage.Error{Op: "blob delete", Kind: storage.Conflict, Index: -1}}
			}
			return storagetest.Fault{}
		})

		store := &recur.Store{Table: w.memory.Table(), Bodies: faults.Blobs(w.memory.Blobs()),
			Now: time.Now}
		_, isDone, err := store.RemoveMessages(t.Context(), "")
		if !isDone || !storage.Is(err, storage.Conflict) {
			t.Errorf("got %v, %v, want true and the refusal", isDone, err)
		}

		page, err := w.memory.Blobs().List(t.Context(), "schedules/", "")
		if err != nil || len(page.Infos) != 1 || page.Infos[0].Name != "schedules/b/1" {
			t.Errorf("got %v, %v, want the refused blob alone", page.Infos, err)
		}
	})
}

// A late write of the state must not replace a newer state.
func TestRunner_LateMove(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.putSchedule(w.newRunner("a", 0), "s", newDefinition("@every 1h"))
		w.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Actor == "a" && writesRow(c) {
				return storagetest.Fault{Kind: storagetest.Late, Delay: time.Minute}
			}
			return storagetest.Fault{}
		})

		passTime(time.Hour)
		w.putSchedule(w.newRunner("b", 0), "s", newDefinition("@every 1h",
			func(d *recur.Definition) { d.Paused = true }))
		passTime(2 * time.Minute)
		w.faults.Wait()

		if s := w.getSchedule("s"); !s.NextAt.IsZero() || s.Filed != 1 ||
			w.listDueTimes() != "01:00:00Z" {
			t.Errorf("filed %s, %+v, want no NextAt, Filed 1 and due times 01:00:00Z",
				w.listDueTimes(), s.State)
		}
	})
}

func TestRunner_Run(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		r := w.newRunner("a", 0)
		before := w.putSchedule(r, "s", newDefinition("@every 1h"))
		passTime(10 * time.Minute)
		receipt, run, err := r.Run(t.Context(), "s")
		if err != nil || run != 2 || receipt.Message.ID.IsZero() {
			t.Errorf("got run %d, %+v, %v, want run 2, an ID and no error", run, receipt, err)
		}

		if s := w.getSchedule("s"); !s.NextAt.Equal(before.NextAt) || s.NextRun != 1 ||
			s.Filed != 0 {
			t.Errorf("got %+v, want NextRun 1, NextAt %s and Filed 0", s.State, before.NextAt)
		}

		passTime(2 * time.Hour)
		w.checkEachOnce()
		if got := w.listDueTimes(); got != "00:10:00Z 01:00:00Z 02:00:00Z" {
			t.Errorf("filed %s, want \"00:10:00Z 01:00:00Z 02:00:00Z\"", got)
		}

		if _, _, err := r.Run(t.Context(), "none"); weir.KindOf(err) != weir.NotFound {
			t.Errorf("got %v, want an error of kind NotFound", err)
		}
	})
}

func TestRunner_SetPaused(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		r := w.newRunner("a", 0)
		before := w.putSchedule(r, "s", newDefinition("@every 1h"))
		w.startRunner("b")
		s, err := r.SetPaused(t.Context(), "s", true)
		if err != nil || !s.Paused || !s.NextAt.IsZero() || s.Version == before.Version ||
			s.Cron != before.Cron ||
			string(s.Message) != string(before.Message) {
			t.Errorf("got %+v, %v; want the schedule paused and otherwise unchanged", s, err)
		}

		again, err := r.SetPaused(t.Context(), "s", true)
		if err != nil || again.Version != s.Version || !again.ChangedAt.Equal(s.ChangedAt) {
			t.Errorf("second SetPaused: got %+v, %v; want no change and no error", again, err)
		}

		passTime(150 * time.Minute)
		if got := w.listMessages(); len(got) != 0 {
			t.Errorf("got %d messages of a paused schedule, want none", len(got))
		}

		if s, err = r.SetPaused(t.Context(), "s", false); err != nil || s.Paused ||
			s.Version != before.Version {
			t.Errorf("resumed: got %+v, %v; want the schedule as before the pause, and no error", s,
				err)
		}

		passTime(time.Hour)
		if got := w.listMessages(); len(got) != 1 {
			t.Errorf("got %d messages after the schedule was resumed, want 1", len(got))
		}

		if _, err := r.SetPaused(t.Context(), "none", true); weir.KindOf(err) != weir.NotFound {
			t.Errorf("got %v for an unknown schedule, want NotFound", err)
		}
	})
}

// The contract can refuse a message that was valid at the Put. The schedule then records the
// refusal, and continues.
func TestRunner_Refused(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		r := w.newRunner("a", 0)
		w.putSchedule(r, "s", newDefinition("@every 1h"))
		strict := recur.New(recur.Config{
			Store: &recur.Store{Table: w.memory.Table(), Bodies: w.memory.Blobs(), Now: time.Now},
			Log:   &log{nil, w.newStore(""), w, ""}, Contracts: refusing{}, Waker: noRinger{},
			Now:    time.Now,
			Logger: quiet,
		})
		defer strict.Close(t.Context())
		r.Close(t.Context())
		if err := strict.Load(t.Context()); err != nil {
			t.Fatal(err)
		}

		passTime(2 * time.Hour)

		if s := w.getSchedule("s"); s.Refused != 2 || s.Refusal != "no: never" ||
			s.NextAt.Format("15:04") != "03:00" ||
			s.NextRun != 1 {
			t.Errorf("got %+v, want Refused 2, Refusal \"no: never\", and NextRun 1 at 03:00",
				s.State)
		}
	})
}

type refusing struct{}

func (refusing) Accept(context.Context, string, []byte) (weir.Message, error) {
	return weir.Message{}, &weir.Error{Kind: weir.Invalid, Op: "accept", Message: "no",
		Problems: []weir.Problem{{Message: "never"}}}
}

func TestCheckName(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{"nightly": true, "A.b_c-9": true,
		strings.Repeat("x", 64): true,
		"":                      false, strings.Repeat("x", 65): false, "a/b": false, "ä": false,
		"a b": false,
		".":   false, "..": false} {
		if err := recur.CheckName(name); (err == nil) != ok ||
			err != nil && weir.KindOf(err) != weir.Malformed {
			t.Errorf("%q: got %v, want it accepted: %v, or else an error of kind Malformed",
				name, err, ok)
		}
	}
}

// Storage does not return the message of one schedule. The other schedules run, and an operator can
// pause, replace and remove that schedule.
func TestRunner_StorageRefusesOneMessage(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		noise := make([]byte, 100<<10)
		_, _ = rand.Read(noise)
		large := newDefinition("@every 1m", func(d *recur.Definition) {
			d.Message = append(d.Message, base64.StdEncoding.EncodeToString(noise)...)
		})
		r := w.newRunner("a", 0)
		w.putSchedule(r, "bad", large)
		w.putSchedule(r, "good", newDefinition("@every 1m"))
		refusal := &storage.Error{Op: "blob get", Kind: storage.Unreadable,
			Code: "409 BlobArchived", Index: -1}
		w.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Port == "blobs" && c.Op == "Get" {
				return storagetest.Fault{Kind: storagetest.FailBefore, Err: refusal}
			}
			return storagetest.Fault{}
		})

		passTime(21*time.Minute + time.Second)
		if s := w.getSchedule("good"); s.Filed != 21 {
			t.Errorf("the other schedule: got %d messages, want 21", s.Filed)
		}

		if s := w.getSchedule("bad"); s.Refused == 0 ||
			!strings.Contains(s.Refusal, "409 BlobArchived") {
			t.Errorf("the schedule: got %d refused runs, %q, want some and storage's answer",
				s.Refused, s.Refusal)
		}

		if s, err := r.Get(t.Context(), "bad"); err != nil || s.Message != nil ||
			!strings.Contains(s.Unread(), "409") {
			t.Errorf("get: got a message of %d bytes, %q, %v, want none and its reason",
				len(s.Message), s.Unread(), err)
		}

		if _, _, err := r.Run(t.Context(), "bad"); weir.KindOf(err) != weir.Conflict {
			t.Errorf("run: got %v, want a Conflict", err)
		}

		if list, err := r.List(t.Context()); len(list) != 2 || err != nil {
			t.Errorf("list: got %d schedules, %v, want 2", len(list), err)
		}

		if s, err := r.SetPaused(t.Context(), "bad", true); err != nil || !s.Paused {
			t.Errorf("pause: got %v, %v, want no error", s.Paused, err)
		}

		if s := w.getSchedule("bad"); !s.Paused || string(s.Message) != string(large.Message) {
			t.Errorf("the paused schedule has a message of %d bytes, want that of before",
				len(s.Message))
		}

		if _, err := r.SetPaused(t.Context(), "bad", false); weir.KindOf(err) != weir.Conflict {
			t.Errorf("resume: got %v, want a Conflict", err)
		}

		if _, _, err := r.Put(t.Context(), "bad", newDefinition("@every 1m"), recur.Condition{}); err != nil {
			t.Errorf("replace: got %v, want no error", err)
		}

		w.putSchedule(w.newRunner("b", 0), "worse", large)
		if err := r.Delete(t.Context(), "worse", recur.Condition{}); err != nil {
			t.Errorf("delete: got %v, want no error", err)
		}
	})
}

// Whatever the ids of the calls: many young rows of deletions do not keep the old ones behind them.
func TestStore_RemovesOldDeletionsBehindYoungOnes(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		r, dice := w.newRunner("a", 0), mathrand.New(mathrand.NewPCG(1, 1))
		const aMinute = 4 // 240 deletions in the time for which the rows are kept
		for range 300 * aMinute {
			ctx := weir.WithCall(t.Context(), fmt.Sprintf("%016x", dice.Uint64()))
			w.putSchedule(r, "s", newDefinition("@every 1000h"))
			if err := r.Delete(ctx, "s", recur.Condition{}); err != nil {
				t.Fatal(err)
			}
			passTime(time.Minute / aMinute)
		}

		rows := 0
		for q := (storage.Query{Partition: "schedule-deletions"}); ; {
			page, err := w.memory.Table().Range(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}

			if rows += len(page.Rows); !page.More {
				break
			}

			q.After = page.Rows[len(page.Rows)-1].Key
		}

		if rows > 100*aMinute {
			t.Errorf("after five hours %d rows are left, want those of an hour, about 240", rows)
		}
	})
}
