package lane_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/lane/epochend"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

// grantReplays grants up to ten requests for replays, as the lane's holder does. It does not write
// the rows of blocks.
func (b *bench) grantReplays(w *lane.Writer) {
	b.t.Helper()
	requests, err := b.faultless.DeliveryState().PendingRequests(b.t.Context(), 0, 10)
	if err != nil {
		b.t.Fatal(err)
	}

	for _, r := range requests {
		e, err := b.faultless.ReadMessage(b.t.Context(), 0, r.Seq)
		if err != nil {
			b.t.Fatal(err)
		}

		ch, tx := &lane.Change{}, &lane.Transaction{}
		ch.ResolveRequest(r)
		ch.Replay(e, r, time.Now())
		tx.TryAdd(ch)
		if err := w.Commit(b.t.Context(), tx); err != nil {
			b.t.Fatal(err)
		}
	}
}

// appendDead appends a message, and makes it dead with a rejected attempt.
func (b *bench) appendDead(w *lane.Writer, key, body string) weir.ID {
	b.t.Helper()
	r, err := lane.NewAppender(b.store, quiet).Append(b.t.Context(), newMessage(key, body), "")
	if err != nil {
		b.t.Fatal(err)
	}

	e, err := b.faultless.ReadMessage(b.t.Context(), 0, r.Message.ID.Seq)
	if err != nil {
		b.t.Fatal(err)
	}

	e.Record(weir.Result{Outcome: weir.OutcomeRejected, Status: 422, Reason: "no"},
		w.Tail().Fence, true)
	ch, tx := &lane.Change{}, &lane.Transaction{}
	if err := ch.Finish(e, weir.Dead, time.Now()); err != nil {
		b.t.Fatal(err)
	}

	tx.TryAdd(ch)
	if err := w.Commit(b.t.Context(), tx); err != nil {
		b.t.Fatal(err)
	}

	return r.Message.ID
}

func (b *bench) raiseFence() *lane.Writer {
	b.t.Helper()
	w, err := b.faultless.RaiseFence(b.t.Context(), 0, "one", lane.Tail{}, keepTail)
	if err != nil {
		b.t.Fatal(err)
	}
	return w
}

func (b *bench) blobNames() (names []string) {
	b.t.Helper()
	page, err := b.account.Blobs().List(b.t.Context(), "", "")
	if err != nil {
		b.t.Fatal(err)
	}

	for _, info := range page.Infos {
		names = append(names, info.Name)
	}

	return names
}

func withBody(body string) lane.ReplayOptions {
	return lane.ReplayOptions{Edit: &lane.Edit{Body: []byte(body), ContentType: "text/xml"}}
}

func TestReplay_LostAnswers(t *testing.T) {
	for name, kind := range map[string]storagetest.FaultKind{"Before": storagetest.FailBefore,
		"After": storagetest.FailAfter} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, b *bench) {
				w := b.raiseFence()
				id := b.appendDead(w, "a", "x")
				faults := 0
				b.faults.Set(func(c storagetest.Call) storagetest.Fault {
					if c.Op == "Transact" && faults < 2 {
						faults++
						return storagetest.Fault{Kind: kind}
					}
					return storagetest.Fault{}
				})

				if _, err := b.store.Requests().Replay(t.Context(), id, withBody("y")); err !=
					nil || faults == 0 {
					t.Fatalf("%v after %d faults, want more than 0 and no error", err, faults)
				}

				b.grantReplays(w)
				st, err := b.store.Messages().Status(t.Context(), id)
				if err != nil || st.Stage != weir.Queued || st.Message.Replays != 1 ||
					!st.FinishedAt.IsZero() {
					t.Errorf("got %+v, %v, want Stage queued, Replays 1, no FinishedAt and no error", st, err)
				}

				if c, err := b.faultless.ReadControl(t.Context(),
					0); err != nil || c.Tail.Counts.Dead != 0 || c.WaitingCount() != 1 {
					t.Errorf("got %+v, %v, want Dead 0, WaitingCount 1 and no error", c, err)
				}
			})
		})
	}
}

