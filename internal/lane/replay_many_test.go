package lane_test

import (
	"fmt"
	"strings"
	"testing"

	"weir/internal/lane"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

// appendManyDead appends messages with different keys, makes them dead, and returns their stored
// entries.
func (b *bench) appendManyDead(w *lane.Writer, count int) (entries []*lane.Entry) {
	b.t.Helper()
	for i := range count {
		entries = append(entries, b.readMessage(b.appendDead(w, fmt.Sprint("k", i), "x")))
	}
	return entries
}

func (b *bench) readMessage(id weir.ID) *lane.Entry {
	b.t.Helper()
	e, err := b.faultless.ReadMessage(b.t.Context(), id.Lane, id.Seq)
	if err != nil {
		b.t.Fatal(err)
	}
	return e
}

// listRequested returns the row keys of the waiting requests for replays.
func (b *bench) listRequested() (keys []string) {
	b.t.Helper()
	for key := range b.listKeys() {
		if strings.HasPrefix(key, "w_replay_") {
			keys = append(keys, key)
		}
	}
	return keys
}

func TestReplayMany_RequestsManyInOneTransaction(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		const n = 100
		entries := b.appendManyDead(b.raiseFence(), n)
		writes, all := 0, 0
		b.faults.Set(func(c storagetest.Call) storagetest.Fault {
			all++
			if c.Op == "Transact" {
				writes++
			}
			return storagetest.Fault{}
		})

		results, err := b.store.Requests().ReplayMany(t.Context(), 0, entries, false)
		if err != nil || len(results) != n {
			t.Fatalf("got %d results, %v, want %d and no error", len(results), err, n)
		}

		for i, err := range results {
			if err != nil {
				t.Errorf("result %d: %v, want no error", i, err)
			}
		}

		if writes != 3 || all > 4*n {
			t.Errorf("%d transactions, %d calls of storage; want 3 (49 + 49 + 2 messages), and 4 a message at most",
				writes, all)
		}

		if got := b.listRequested(); len(got) != n {
			t.Errorf("%d requests wait, want %d", len(got), n)
		}
	})
}

// Storage does not answer the transaction that stores the requests. If the transaction was done,
// ReplayMany does not store the requests again, and returns no errors for them. If the transaction
// was not done, ReplayMany stores the requests now.
func TestReplayMany_LostAnswers(t *testing.T) {
	for name, kind := range map[string]storagetest.FaultKind{"Before": storagetest.FailBefore,
		"After": storagetest.FailAfter} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, b *bench) {
				w := b.raiseFence()
				entries := b.appendManyDead(w, 3)
				isBroken := false
				b.faults.Set(func(c storagetest.Call) storagetest.Fault {
					switch {
					case c.Op == "Transact" && !isBroken:
						isBroken = true
						return storagetest.Fault{Kind: kind}
					case isBroken && kind == storagetest.FailAfter:
						// The holder grants the requests before ReplayMany reads the messages
						// again.
						b.faults.Set(
							func(storagetest.Call) storagetest.Fault { return storagetest.Fault{} })
						b.grantReplays(w)
					}

					return storagetest.Fault{}
				})

				results, err := b.store.Requests().ReplayMany(t.Context(), 0, entries, false)
				if err != nil || len(results) != 3 {
					t.Fatalf("got results %v, %v, want 3 and no error", results, err)
				}

				for i, err := range results {
					if err != nil {
						t.Errorf("result %d: %v, want no error", i, err)
					}
				}

				b.grantReplays(w)

				for _, e := range entries {
					if now := b.readMessage(e.Message.ID); now.Stage != weir.Queued ||
						now.Message.Replays != 1 {
						t.Errorf("message %d is %s after %d replays, want it queued after one",
							now.Seq(), now.Stage, now.Message.Replays)
					}
				}
			})
		})
	}
}

// A message that cannot be replayed has an error as its result. The replays of the other messages
// are requested.
func TestReplayMany_MessagesThatCannotBeReplayed(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		entries := b.appendManyDead(b.raiseFence(), 5)
		if _, err := b.faultless.Requests().Discard(t.Context(), entries[1].Message.ID, "never"); err != nil {
			t.Fatal(err)
		}

		entries[1] = b.readMessage(entries[1].Message.ID)
		if _, err := b.faultless.Requests().Replay(t.Context(), entries[2].Message.ID,
			lane.ReplayOptions{}); err != nil {
			t.Fatal(err)
		}

		if _, err := b.faultless.Requests().Discard(t.Context(), entries[3].Message.ID,
			"after it was read"); err != nil {
			t.Fatal(err)
		}

		results, err := b.store.Requests().ReplayMany(t.Context(), 0, entries, false)
		if err != nil || len(results) != 5 {
			t.Fatalf("got results %v, %v, want 5 and no error", results, err)
		}

		for i, isRefused := range []bool{false, true, false, true, false} {
			if (weir.KindOf(results[i]) == weir.Conflict) != isRefused ||
				!isRefused && results[i] != nil {
				t.Errorf("result %d: %v, want a conflict: %t", i, results[i], isRefused)
			}
		}

		if got := b.listRequested(); len(got) != 3 {
			t.Errorf("the requests %v wait, want three", got)
		}
	})
}

// If the second transaction fails, ReplayMany returns results only for the messages of the first
// transaction. So the caller knows which messages are left.
func TestReplayMany_FailsAtTheSecondTransaction(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		entries := b.appendManyDead(b.raiseFence(), 60)
		writes := 0
		b.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Op == "Transact" {
				writes++
			}

			if writes > 1 {
				return storagetest.Fault{Kind: storagetest.FailBefore}
			}
			return storagetest.Fault{}
		})

		results, err := b.store.Requests().ReplayMany(t.Context(), 0, entries, false)
		if weir.KindOf(err) != weir.Unavailable || len(results) != 49 {
			t.Fatalf("got %d results, %v, want 49 and an error of kind Unavailable",
				len(results), err)
		}

		b.faults.Set(func(storagetest.Call) storagetest.Fault { return storagetest.Fault{} })

		if results, err = b.store.Requests().ReplayMany(t.Context(), 0, entries[49:], false); err !=
			nil ||
			len(results) != 11 {
			t.Errorf("the rest: %d results, %v, want 11 and no error", len(results), err)
		}

		if got := b.listRequested(); len(got) != 60 {
			t.Errorf("%d requests wait, want 60", len(got))
		}
	})
}
