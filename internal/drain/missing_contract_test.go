package drain_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/weir"
)

// ofContract gives a message another contract than "article".
func ofContract(name string) func(*weir.Message) {
	return func(m *weir.Message) { m.Contract = name }
}

// withContracts gives a process settings with these contracts.
func withContracts(names ...string) func(*drain.Config) {
	former := map[string][]string{}
	for _, name := range names {
		former[name] = nil
	}
	return func(c *drain.Config) { c.Store.Contracts = lane.NewContracts(former) }
}

// withRenamed gives a process settings whose only contract is "news", which was formerly "article".
func withRenamed(c *drain.Config) {
	c.Store.Contracts = lane.NewContracts(map[string][]string{"news": {"article"}})
}

// checkMissing checks the missing contract in tail.
func (w *world) checkMissing(want ...lane.MissingContract) {
	w.t.Helper()
	got := w.control().Tail.Missing
	for i := range got {
		got[i].Since = time.Time{}
	}

	if fmt.Sprint(got) != fmt.Sprint(want) {
		w.t.Errorf("tail has the missing contracts %+v, want %+v", got, want)
	}
}

func TestMissingContract_HoldsUpOnlyItsKey(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start(withContracts("article"))
		gone := w.post("a", "1", ofContract("gone"))
		behind := w.post("a", "2")
		for i := range 100 {
			w.post(fmt.Sprint("other", i%7), fmt.Sprint("o", i))
		}

		p.Wake(0)
		time.Sleep(time.Hour)
		if got := w.cms.listRequests(); len(got) != 100 {
			t.Errorf("the CMS got %d requests, want the 100 of other keys", len(got))
		}

		for _, id := range []weir.ID{gone, behind} {
			if st := w.status(id); st.Stage != weir.Queued || st.AttemptCount != 0 {
				t.Errorf("message %d is %s after %d attempts, want it queued, without an attempt",
					id.Seq, st.Stage, st.AttemptCount)
			}
		}

		w.checkMissing(lane.MissingContract{Contract: "gone", Messages: 2, Keys: 1})
		p.close(t)
		w.start(withContracts("article", "gone")).Wake(0)
		w.waitUntilEmpty(time.Minute)
		if got := w.listDelivered("a"); fmt.Sprint(got) != "[1 2]" {
			t.Errorf("delivered %v when the contract was back, want [1 2]", got)
		}

		w.checkMissing()
	})
}

// The holder that missed the contract crashes right after its first commit. A process whose
// settings have the contract sends the message at once, not when the time for the contract is over.
func TestMissingContract_IsFoundAfterACrash(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start(withContracts("article"))
		w.post("a", "1", ofContract("gone"))
		p.Wake(0)
		for w.control().Tail.Cursor != 2 {
			time.Sleep(time.Millisecond)
		}

		p.kill()
		other := w.start(withContracts("article", "gone"))
		other.Wake(0)
		w.waitUntilEmpty(2 * leaseLength)
	})
}

func TestMissingContract_WithSkipLaterMessagesGoOn(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start(withContracts("article"))
		for i := range 3 {
			w.post("a", fmt.Sprint(i), ofContract("gone"), withSkip)
		}

		w.post("a", "later", withSkip)
		p.Wake(0)
		time.Sleep(time.Minute)
		if got := w.listDelivered("a"); fmt.Sprint(got) != "[later]" {
			t.Errorf("delivered %v, want [later]", got)
		}

		w.checkMissing(lane.MissingContract{Contract: "gone", Messages: 3, Keys: 1})
		p.close(t)
		w.start(withContracts("article", "gone")).Wake(0)
		w.waitUntilEmpty(time.Minute)
		if got := w.listDelivered("a"); fmt.Sprint(got) != "[later 0 1 2]" {
			t.Errorf("delivered %v when the contract was back, want [later 0 1 2]", got)
		}
	})
}

