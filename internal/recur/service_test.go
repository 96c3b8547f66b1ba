package recur_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/internal/recur"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

func keyed(key string) func(*recur.Definition) {
	return func(d *recur.Definition) { d.Message = []byte(strings.Replace(text, `"k"`, `"`+key+`"`, 1)) }
}

func TestRunner_Put(t *testing.T) {
	t.Run("TheSameAgainChangesNothing", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			r := w.process("a", 0)
			first := w.put(r, "s", definition("@every 1h"))
			pass(90 * time.Minute)
			d := definition("@every 1h", func(d *recur.Definition) {
				d.CopiedFrom, d.TimeZone, d.Missed = "m1", "UTC",
					recur.One
			})
			again, created, err := r.Put(t.Context(), "s", d, recur.Condition{})
			if err != nil || created || again.Version != first.Version || !again.ChangedAt.Equal(first.ChangedAt) ||
				again.NextAt.Format("15:04") != "02:00" {
				t.Errorf("%+v, created %v, %v", again, created, err)
			}
		})
	})
	t.Run("AnotherMessageKeepsTheTimes", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			r := w.process("a", 0)
			w.put(r, "s", definition("@every 1h"))
			pass(90 * time.Minute)
			s := w.put(r, "s", definition("@every 1h", keyed("other")))
			if s.NextAt.Format("15:04") != "02:00" || s.NextRun != 2 || s.Filed != 1 {
				t.Errorf("got %+v, want s.NextAt.Format(\"15:04\") == \"02:00\" && s.NextRun == 2 && "+
					"s.Filed == 1", s.State)
			}
			pass(time.Hour)
			if got := w.messages(); len(got) != 2 || got[0].Key == got[1].Key {
				t.Errorf("got %+v, want len(got) == 2 && got[0].Key != got[1].Key", got)
			}
		})
	})
	t.Run("AnotherProcessesTimersFollow", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			r := w.process("a", 0)
			w.put(r, "s", definition("@every 1h"))
			w.started("b")
			pass(30 * time.Minute)
			w.put(r, "s", definition("@every 10m"))
			r.Close(t.Context()) // only b is left, which looked before the change
			pass(31 * time.Minute)
			if got := w.dues(); got != "01:00:00Z" {
				t.Errorf("filed %s: b comes at the time it knew, and makes one of three", got)
			}
			pass(10 * time.Minute)
			if got := w.dues(); got != "01:00:00Z 01:10:00Z" {
				t.Errorf("filed %s", got)
			}
		})
	})
	t.Run("WhatIsDueIsTheOldOnes", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			a := w.process("a", 0)
			w.put(a, "s", definition("@every 1h"))
			a.Close(t.Context())
			pass(time.Hour + 2*time.Second) // nothing ran, and not for long
			w.put(w.process("b", 0), "s", definition("@every 1h", keyed("other")))
			pass(time.Hour)
			got := w.messages()
			if len(got) != 2 || got[0].Key == got[1].Key {
				t.Errorf("got %+v, want len(got) == 2 && got[0].Key != got[1].Key", got)
			}
		})
	})
}

// A process whose clock is ahead has filed an occurrence, and stands still before it has
// moved the row. A process whose clock is behind puts another definition, with another
// ordering key: the occurrence must not come twice.
func TestRunner_PutBetweenAppendAndMove(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.put(w.process("a", 2*time.Second), "s", definition("0 * * * *"))
		w.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Actor == "a" && isMove(c) {
				return storagetest.Fault{Kind: storagetest.Hang}
			}
			return storagetest.Fault{}
		})
		pass(time.Hour - 2*time.Second)
		if len(w.messages()) != 1 {
			t.Fatalf("got %+v, want len(w.messages()) == 1", w.messages())
		}
		b := w.process("b", -2*time.Second)
		w.put(b, "s", definition("0 * * * *", keyed("other")))
		pass(90 * time.Minute)
		w.onceEach()
		if got := w.messages(); len(got) != 2 {
			t.Errorf("got %+v, want len(got) == 2", got)
		}
	})
}

