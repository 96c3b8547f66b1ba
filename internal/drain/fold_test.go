package drain_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/fold"
	"weir/internal/storage"
	"weir/internal/weir"
)

// simulateFolded is simulate with a storage that folds keys by all rules.
func simulateFolded(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	simulate(t, func(t *testing.T, w *world) {
		w.store.Fold = fold.All
		f(t, w)
	})
}

const (
	plain    = "cafe"
	spelled  = "Café"
	combined = "CAFE\u0301"
)

// A message that waits for its retry holds back the messages of all spellings of its key, and no
// others.
func TestFold_OneOrder(t *testing.T) {
	simulateFolded(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
			if string(d.Message.Body) == "1" && d.Attempt == 1 {
				return newAnswer(500)
			}
			return answerAfter(20*time.Millisecond, 200)(ctx, d)
		})

		w.post(spelled, "1")
		w.post(plain, "2")
		w.post("cafeteria", "other")
		w.post(combined, "3")
		w.post(spelled, "4")
		w.start().Wake(0)
		w.waitUntilEmpty(time.Minute)

		if got, want := w.sentBodies(), []string{"1", "other", "1", "2", "3", "4"}; !slices.Equal(
			got, want) {
			t.Errorf("sent %v, want %v", got, want)
		}

		for key, want := range map[string][]string{spelled: {"1", "4"}, plain: {"2"},
			combined: {"3"}} {
			if got := w.listDelivered(key); !slices.Equal(got, want) {
				t.Errorf("under the key %q the CMS got %v, want %v: each key is sent as it came",
					key, got, want)
			}
		}
	})
}

// A process that appended the messages itself gives them the same order as one that reads them from
// the log.
func TestFold_OneOrderOfOfferedMessages(t *testing.T) {
	simulateFolded(t, func(t *testing.T, w *world) {
		answers := w.answerByBody()
		answers.setStatus("1", 500)
		p := w.start(func(c *drain.Config) { c.Attempts = 2 })
		a := w.newOfferingAppender(p)
		w.appendBy(a, spelled, "1")
		w.appendBy(a, plain, "2")
		p.Wake(0)
		w.waitUntilEmpty(time.Minute)
		if got, want := w.sentBodies(), []string{"1", "1", "2"}; !slices.Equal(got, want) {
			t.Errorf("sent %v, want %v", got, want)
		}
	})
}

// A version supersedes only versions of exactly its key. Another spelling between two versions ends
// a run, in the log and in the queue of a blocked key.
func TestFold_SupersedeStaysWithinASpelling(t *testing.T) {
	for name, fails := range map[string]bool{"Log": false, "Held": true} {
		t.Run(name, func(t *testing.T) {
			simulateFolded(t, func(t *testing.T, w *world) {
				answers := w.answerByBody()
				if fails {
					answers.setStatus("first", 500)
					w.post(plain, "first")
				}

				old := w.postVersion(spelled, "1")
				w.postVersion(spelled, "2")
				other := w.postVersion(plain, "9")
				low := w.postVersion(spelled, "3")
				outdated := w.postVersion(spelled, "1.5")
				p := w.start()
				p.Wake(0)

				if fails {
					time.Sleep(500 * time.Millisecond)
					answers.setStatus("first", 200)
				}

				w.waitUntilEmpty(time.Minute)

				got := slices.DeleteFunc(w.sentBodies(),
					func(body string) bool { return body == "first" })
				if want := []string{"2", "9", "3"}; !slices.Equal(got, want) {
					t.Errorf("sent %v, want %v", got, want)
				}

				for id, want := range map[weir.ID]weir.Stage{old: weir.Superseded,
					other: weir.Delivered, low: weir.Delivered, outdated: weir.Superseded} {
					if st := w.status(id); st.Stage != want {
						t.Errorf("version %s of %q is %s, want %s", st.Message.Version,
							st.Message.Key, st.Stage, want)
					}
				}

				for key, want := range map[string]string{spelled: "3", plain: "9", combined: ""} {
					latest, err := w.store.Messages().FindLatestVersion(t.Context(), key, "article")
					if err != nil || latest.Version != want {
						t.Errorf("the version of %q: got %q, %v, want %q", key,
							latest.Version, err, want)
					}
				}
			})
		})
	}
}