func TestMissingContract_Cancel(t *testing.T) {
	for name, kind := range map[string]func(*weir.Message){"Held": func(*weir.Message) {},
		"Skip":      withSkip,
		"Supersede": func(m *weir.Message) { m.Supersede, m.Version = true, "1" }} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				p := w.start(withContracts("article"))
				gone := w.post("a", "gone", ofContract("gone"), kind)
				w.post("a", "next")
				p.Wake(0)
				time.Sleep(time.Minute)
				if _, err := w.store.Requests().Cancel(t.Context(), gone); err != nil {
					t.Fatal(err)
				}

				p.Wake(0)
				w.waitUntilEmpty(10 * time.Second)

				if got := w.listDelivered("a"); fmt.Sprint(got) != "[next]" ||
					w.status(gone).Stage != weir.Cancelled {
					t.Errorf("delivered %v, and the message is %s; want [next] and cancelled", got,
						w.status(gone).Stage)
				}

				w.checkMissing()
			})
		})
	}
}

// After delivery.patience the message is dead. The time begins when a holder first misses the
// contract, not when the message was accepted: here the lane was paused for longer than that. A
// replay begins the time anew.
func TestMissingContract_IsDeadAfterPatience(t *testing.T) {
	for name, kind := range map[string]func(*weir.Message){"Held": func(*weir.Message) {},
		"Skip":      withSkip,
		"Supersede": func(m *weir.Message) { m.Supersede, m.Version = true, "1" }} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				const patience = 10 * time.Hour
				withPatience := func(c *drain.Config) { c.Patience = patience }
				p := w.start(withContracts("article"), withPatience)
				w.pause("", time.Time{})
				ids := []weir.ID{w.post("a", "1", ofContract("gone"), kind),
					w.post("a", "2", ofContract("gone"), kind)}
				w.post("a", "next")
				p.Wake(0)
				time.Sleep(2 * patience)
				w.resume(p, "")
				time.Sleep(patience - time.Minute)

				if st := w.status(ids[0]); st.Stage != weir.Queued {
					t.Fatalf("before its time the message is %s (%s), want it queued", st.Stage,
						st.LastError)
				}

				time.Sleep(2 * time.Minute)

				for _, id := range ids {
					if st := w.status(id); st.Stage != weir.Dead ||
						!strings.Contains(st.LastError, "contract") {
						t.Errorf(
							"after its time message %d is %s (%s), want it dead because of its contract", id.Seq,
							st.Stage, st.LastError)
					}
				}

				if got := w.listDelivered("a"); fmt.Sprint(got) != "[next]" {
					t.Errorf("delivered %v, want [next]", got)
				}

				w.checkMissing()

				w.replay(ids[0], lane.ReplayOptions{Force: true})
				p.Wake(0)
				time.Sleep(patience / 2)

				if st := w.status(ids[0]); st.Stage != weir.Queued {
					t.Errorf("the replayed message is %s (%s), want it queued", st.Stage,
						st.LastError)
				}

				p.close(t)
				w.start(withContracts("article", "gone"), withPatience).Wake(0)
				w.waitUntilEmpty(time.Minute)
				if got := w.listDelivered("a"); fmt.Sprint(got) != "[next 1]" {
					t.Errorf("delivered %v when the contract was back, want [next 1]", got)
				}
			})
		})
	}
}

// The contract of a message that waits for its retry disappears.
func TestMissingContract_WhileItsMessageWaitsForARetry(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(answerAfter(time.Millisecond, 500))
		first := w.start(withContracts("article", "gone"))
		id := w.post("a", "1", ofContract("gone"))
		first.Wake(0)
		for w.status(id).Stage != weir.Retrying {
			time.Sleep(time.Millisecond)
		}

		first.close(t)
		w.cms.setAnswer(answerAfter(time.Millisecond, 200))
		p := w.start(withContracts("article"))
		p.Wake(0)
		time.Sleep(time.Hour)

		if n := w.status(id).AttemptCount; n != 1 || len(w.cms.listRequests()) != 1 {
			t.Errorf("got %d attempts and %d requests, want one before the contract disappeared", n,
				len(w.cms.listRequests()))
		}

		w.checkMissing(lane.MissingContract{Contract: "gone", Messages: 1, Keys: 1})
		p.close(t)
		w.start(withContracts("article", "gone")).Wake(0)
		w.waitUntilEmpty(time.Minute)
	})
}