// An occurrence that is due soon when a new definition is put is filed by the old one, for its time.
func TestRunner_PutShortBeforeADueTime(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		a := w.process("a", 0)
		w.put(a, "s", definition("@every 1h"))
		pass(time.Hour - 3*time.Second)
		w.put(a, "s", definition("@every 1h", keyed("other")))
		got := w.messages()
		if len(got) != 1 || got[0].Key != "k" || !got[0].DueAt.Equal(due(t, got[0])) {
			t.Errorf("got %+v, want len(got) == 1 && got[0].Key == \"k\" && "+
				"got[0].DueAt.Equal(due(t, got[0]))", got)
		}
	})
}

func TestRunner_PutRefuses(t *testing.T) {
	for name, d := range map[string]recur.Definition{
		"ABadCron":    definition("every day"),
		"ABadOverlap": definition("@daily", func(d *recur.Definition) { d.Overlap = "wait" }),
		"ABadMissed":  definition("@daily", func(d *recur.Definition) { d.Missed = "some" }),
		"AYearTooFar": definition("@daily",
			func(d *recur.Definition) { d.Start = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }),
		"AnUnknownField": definition("@daily",
			func(d *recur.Definition) { d.Message = []byte(`<a key="{{.Name}}"/>`) }),
		"ACall": definition("@daily",
			func(d *recur.Definition) { d.Message = []byte(`<a key="{{printf "%d" .Run}}"/>`) }),
		"APipe": definition("@daily",
			func(d *recur.Definition) { d.Message = []byte(`<a key="{{.Run | .DueAt}}"/>`) }),
		"AnIf": definition("@daily",
			func(d *recur.Definition) { d.Message = []byte(`<a key="{{if .Run}}x{{end}}"/>`) }),
		"AVariable": definition("@daily",
			func(d *recur.Definition) { d.Message = []byte(`<a key="{{$x := .Run}}"/>`) }),
		"ADefinition": definition("@daily",
			func(d *recur.Definition) { d.Message = []byte(`<a key="1"/>{{define "x"}}y{{end}}`) }),
		"AnOpenBrace": definition("@daily", func(d *recur.Definition) { d.Message = []byte(`<a key="{{.Run"/>`) }),
		"ABrokenRule": definition("@daily", func(d *recur.Definition) { d.Message = []byte(`<b/>`) }),
		"NoMessage":   definition("@daily", func(d *recur.Definition) { d.Message = nil }),
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				r := w.process("a", 0)
				_, _, err := r.Put(t.Context(), "s", d, recur.Condition{})
				if _, tried := r.Try(t.Context(), d, 3); fmt.Sprint(tried) != fmt.Sprint(err) {
					t.Errorf("tried: %v", tried)
				}
				var e *weir.Error
				if !errors.As(err, &e) || e.Kind != weir.Invalid || len(e.Problems) == 0 {
					t.Errorf("got %v, want errors.As(err, &e) && e.Kind == weir.Invalid && len(e.Problems) != 0", err)
				}
			})
		})
	}
}

func TestRunner_TryStoresNothing(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		r := w.process("a", 0)
		p, err := r.Try(t.Context(), definition("@every 1h"), 3)
		if err != nil || len(p.Runs) != 3 || p.Runs[2].DueAt.Format("15:04") != "03:00" {
			t.Errorf("got %+v, %v, want err == nil && len(p.Runs) == 3 && "+
				"p.Runs[2].DueAt.Format(\"15:04\") == \"03:00\"", p, err)
		}
		if list, err := r.List(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("got %+v, %v, want err == nil && len(list) == 0", list, err)
		}
	})
}

func TestRunner_Template(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		r := w.process("a", 0)
		w.put(r, "s", definition("@every 1h", func(d *recur.Definition) {
			d.Message = []byte(`<a key="k" run="{{ .Run }}" due="{{- .DueAt -}}" x="{{"{{<"}}"/>`)
		}))
		pass(time.Hour)
		entries, err := w.store("").ReadLog(t.Context(), w.messageLane(), 1, 10)
		if err != nil || len(entries) != 1 {
			t.Fatal(err, entries)
		}
		if err := w.store("").LoadBody(t.Context(), entries[0]); err != nil {
			t.Fatal(err)
		}
		if got := string(entries[0].Message.Body); got != `<a key="k" run="1" due="2000-01-01T01:00:00Z" x="{{&lt;"/>` {
			t.Error(got)
		}
	})
}

// messageLane is the lane of the key k.
func (w *world) messageLane() int {
	for number := range w.lanes {
		if c, err := w.store("").ReadControl(w.t.Context(), number); err == nil && c.Head.Next > 1 {
			return number
		}
	}
	return 0
}