// A forced request can be stored while an unforced request waits. A third request, which is
// unforced, changes nothing.
func TestReplay_Forced(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		id := b.appendDead(b.raiseFence(), "a", "x")
		for _, force := range []bool{false, true, false} {
			if _, err := b.store.Requests().Replay(t.Context(), id, lane.ReplayOptions{Force: force}); err != nil {
				t.Fatal(err)
			}
		}

		if st, err := b.store.Messages().Status(t.Context(), id); err != nil || !st.ReplayForced {
			t.Errorf("Status = %+v, %v, want ReplayForced, as of the second request", st, err)
		}
	})
}

func TestReplay_InASealedLane(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		id := b.appendDead(b.raiseFence(), "a", "x")
		if err := (epochend.Lanes{Store: b.faultless}).Seal(t.Context(), 0); err != nil {
			t.Fatal(err)
		}

		if _, err := b.store.Requests().Replay(t.Context(), id,
			lane.ReplayOptions{}); weir.KindOf(err) != weir.Unavailable {
			t.Errorf("got %v, want an error of kind Unavailable", err)
		}
	})
}

// Retention keeps a dead message while a request for its replay waits, even if the time of KeepDead
// is over. It also keeps the replayed message, until the message has been final for KeepFinal.
func TestRetention_OfReplayed(t *testing.T) {
	const day = 24 * time.Hour
	simulate(t, func(t *testing.T, b *bench) {
		w := b.raiseFence()
		id := b.appendDead(w, "a", newNoise(100<<10, 1))
		ch, tx := &lane.Change{}, &lane.Transaction{}
		ch.UpdateTail(func(tail *lane.Tail) { tail.Cursor = 2 })
		tx.TryAdd(ch)
		if err := w.Commit(t.Context(), tx); err != nil {
			t.Fatal(err)
		}

		r := &lane.Retention{Store: b.store, KeepFinal: 7 * day, KeepDead: 30 * day,
			TimeShare: time.Minute}
		there := func() bool {
			t.Helper()
			for range 2 { // two runs: one walk over the log ends, and another one begins
				time.Sleep(25 * time.Hour)
				if _, err := r.RunLane(t.Context(), 0); err != nil {
					t.Fatal(err)
				}
			}

			return b.listKeys()["m_"+lane.OrderPos(1)]
		}

		time.Sleep(27 * day)
		if _, err := b.store.Requests().Replay(t.Context(), id, withBody(newNoise(100<<10, 2))); err != nil {
			t.Fatal(err)
		}

		time.Sleep(4 * day)
		if !there() {
			t.Fatal("the message was removed while its replay waits, want it kept")
		}

		if _, err := r.RemoveForgottenBodies(t.Context()); err != nil {
			t.Fatal(err)
		}

		b.grantReplays(w)
		time.Sleep(40 * day)

		if !there() || len(b.blobNames()) != 2 {
			t.Fatalf("message kept: %t, blobs %v; want it kept with 2 blobs while it waits",
				there(), b.blobNames())
		}

		b.commitFinal(w, 1, weir.Delivered)
		if time.Sleep(7 * day); there() {
			t.Error("the message is kept after its time, want it removed")
		}

		if left := b.blobNames(); len(left) != 0 {
			t.Errorf("blobs left: %v, want 0 left", left)
		}

		for key := range b.listKeys() {
			if strings.HasPrefix(key, "x_") || strings.HasPrefix(key, "w_") {
				t.Errorf("the row %s is left, want no row of a dead message and no request", key)
			}
		}
	})
}

