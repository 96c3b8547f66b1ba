package drain_test

import (
	"bytes"
	"compress/flate"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
	"weir/internal/testkit/lanetest"
	"weir/internal/weir"
)

// person is a name that the tests put into each text that an erasure has to remove.
const person = "jane.doe"

// postPerson posts a message whose texts have the person's name.
func (w *world) postPerson(body string, change ...func(*weir.Message)) weir.ID {
	w.t.Helper()
	m := weir.Message{Contract: "article", Key: "/" + person, ContentType: "application/xml",
		Body:     []byte(body + person),
		Callback: "https://hooks.example/" + person, TraceState: "who=" + person,
		Shown:       map[string]string{"author": person},
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}

	for _, f := range change {
		f(&m)
	}

	r, err := lanetest.AppendAndWake(w.t.Context(), w.lanes.Appender, m, "key of "+person)
	if err != nil {
		w.t.Fatal(err)
	}

	return r.Message.ID
}

// expectNoTrace checks that no row has the person's name, and that there are no blobs.
func (w *world) expectNoTrace(step string) {
	w.t.Helper()
	page, err := w.account.Table().Range(w.t.Context(), storage.Query{Partition: "1.0"})
	if err != nil {
		w.t.Fatal(err)
	}

	for _, row := range page.Rows {
		for name, value := range row.Values {
			text := fmt.Sprint(value)
			if packed, isBytes := value.([]byte); isBytes {
				plain, _ := io.ReadAll(flate.NewReader(bytes.NewReader(packed)))
				text = string(packed) + string(plain)
			}

			if strings.Contains(text, person) {
				w.t.Errorf("%s: the column %s of row %s has %.80q, want no %q", step, name, row.Key,
					text, person)
			}
		}
	}

	list, err := w.account.Blobs().List(w.t.Context(), "", "")
	if err != nil || len(list.Infos) != 0 {
		w.t.Errorf("%s: got %d blobs (%v), want none", step, len(list.Infos), err)
	}
}

func (w *world) erase(id weir.ID) weir.Status {
	w.t.Helper()
	st, err := w.store.Requests().Erase(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return st
}

// answerWithPerson returns a function for setAnswer whose results have the person's name.
func answerWithPerson(status int) func(context.Context, weir.Delivery) weir.Result {
	return func(context.Context, weir.Delivery) weir.Result {
		r := newAnswer(status)
		r.Reason, r.Body = "refused "+person, "the answer names "+person
		r.Steps = []weir.Step{{Name: "look up", Status: status, Reason: "again for " + person}}
		return r
	}
}

func TestErase_LeavesNoTrace(t *testing.T) {
	noise := func() []byte {
		source, b := rand.New(rand.NewPCG(1, 2)), make([]byte, 100<<10)
		for i := range b {
			b[i] = byte(source.Uint32())
		}
		return b
	}

	large := func(m *weir.Message) { m.Body = append(m.Body, noise()...) }
	supersedes := func(m *weir.Message) { m.Supersede, m.Version = true, "5" }
	for name, c := range map[string]struct {
		status int
		change []func(*weir.Message)
		stage  weir.Stage
	}{
		"Delivered":  {200, nil, weir.Delivered},
		"LargeBody":  {200, []func(*weir.Message){large}, weir.Delivered},
		"Version":    {200, []func(*weir.Message){supersedes}, weir.Delivered},
		"Dead":       {422, nil, weir.Dead},
		"DeadLarge":  {422, []func(*weir.Message){large}, weir.Dead},
		"OutOfTries": {500, []func(*weir.Message){withSkip}, weir.Dead},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				w.cms.setAnswer(answerWithPerson(c.status))
				p := w.start()
				id := w.postPerson("body of ", c.change...)
				p.Wake(0)
				before := w.waitUntilEmpty(10 * time.Minute)
				p.close(t)
				st := w.erase(id)
				if st.Stage != c.stage || st.ErasedAt.IsZero() ||
					st.Message.Key != lane.ErasedKey("/"+person) ||
					len(st.Attempts) == 0 || st.Attempts[0].Status != c.status ||
					st.Message.Size == 0 {
					t.Errorf("got %+v, want it %s, with all except its content", st, c.stage)
				}

				next := w.start() // as the holder, this process erases the error text in tail
				next.Wake(0)
				time.Sleep(time.Minute)
				next.close(t)
				w.expectNoTrace("erased")
				if again := w.erase(id); !again.ErasedAt.Equal(st.ErasedAt) {
					t.Errorf("erased again: got %s, want %s", again.ErasedAt, st.ErasedAt)
				}

				if after := w.control(); after.Tail.Counts != before.Tail.Counts ||
					after.HasWork(time.Now()) {
					t.Errorf("got %+v, want the books as before: %+v", after.Tail.Counts,
						before.Tail.Counts)
				}

				if _, err := w.store.Messages().LoadMessage(t.Context(), id); weir.KindOf(err) !=
					weir.NotFound {
					t.Errorf("body: got %v, want NotFound", err)
				}

				if _, err := w.store.Requests().Replay(t.Context(), id,
					lane.ReplayOptions{Force: true}); weir.KindOf(err) != weir.Conflict {
					t.Errorf("replay: got %v, want a Conflict", err)
				}
			})
		})
	}
}