func TestRunner_Conditions(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		r := w.process("a", 0)
		try := func(what string, d recur.Definition, c recur.Condition, want error) recur.Schedule {
			t.Helper()
			s, _, err := r.Put(t.Context(), "s", d, c)
			if (err == nil) != (want == nil) || err != nil && weir.KindOf(err) != weir.Stale {
				t.Errorf("%s: got %v, want (err == nil) == (want == nil) && "+
					"(err == nil || weir.KindOf(err) == weir.Stale)", what, err)
			}
			return s
		}
		refused := errors.New("412")
		hourly, daily := definition("@hourly"), definition("@daily")
		try("If-Match: * on nothing", hourly, recur.Condition{Versions: []string{"*"}}, refused)
		first := try("If-None-Match on nothing", hourly, recur.Condition{NotExists: true}, nil)
		try("If-None-Match on something", hourly, recur.Condition{NotExists: true}, refused)
		second := try("If-Match with its version", daily, recur.Condition{Versions: []string{"x", first.Version}}, nil)
		try("If-Match with an older version", hourly, recur.Condition{Versions: []string{first.Version}}, refused)
		err := r.Delete(t.Context(), "s", recur.Condition{Versions: []string{first.Version}})
		if weir.KindOf(err) != weir.Stale {
			t.Errorf("delete with an older version: got %v, want kind %v", err, weir.Stale)
		}
		pass(25 * time.Hour) // a run is no change of the definition
		if err := r.Delete(t.Context(), "s", recur.Condition{Versions: []string{second.Version}}); err != nil {
			t.Error(err)
		}
		if err := r.Delete(t.Context(), "s", recur.Condition{}); weir.KindOf(err) != weir.NotFound {
			t.Errorf("delete of nothing: %v", err)
		}
		pass(25 * time.Hour)
		if got := w.dues(); len(strings.Fields(got)) != 1 {
			t.Errorf("filed %s", got)
		}
	})
}

// Two users change a schedule at once, both from the same version: one of them is told.
func TestRunner_LostUpdate(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		a, b := w.process("a", 0), w.process("b", 0)
		first := w.put(a, "s", definition("@hourly"))
		answers := make(chan error, 2)
		for i, r := range []*recur.Runner{a, b} {
			go func() {
				_, _, err := r.Put(context.Background(), "s", definition(fmt.Sprintf("%d * * * *", i+1)),
					recur.Condition{Versions: []string{first.Version}})
				answers <- err
			}()
		}
		one, other := <-answers, <-answers
		if (one == nil) == (other == nil) || weir.KindOf(errors.Join(one, other)) != weir.Stale {
			t.Errorf("got %v, %v, want (one == nil) != (other == nil) && "+
				"weir.KindOf(errors.Join(one, other)) == weir.Stale", one, other)
		}
	})
}

func TestRunner_AnswerOfPutIsLost(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.faults.Once(isMove, storagetest.Fault{Kind: storagetest.FailAfter})
		w.put(w.process("a", 0), "s", definition("@every 1h"))
		pass(time.Hour)
		if got := w.dues(); got != "01:00:00Z" {
			t.Errorf("filed %s", got)
		}
	})
}

func TestRunner_LargeMessage(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		noise := make([]byte, 300<<10)
		_, _ = rand.Read(noise)
		large := strings.Replace(text, "/>", ` x="`+base64.StdEncoding.EncodeToString(noise)+`"/>`, 1)
		r := w.process("a", 0)
		w.put(r, "s", definition("@every 1h", func(d *recur.Definition) { d.Message = []byte(large) }))
		blobs := func() int {
			page, err := w.memory.Blobs().List(t.Context(), "schedules/", "")
			if err != nil {
				t.Fatal(err)
			}
			return len(page.Infos)
		}
		if got := w.get("s"); string(got.Message) != large || blobs() != 1 {
			t.Errorf("%d bytes in %d blobs", len(got.Message), blobs())
		}
		pass(time.Hour)
		if got := w.dues(); got != "01:00:00Z" {
			t.Errorf("filed %s", got)
		}
		w.put(r, "s", definition("@every 1h", func(d *recur.Definition) { d.Message = []byte(large + "\n") }))
		if blobs() != 1 {
			t.Errorf("%d blobs after a change", blobs())
		}
		w.put(r, "s", definition("@every 1h"))
		if blobs() != 0 {
			t.Errorf("%d blobs after a change to a small one", blobs())
		}
	})
}

