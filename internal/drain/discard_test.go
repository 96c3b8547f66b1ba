package drain_test

import (
	"strings"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

// postDead posts messages that the CMS rejects, and waits until they are dead.
func (w *world) postDead(p *process, bodies ...string) (ids []weir.ID) {
	w.t.Helper()
	for _, body := range bodies {
		ids = append(ids, w.post("a", body))
	}

	p.Wake(0)
	w.waitUntilIdle()

	for _, id := range ids {
		if got := w.status(id).Stage; got != weir.Dead {
			w.t.Fatalf("got stage %s, want dead", got)
		}
	}

	return ids
}

func (w *world) discard(id weir.ID, reason string) {
	w.t.Helper()
	if _, err := w.store.Requests().Discard(w.t.Context(), id, reason); err != nil {
		w.t.Fatalf("discard: %v", err)
	}
}

// expectConflict checks that a request is refused with a conflict, for the given reason.
func (w *world) expectConflict(err error, because string) {
	w.t.Helper()
	if weir.KindOf(err) != weir.Conflict || !strings.Contains(err.Error(), because) {
		w.t.Errorf("got %v, want a conflict with %q", err, because)
	}
}

func TestDiscard_StaysInTheBooksAsDiscarded(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.answerByBody("bad", "worse")
		p := w.start()
		ids := w.postDead(p, "bad", "worse")
		diedAt := w.status(ids[0]).FinishedAt
		time.Sleep(time.Minute)
		w.discard(ids[0], "the page is gone")
		w.discard(ids[0], "asked again")
		p.Wake(0)
		w.waitUntilIdle()
		w.discard(ids[0], "and again")
		st := w.status(ids[0])
		if st.Stage != weir.Discarded || st.DiscardReason != "the page is gone" ||
			!st.DiedAt.Equal(diedAt) ||
			st.FinishedAt.Before(diedAt.Add(time.Minute)) || st.LastError == "" ||
			len(st.Attempts) != 1 {
			t.Errorf("got %+v, want the message discarded for the first reason, with its death at %s and its attempt",
				st, diedAt)
		}

		w.expectCounts(lane.Counts{Dead: 1, Discarded: 1}, ids...)
		if got := w.rowKeys("x_"); len(got) != 1 {
			t.Errorf("got %v in the list of dead messages, want one", got)
		}

		_, err := w.store.Requests().Replay(t.Context(), ids[0], lane.ReplayOptions{Force: true})
		w.expectConflict(err, "only a dead message can be replayed, and this one is discarded")
		_, err = w.store.Requests().Cancel(t.Context(), ids[0])
		w.expectConflict(err, "the message is discarded already")
		w.erase(ids[0])
		w.expectCounts(lane.Counts{Dead: 1, Discarded: 1}, ids...)
		if got := w.status(ids[0]); got.DiscardReason != "" || got.DiedAt.IsZero() {
			t.Errorf("got %+v of an erased message, want its times without the reason", got)
		}
	})
}

func TestDiscard_IsRefused(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.answerByBody("bad", "worse")
		p := w.start()
		ids := w.postDead(p, "bad", "worse")
		good := w.post("a", "good")
		p.Wake(0)
		w.waitUntilIdle()
		_, err := w.store.Requests().Discard(t.Context(), good, "")
		w.expectConflict(err, "only a dead message can be discarded, and this one is delivered")
		w.replay(ids[1], lane.ReplayOptions{Force: true})
		_, err = w.store.Requests().Discard(t.Context(), ids[1], "")
		w.expectConflict(err, "a replay of the message is waiting")
		w.discard(ids[0], "")
		_, err = w.store.Requests().Replay(t.Context(), ids[0], lane.ReplayOptions{Force: true})
		w.expectConflict(err, "a request to discard the message is waiting")
		unknown := good
		unknown.Seq = 1000
		if _, err := w.store.Requests().Discard(t.Context(), unknown, ""); weir.KindOf(err) !=
			weir.NotFound {
			t.Errorf("got %v for an unknown message, want not found", err)
		}
	})
}

func TestStore_DiscardMany(t *testing.T) {
	faults := map[string]storagetest.FaultKind{"AnswerLost": storagetest.FailAfter,
		"NotDone": storagetest.FailBefore}
	for name, kind := range faults {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				faults := storagetest.NewFaults()
				broken := *w.store
				broken.Table = faults.Table(w.account.Table())
				var bodies []string
				var seqs []int64
				for i := range 120 {
					bodies = append(bodies, string(rune('A'+i)))
				}

				w.answerByBody(bodies...)
				p := w.start(func(c *drain.Config) { c.Attempts = 1 })
				ids := w.postDead(p, bodies...)
				w.replay(ids[0], lane.ReplayOptions{Force: true})
				for _, id := range ids {
					seqs = append([]int64{id.Seq}, seqs...)
				}

				entries, _, err := broken.ReadMany(t.Context(), 0, seqs)
				if err != nil {
					t.Fatal(err)
				}

				faults.Once(func(c storagetest.Call) bool {
					return c.Op == "Transact" &&
						len(c.Ops) > 10
				}, storagetest.Fault{Kind: kind})

				got, err := broken.Requests().DiscardMany(t.Context(), 0, entries, "")
				if want := (lane.BulkCounts{Asked: 119, TooLate: 1}); err != nil || got != want {
					t.Errorf("got %+v, %v, want %+v", got, err, want)
				}

				p.Wake(0)
				w.waitUntilIdle()
				w.expectCounts(lane.Counts{Dead: 1, Discarded: 119}, ids...)
			})
		})
	}
}

// While a discard waits for the holder, the message is not erased: the holder would write the
// reason of the discard into the erased message. A discard of an erased message leaves no reason.
func TestDiscard_BringsNoReasonIntoAnErasedMessage(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.answerByBody("bad", "worse")
		p := w.start()
		ids := w.postDead(p, "bad", "worse")
		p.close(t)
		w.discard(ids[0], "Jane Doe asked for it")
		_, err := w.store.Requests().Erase(t.Context(), ids[0])
		w.expectConflict(err, "a discard of the message is waiting")
		w.erase(ids[1])
		w.discard(ids[1], "John Doe asked for it")

		next := w.start()
		next.Wake(0)
		w.waitUntilIdle()
		w.erase(ids[0])

		for _, id := range ids {
			if st := w.status(id); st.Stage != weir.Discarded || st.ErasedAt.IsZero() ||
				st.DiscardReason != "" {
				t.Errorf("got %s with the reason %q, erased at %s; want it discarded and erased, without the reason",
					st.Stage, st.DiscardReason, st.ErasedAt)
			}
		}
	})
}