// A message that becomes due is not held up by a message of its key whose contract is missing, if
// it goes first.
func TestMissingContract_AReplayedMessageGoesFirst(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(answerAfter(time.Millisecond, 422))
		p := w.start(withContracts("article"))
		dead := w.post("a", "dead")
		p.Wake(0)
		w.waitUntilEmpty(time.Minute)
		w.cms.setAnswer(answerAfter(time.Millisecond, 200))
		w.post("a", "gone", ofContract("gone"))
		p.Wake(0)
		time.Sleep(time.Minute)
		w.replay(dead, lane.ReplayOptions{})
		p.Wake(0)
		time.Sleep(10 * time.Second)
		if got := w.listDelivered("a"); fmt.Sprint(got) != "[dead]" {
			t.Errorf("delivered %v, want [dead]", got)
		}

		w.checkMissing(lane.MissingContract{Contract: "gone", Messages: 1, Keys: 1})
	})
}

// Messages that were stored under the former name of a contract are messages of the contract. So a
// version that was delivered under the former name supersedes an older one under the new name.
func TestRenamedContract_Supersedes(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		version := func(v, contract string) func(*weir.Message) {
			return func(m *weir.Message) { m.Supersede, m.Version, m.Contract = true, v, contract }
		}
		first := w.start(withContracts("article"))
		w.post("a", "7", version("7", "article"))
		first.Wake(0)
		w.waitUntilEmpty(time.Minute)
		first.close(t)
		w.post("a", "8", version("8", "article"))
		w.post("a", "9", version("9", "news"))
		old := w.post("b", "1", version("1", "article"))
		p := w.start(withRenamed)
		p.Wake(0)
		w.waitUntilEmpty(time.Minute)
		outdated := w.post("a", "6", version("6", "news"))
		p.Wake(0)
		w.waitUntilEmpty(time.Minute)

		if got := w.listDelivered("a"); fmt.Sprint(got) != "[7 9]" ||
			w.status(outdated).Stage != weir.Superseded ||
			w.status(old).Stage != weir.Delivered {
			t.Errorf("delivered %v, and the older version is %s; want [7 9] and superseded", got,
				w.status(outdated).Stage)
		}
	})
}

// A version that was delivered under the former name is forgotten on request, too.
func TestRenamedContract_ForgetsAVersion(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		version := func(v, contract string) func(*weir.Message) {
			return func(m *weir.Message) { m.Supersede, m.Version, m.Contract = true, v, contract }
		}
		first := w.start(withContracts("article"))
		w.post("a", "wrong", version("999", "article"))
		first.Wake(0)
		w.waitUntilEmpty(time.Minute)
		first.close(t)
		p := w.start(withRenamed)
		w.post("a", "5", version("5", "news"))
		p.Wake(0)
		w.waitUntilEmpty(time.Minute)
		if _, err := p.Store.Requests().ForgetVersion(t.Context(), "a", "news"); err != nil {
			t.Fatal(err)
		}

		p.Wake(0)
		time.Sleep(10 * time.Second)
		w.post("a", "6", version("6", "news"))
		p.Wake(0)
		w.waitUntilEmpty(time.Minute)
		if got := w.listDelivered("a"); fmt.Sprint(got) != "[wrong 6]" {
			t.Errorf("delivered %v, want [wrong 6]", got)
		}
	})
}

// An id that was learned under the former name is known to messages of the new name, and no second
// item is made.
func TestRenamedContract_KeepsTheRememberedID(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		m := &idCMS{next: newDeliveredResult("7")}
		w.cms.setAnswer(m.Send)
		remembers := func(c *drain.Config) { c.Remembers = func(string) bool { return true } }
		first := w.start(withContracts("article"), remembers)
		w.deliverOne(first)
		first.close(t)
		p := w.start(withRenamed, remembers)
		w.deliverOne(p, ofContract("news"))
		m.setNext(newDeliveredResult("8"))
		w.deliverOne(p, ofContract("news"))
		m.setNext(weir.Result{Outcome: weir.OutcomeDelivered, Status: 200, IsForgotten: true,
			StartedAt: time.Now()})
		w.deliverOne(p, ofContract("news"))
		p.close(t)
		other := w.start(withRenamed, remembers)
		w.deliverOne(other, ofContract("news"))
		if got := m.listKnown(); fmt.Sprintf("%q", got) != `["" "7" "7" "8" ""]` {
			t.Errorf(`the CMS was asked with the ids %q, want "", "7", "7", "8" and ""`, got)
		}
	})
}