// A text that never became a definition's must not be read in place of the one that is.
func TestRunner_LargeMessageNotPut(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		noise := make([]byte, 100<<10)
		_, _ = rand.Read(noise)
		large := definition("@every 1h", func(d *recur.Definition) {
			d.Message = append(d.Message, base64.StdEncoding.EncodeToString(noise)...)
		})
		r := w.process("a", 0)
		w.put(r, "s", large)
		other := large
		other.Message = append([]byte(`<a key="other"/>`), large.Message...)
		w.faults.Once(isMove, storagetest.Fault{Kind: storagetest.FailBefore})
		if _, _, err := r.Put(t.Context(), "s", other, recur.Condition{}); weir.KindOf(err) != weir.Unavailable {
			t.Errorf("put on storage that is away: %v", err)
		}
		if got := w.get("s"); string(got.Message) != string(large.Message) {
			t.Errorf("the message is %.40q", got.Message)
		}
	})
}

// A move that arrives late must not restore an earlier state of the schedule.
func TestRunner_LateMove(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.put(w.process("a", 0), "s", definition("@every 1h"))
		w.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Actor == "a" && isMove(c) {
				return storagetest.Fault{Kind: storagetest.Late, Delay: time.Minute}
			}
			return storagetest.Fault{}
		})
		pass(time.Hour)
		w.put(w.process("b", 0), "s", definition("@every 1h", func(d *recur.Definition) { d.Paused = true }))
		pass(2 * time.Minute)
		w.faults.Wait()
		if s := w.get("s"); !s.NextAt.IsZero() || s.Filed != 1 || w.dues() != "01:00:00Z" {
			t.Errorf("filed %s, %+v", w.dues(), s.State)
		}
	})
}

func TestRunner_Run(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		r := w.process("a", 0)
		before := w.put(r, "s", definition("@every 1h"))
		pass(10 * time.Minute)
		receipt, run, err := r.Run(t.Context(), "s")
		if err != nil || run != 2 || receipt.Message.ID.IsZero() {
			t.Errorf("run %d, %+v, %v", run, receipt, err)
		}
		if s := w.get("s"); !s.NextAt.Equal(before.NextAt) || s.NextRun != 1 || s.Filed != 0 {
			t.Errorf("the next run must stay: %+v", s.State)
		}
		pass(2 * time.Hour)
		w.onceEach()
		if got := w.dues(); got != "00:10:00Z 01:00:00Z 02:00:00Z" {
			t.Errorf("filed %s", got)
		}
		if _, _, err := r.Run(t.Context(), "nobody"); weir.KindOf(err) != weir.NotFound {
			t.Error(err)
		}
	})
}

// A message that was good when it was put can break a rule at its run: that is told, and
// the schedule goes on.
func TestRunner_Refused(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		r := w.process("a", 0)
		w.put(r, "s", definition("@every 1h"))
		strict := recur.New(recur.Config{
			Store: &recur.Store{Table: w.memory.Table(), Bodies: w.memory.Blobs(), Now: time.Now},
			Log:   &log{nil, w.store(""), w, ""}, Contracts: refusing{}, Tickets: bell{}, Now: time.Now, Logger: quiet,
		})
		defer strict.Close(t.Context())
		r.Close(t.Context())
		if err := strict.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Hour)
		if s := w.get("s"); s.Refused != 2 || s.Refusal != "no: never" || s.NextAt.Format("15:04") != "03:00" ||
			s.NextRun != 1 {
			t.Errorf("got %+v, want s.Refused == 2 && s.Refusal == \"no: never\" && "+
				"s.NextAt.Format(\"15:04\") == \"03:00\" && s.NextRun == 1", s.State)
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
	for name, ok := range map[string]bool{"nightly": true, "A.b_c-9": true, strings.Repeat("x", 64): true,
		"": false, strings.Repeat("x", 65): false, "a/b": false, "ä": false, "a b": false, ".": false, "..": false} {
		if err := recur.CheckName(name); (err == nil) != ok || err != nil && weir.KindOf(err) != weir.Malformed {
			t.Errorf("%q: got %v, want (err == nil) == ok && "+
				"(err == nil || weir.KindOf(err) == weir.Malformed)", name, err)
		}
	}
}