// A pause of one spelling holds back all of them, because they have one order. Each of them ends
// the pause.
func TestFold_PauseOfAllSpellings(t *testing.T) {
	simulateFolded(t, func(t *testing.T, w *world) {
		p := w.start()
		w.pause(spelled, time.Time{})
		w.pause(combined, time.Time{}) // replaces the pause
		w.post(plain, "1")
		w.post(spelled, "2")
		w.post("other", "3")
		p.Wake(0)
		time.Sleep(10 * time.Second)
		if got := w.sentBodies(); !slices.Equal(got, []string{"3"}) {
			t.Errorf("during the pause: sent %v, want [3]", got)
		}

		pauses, err := w.store.Pauses().ReadPauses(t.Context())
		if err != nil || len(pauses) != 1 || pauses[0].Key != combined {
			t.Errorf("got the pauses %+v, %v, want one of %q, as the operator wrote it", pauses,
				err, combined)
		}

		w.resume(p, plain)
		w.waitUntilEmpty(time.Minute)
		if got := w.sentBodies(); !slices.Equal(got, []string{"3", "1", "2"}) {
			t.Errorf("after the pause: sent %v, want [3 1 2]", got)
		}
	})
}

// A replay is refused if a later message of another spelling was delivered: it would overwrite that
// message's item.
func TestFold_ReplayBehindAnotherSpelling(t *testing.T) {
	simulateFolded(t, func(t *testing.T, w *world) {
		w.answerByBody("bad")
		p := w.start()
		dead := w.post(spelled, "bad")
		later := w.post(plain, "good")
		p.Wake(0)
		w.waitUntilEmpty(time.Minute)

		e, err := w.store.ReadMessage(t.Context(), 0, dead.Seq)
		if err != nil {
			t.Fatal(err)
		}

		obstacle, err := w.store.ReplayObstacle(t.Context(), e)
		if want := "a later message of its key was delivered: " + later.String(); err != nil ||
			obstacle != want {
			t.Errorf("the obstacle: got %q, %v, want %q", obstacle, err, want)
		}

		w.expectReplayRefused(dead, later.String())
	})
}

// A remembered id belongs to exactly one key: the id of another spelling would lead past the
// look-up.
func TestFold_RememberedIDsStayWithinASpelling(t *testing.T) {
	simulateFolded(t, func(t *testing.T, w *world) {
		got := map[string]string{}
		w.cms.setAnswer(func(_ context.Context, d weir.Delivery) weir.Result {
			got[string(d.Message.Body)] = d.RememberedID
			r := newAnswer(200)
			r.RememberedID = "id of " + d.Message.Key
			return r
		})

		p := w.start(func(c *drain.Config) { c.Remembers = func(string) bool { return true } })
		w.post(spelled, "1")
		w.post(plain, "2")
		w.post(spelled, "3")
		p.Wake(0)
		w.waitUntilEmpty(time.Minute)

		if got["1"] != "" || got["2"] != "" || got["3"] != "id of "+spelled {
			t.Errorf("the steps got the remembered ids %q, want one for 3 only, that of %q",
				got, spelled)
		}
	})
}

// An erasure of one spelling erases no row of another one.
func TestFold_ErasureOfOneSpelling(t *testing.T) {
	simulateFolded(t, func(t *testing.T, w *world) {
		p := w.start(func(c *drain.Config) { c.Remembers = func(string) bool { return true } })
		w.cms.setAnswer(func(_ context.Context, d weir.Delivery) weir.Result {
			r := newAnswer(200)
			r.RememberedID = "7"
			return r
		})

		erased := w.postVersion(spelled, "4")
		w.postVersion(plain, "5")
		p.Wake(0)
		w.waitUntilEmpty(time.Minute)
		before := w.countRowsOf(plain)
		if before < 3 || w.countRowsOf(spelled) != before {
			t.Fatalf("%d rows name %q, and %d %q, want a message, a version and an id of each",
				before, plain, w.countRowsOf(spelled), spelled)
		}

		if _, err := w.store.Requests().Erase(t.Context(), erased); err != nil {
			t.Fatal(err)
		}

		if got := w.countRowsOf(spelled); got != 0 {
			t.Errorf("%d rows name %q after its erasure, want none", got, spelled)
		}

		if got := w.countRowsOf(plain); got != before {
			t.Errorf("%d rows name %q, want %d as before", got, plain, before)
		}
	})
}

// countRowsOf returns the number of rows of lane 0 whose ordering key is key.
func (w *world) countRowsOf(key string) (n int) {
	w.t.Helper()
	page, err := w.account.Table().Range(w.t.Context(),
		storage.Query{Partition: w.store.Partition(0)})
	if err != nil {
		w.t.Fatal(err)
	}

	for _, r := range page.Rows {
		if r.Values["Key"] == key {
			n++
		}
	}

	return n
}