func TestErase_HidesTheKeyOfARememberedID(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		m := &idCMS{next: newDeliveredResult("7")}
		w.cms.setAnswer(m.Send)
		p := w.start(withRemembering)
		id := w.postPerson("of ")
		p.Wake(0)
		w.waitUntilEmpty(time.Minute)
		w.erase(id)
		w.expectNoTrace("erased")
		w.post("/"+person, "next")
		p.Wake(0)
		w.waitUntilEmpty(time.Minute)
		if got := m.listKnown(); len(got) != 2 || got[1] != "7" {
			t.Errorf("got ids %v, want the next message of the key to know 7", got)
		}
	})
}

func TestErase_ARepeatIsNoNewMessage(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start()
		first := w.postPerson("one of ")
		p.Wake(0)
		w.waitUntilEmpty(time.Minute)
		w.erase(first)
		if again := w.postPerson("another of "); again != first {
			t.Errorf("got %v, want the erased message %v", again, first)
		}
	})
}

func TestErase_OfPackedDeliveries(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(answerWithPerson(200))
		var ids []weir.ID
		for i := range 20 {
			ids = append(ids, w.post(fmt.Sprint("/", person, i), "of "+person))
		}

		p := w.start()
		p.Wake(0)
		before := w.waitUntilEmpty(time.Minute)
		p.close(t)
		if got := w.rowKeys("d_"); len(got) == 0 {
			t.Fatal("got no packed deliveries, want some")
		}

		w.erase(ids[3])

		for i, id := range ids {
			if st := w.status(id); st.Stage != weir.Delivered || len(st.Attempts) != 1 ||
				(st.Attempts[0].Body == "") != (i == 3) || st.ErasedAt.IsZero() != (i != 3) {
				t.Errorf("message %d: got %+v, want it delivered, and the fourth alone erased", i,
					st)
			}
		}

		for _, id := range ids {
			w.erase(id)
		}

		w.expectNoTrace("all erased")
		if got := w.rowKeys("d_"); len(got) != 0 {
			t.Errorf("got packed deliveries %v, want none left", got)
		}

		if after := w.control(); after.Tail.Counts != before.Tail.Counts {
			t.Errorf("got %+v, want the books as before: %+v", after.Tail.Counts,
				before.Tail.Counts)
		}
	})
}