// The search for forgotten bodies keeps the edited bodies of a granted request and of a waiting
// request.
func TestForgotten_EditedBodies(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		w := b.raiseFence()
		granted, waiting := b.appendDead(w, "a", "x"), b.appendDead(w, "b", "y")
		if _, err := b.store.Requests().Replay(t.Context(), granted, withBody(newNoise(100<<10, 1))); err != nil {
			t.Fatal(err)
		}

		b.grantReplays(w)
		if _, err := b.store.Requests().Replay(t.Context(), waiting, withBody(newNoise(100<<10, 2))); err != nil {
			t.Fatal(err)
		}

		if err := b.account.Blobs().Put(t.Context(),
			time.Now().UTC().Format("2006-01-02")+"/1.0/orphan", nil); err != nil {
			t.Fatal(err)
		}

		r := &lane.Retention{Store: b.store, KeepFinal: time.Hour, KeepDead: time.Hour,
			TimeShare: time.Minute}

		for range 4 {
			time.Sleep(24 * time.Hour)
			if _, err := r.RemoveForgottenBodies(t.Context()); err != nil {
				t.Fatal(err)
			}
		}

		if names := b.blobNames(); len(names) != 2 ||
			strings.Contains(strings.Join(names, " "), "orphan") {
			t.Errorf("got %v, want 2 names and no \"orphan\"", names)
		}

		if _, err := b.store.Messages().LoadEditedMessage(t.Context(), granted); err != nil {
			t.Error(err)
		}
	})
}

func TestDeadKeys_TooMany(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		for seq := int64(1); seq <= 10_001; seq += 100 {
			var ops []storage.Op
			for i := range int64(100) {
				ops = append(ops, storage.Op{Kind: storage.Insert, Key: "x_" + lane.OrderPos(seq+i),
					Values: map[string]any{"Key": lane.OrderPos((seq + i) / 2)}})
			}

			if _, err := b.account.Table().Transact(t.Context(), "1.0", ops); err != nil {
				t.Fatal(err)
			}

			if seq+99 > 5000 && seq < 5000 {
				keys, all, err := b.store.DeliveryState().ReadDeadKeys(t.Context(), 0)
				if err != nil || all || len(keys) < 2500 ||
					!keys[b.store.KeyHash(lane.OrderPos(7))] {
					t.Errorf("%d keys, all %v, %v, want at least 2500 but not all, with key 7",
						len(keys), all, err)
				}
			}
		}

		if keys, all, err := b.store.DeliveryState().ReadDeadKeys(t.Context(), 0); err != nil ||
			!all || keys != nil {
			t.Errorf("%d keys, all %v, %v, want all true, no keys and no error",
				len(keys), all, err)
		}
	})
}

// shortPages is a table that returns pages of one row. Storage is allowed to return such short
// pages.
type shortPages struct{ storage.Table }

func (s shortPages) Range(ctx context.Context, q storage.Query) (storage.Page, error) {
	q.Limit = 1
	return s.Table.Range(ctx, q)
}

func TestPendingRequests_InShortPages(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		w := b.raiseFence()
		for _, key := range []string{"a", "b", "c"} {
			if _, err := b.store.Requests().Replay(t.Context(), b.appendDead(w, key, "x"),
				lane.ReplayOptions{}); err != nil {
				t.Fatal(err)
			}
		}

		store := *b.faultless
		store.Table = shortPages{b.faultless.Table}
		for limit, want := range map[int]int{2: 2, 3: 3, 10: 3} {
			if got, err := store.DeliveryState().PendingRequests(t.Context(), 0, limit); err !=
				nil ||
				len(got) != want {
				t.Errorf("%d requests, at most %d, %v, want %v and no error", len(got),
					limit, err, want)
			}
		}
	})
}

// Two requests for the same message wait: a replay with an edit and, in the next row, a forced
// replay. Even if the limit excludes the second request, PendingRequests returns the first one as
// forced. Otherwise the holder would refuse the replay with the edit, and the forced replay would
// send the body without the edit.
func TestPendingRequests_ForcedBehindTheLimit(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		id := b.appendDead(b.raiseFence(), "a", "x")
		for _, o := range []lane.ReplayOptions{withBody("y"), {Force: true}} {
			if _, err := b.store.Requests().Replay(t.Context(), id, o); err != nil {
				t.Fatal(err)
			}
		}

		if got, err := b.faultless.DeliveryState().PendingRequests(t.Context(), 0,
			1); err != nil || len(got) != 1 || !got[0].Force || !got[0].HasEdit() {
			t.Errorf("got %+v, %v, want one request, forced and with an edit", got, err)
		}
	})
}