func TestErase_RefusesUnfinishedMessages(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(answerWithPerson(422))
		scheduled := w.postPerson("later ", func(m *weir.Message) {
			m.DueAt, m.Key = time.Now().Add(time.Hour), "later"
		})
		queued := w.postPerson("now ")
		expectConflict := func(id weir.ID, want string) {
			t.Helper()
			if _, err := w.store.Requests().Erase(t.Context(), id); weir.KindOf(err) !=
				weir.Conflict ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want a Conflict with %q", err, want)
			}
		}

		expectConflict(scheduled, "scheduled: cancel it first")
		expectConflict(queued, "queued: cancel it first")
		p := w.start()
		p.Wake(0)
		time.Sleep(time.Minute)
		p.close(t)

		if _, err := w.store.Requests().Replay(t.Context(), queued, lane.ReplayOptions{}); err !=
			nil {
			t.Fatal(err)
		}

		expectConflict(queued, "a replay of the message is waiting")

		if st, err := w.store.Requests().Cancel(t.Context(), scheduled); err != nil ||
			st.Stage != weir.Cancelled {
			t.Fatalf("got %v, %v, want Stage cancelled and no error", st, err)
		}

		if st := w.erase(scheduled); st.Stage != weir.Cancelled || st.ErasedAt.IsZero() {
			t.Errorf("got %+v, want it cancelled and erased", st)
		}

		unknown := queued
		unknown.Nonce = "00000000000000000000"
		if _, err := w.store.Requests().Erase(t.Context(), unknown); weir.KindOf(err) !=
			weir.NotFound {
			t.Errorf("unknown id: got %v, want NotFound", err)
		}
	})
}

// One request to storage fails, or storage carries the request out and the answer is lost. A second
// call of Erase then completes the erasure.
func TestErase_GoesOnAfterAnyFault(t *testing.T) {
	for _, kind := range []storagetest.FaultKind{storagetest.FailBefore, storagetest.FailAfter} {
		for n := range 12 {
			t.Run(fmt.Sprint(kind, " ", n), func(t *testing.T) {
				simulate(t, func(t *testing.T, w *world) {
					w.cms.setAnswer(answerWithPerson(200))
					p := w.start()
					id := w.postPerson(strings.Repeat("noise", 1),
						func(m *weir.Message) { m.Supersede, m.Version = true, "1" })
					p.Wake(0)
					w.waitUntilEmpty(time.Minute)
					p.close(t)
					store, faults, calls := *w.store, storagetest.NewFaults(), 0
					store.Table = faults.Table(w.account.Table())
					faults.Set(func(storagetest.Call) storagetest.Fault {
						if calls++; calls == n+1 {
							return storagetest.Fault{Kind: kind}
						}
						return storagetest.Fault{}
					})

					_, first := store.Requests().Erase(t.Context(), id)
					if kind := weir.KindOf(first); first != nil && kind != weir.Unavailable {
						t.Errorf("got %v, want no error, or Unavailable", first)
					}

					faults.Set(
						func(storagetest.Call) storagetest.Fault { return storagetest.Fault{} })
					if _, err := store.Requests().Erase(t.Context(), id); err != nil {
						t.Errorf("again: got %v, want no error", err)
					}

					w.expectNoTrace("erased")
				})
			})
		}
	}
}

// After an erasure the message's row still shows that a replay was refused. Otherwise a job that
// replays the message would wait for ever for the result.
func TestErase_KeepsThatAReplayWasRefused(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.answerByBody("1")
		p := w.start()
		first := w.post("a", "1")
		p.Wake(0)
		w.waitUntilIdle()
		w.cms.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
			if _, err := w.store.Requests().Replay(ctx, first, lane.ReplayOptions{}); err != nil {
				t.Error(err)
			}
			return answerAfter(20*time.Millisecond, 200)(ctx, d)
		})

		w.post("a", "2")
		p.Wake(0)
		w.waitUntilIdle()

		if st := w.erase(first); st.Stage != weir.Dead || st.ReplayRefused != "erased" {
			t.Errorf("got stage %s and the refusal %q, want dead and \"erased\"", st.Stage,
				st.ReplayRefused)
		}
	})
}