// If a replay is requested while retention removes the message, either the request is refused, or
// the message stays with its body.
func TestRetention_ReplayedMeanwhile(t *testing.T) {
	const day = 24 * time.Hour
	for name, replayed := range map[string]func(storagetest.Call) bool{
		"BeforeItIsMarked": func(c storagetest.Call) bool {
			return c.Op == "Transact" && c.Ops[0].Values["Removing"] == true
		},
		"BeforeItsBodyIsGone": func(c storagetest.Call) bool {
			return c.Port == "blobs" &&
				c.Op == "Delete"
		},
		"BeforeItsRowsAreGone": func(c storagetest.Call) bool {
			return c.Op == "Transact" && c.Ops[0].Kind == storage.Delete
		},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, b *bench) {
				w := b.raiseFence()
				id := b.appendDead(w, "a", newNoise(100<<10, 1))
				ch, tx := &lane.Change{}, &lane.Transaction{}
				ch.UpdateTail(func(tail *lane.Tail) { tail.Cursor = 2 })
				tx.TryAdd(ch)
				if err := w.Commit(t.Context(), tx); err != nil {
					t.Fatal(err)
				}

				time.Sleep(31 * day)
				asked, accepted := false, false
				b.faults.Set(func(c storagetest.Call) storagetest.Fault {
					if !asked && replayed(c) {
						asked = true
						_, err := b.faultless.Requests().Replay(context.Background(), id,
							lane.ReplayOptions{})
						accepted = err == nil
						if err != nil && weir.KindOf(err) != weir.NotFound {
							t.Error(err)
						}
					}

					return storagetest.Fault{}
				})

				r := &lane.Retention{Store: b.store, KeepFinal: 7 * day, KeepDead: 30 * day,
					TimeShare: time.Minute}
				if _, err := r.RunLane(t.Context(), 0); err != nil {
					t.Fatal(err)
				}

				if _, err := b.faultless.Messages().LoadMessage(t.Context(), id); !asked ||
					accepted != (err == nil) {
					t.Errorf("asked %v, accepted %v, and then: %v, want asked true, and no error only if accepted",
						asked, accepted, err)
				}
			})
		})
	}
}

// Replay refuses a message that retention has begun to remove, because the body is gone. In this
// test retention marks the message's row after Replay has read the row, and then retention fails.
func TestReplay_OfAMessageThatRetentionRemoves(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		w := b.raiseFence()
		id := b.appendDead(w, "a", newNoise(100<<10, 1))
		ch, tx := &lane.Change{}, &lane.Transaction{}
		ch.UpdateTail(func(tail *lane.Tail) { tail.Cursor = 2 })
		tx.TryAdd(ch)
		if err := w.Commit(t.Context(), tx); err != nil {
			t.Fatal(err)
		}

		time.Sleep(time.Hour)
		killed := storagetest.NewFaults()
		killed.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Op == "Transact" && c.Ops[0].Kind == storage.Delete {
				return storagetest.Fault{Kind: storagetest.FailBefore}
			}
			return storagetest.Fault{}
		})

		sweeper := *b.faultless
		sweeper.Table = killed.Table(b.account.Table())
		b.faults.Once(func(c storagetest.Call) bool {
			if c.Op != "Transact" {
				return false
			}

			r := &lane.Retention{Store: &sweeper, KeepFinal: time.Hour, KeepDead: time.Hour,
				TimeShare: time.Minute}
			if _, err := r.RunLane(context.Background(), 0); err == nil {
				t.Error("RunLane = no error, want the failure of its last transaction")
			}

			return true
		}, storagetest.Fault{})

		if _, err := b.store.Requests().Replay(t.Context(), id,
			lane.ReplayOptions{}); weir.KindOf(err) != weir.NotFound {
			t.Errorf("replayed with %d bodies left: %v, want an error of kind NotFound",
				len(b.blobNames()), err)
		}
	})
}
