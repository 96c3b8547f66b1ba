package drain_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

// idCMS is a CMS that answers each request with the result in the field "next". It adds the
// remembered id of each request to the field "known".
type idCMS struct {
	mu    sync.Mutex
	next  weir.Result
	known []string
}

func (m *idCMS) Send(_ context.Context, d weir.Delivery) weir.Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known = append(m.known, d.RememberedID)
	return m.next
}

func (m *idCMS) setNext(r weir.Result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next = r
}

func (m *idCMS) listKnown() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.known)
}

func newDeliveredResult(id string) weir.Result {
	return weir.Result{Outcome: weir.OutcomeDelivered, Status: 200, RememberedID: id,
		StartedAt: time.Now()}
}

func withRemembering(c *drain.Config) {
	c.Remembers = func(contract string) bool { return contract == "article" }
}

// deliverOne posts a message, wakes the process, and waits until the lane has no waiting message.
func (w *world) deliverOne(p *process, change ...func(*weir.Message)) {
	w.post("a", "x", change...)
	p.Wake(0)
	w.waitUntilEmpty(time.Minute)
}

func TestDrainer_RemembersTheIDOfAKey(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		m := &idCMS{next: newDeliveredResult("7")}
		w.cms.setAnswer(m.Send)
		first := w.start(withRemembering)
		w.deliverOne(first)
		m.setNext(newDeliveredResult(""))
		w.deliverOne(first)
		w.deliverOne(first, func(m *weir.Message) { m.Contract = "page" })
		first.close(t)
		second := w.start(withRemembering) // this process reads the id from storage
		w.deliverOne(second)
		gone := newDeliveredResult("8")
		gone.IsForgotten = true
		m.setNext(gone)
		w.deliverOne(second)
		gone = newDeliveredResult("")
		gone.IsForgotten = true
		m.setNext(gone)
		w.deliverOne(second)
		m.setNext(newDeliveredResult(""))
		w.deliverOne(second)
		second.close(t)
		w.deliverOne(w.start(withRemembering))

		if got, want := m.listKnown(), []string{"", "7", "", "7", "7", "8", "", ""}; !slices.Equal(
			got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// On request the holder forgets a remembered id, even if the id is in memory.
func TestDrainer_ForgetsTheIDOfAKey(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		m := &idCMS{next: newDeliveredResult("7")}
		w.cms.setAnswer(m.Send)
		p := w.start(withRemembering)
		w.deliverOne(p)
		m.setNext(newDeliveredResult(""))
		w.deliverOne(p)
		id, err := w.store.Requests().ForgetRemembered(t.Context(), "a", "article")
		if err != nil || id != "7" {
			t.Fatalf("got %q, %v, want the id 7", id, err)
		}

		p.Wake(0)

		// the holder still has the lane, and reads requests once a second
		time.Sleep(2 * time.Second)
		w.deliverOne(p)

		for range 2 { // the id is forgotten, so another request finds no id
			if _, err := w.store.Requests().ForgetRemembered(t.Context(), "a",
				"article"); weir.KindOf(err) != weir.NotFound {
				t.Errorf("got %v, want NotFound", err)
			}
		}

		if got, want := m.listKnown(), []string{"", "7", ""}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}

		if got := append(w.rowKeys("w_"), w.rowKeys("c_")...); len(got) != 0 {
			t.Errorf("got rows %v, want neither a request nor an id", got)
		}
	})
}

// The holder remembers an item's id even if the attempt failed, because the attempt may have
// created the item.
func TestDrainer_RemembersTheIDOfAFailedAttempt(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		m := &idCMS{next: weir.Result{Outcome: weir.OutcomeRetry, Status: 500, RememberedID: "7"}}
		w.cms.setAnswer(m.Send)
		w.post("a", "x")
		p := w.start(withRemembering, func(c *drain.Config) {
			// with a random backoff the retry could come before setNext
			c.Backoff.Steps = []time.Duration{time.Second}
		})

		p.Wake(0)
		for len(m.listKnown()) == 0 {
			time.Sleep(10 * time.Millisecond)
		}

		m.setNext(newDeliveredResult(""))
		w.waitUntilEmpty(time.Minute)
		if got, want := m.listKnown(), []string{"", "7"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// The id and the outcome are written in one transaction. If that transaction fails, storage has
// neither.
func TestDrainer_RemembersNothingWithoutTheCommit(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		m := &idCMS{next: newDeliveredResult("7")}
		w.cms.setAnswer(m.Send)
		w.post("a", "x")
		first := w.start(withRemembering)
		isOutcome := func(c storagetest.Call) bool { return isTail(c) && len(c.Ops) > 1 }
		first.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if isOutcome(c) {
				return storagetest.Fault{Kind: storagetest.FailBefore}
			}
			return storagetest.Fault{}
		})

		first.Wake(0)
		for len(m.listKnown()) == 0 {
			time.Sleep(10 * time.Millisecond)
		}

		first.kill()
		m.setNext(newDeliveredResult("8"))
		second := w.start(withRemembering)
		second.Wake(0)
		w.waitUntilEmpty(2 * time.Minute)
		w.deliverOne(second)
		if got, want := m.listKnown(), []string{"", "", "8"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// If no contract uses remembered ids, the holder reads none from storage.
func TestDrainer_ReadsNoIDsUnlessAContractRemembers(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer((&idCMS{next: newDeliveredResult("7")}).Send)
		p := w.start()
		gets := 0
		p.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Op == "Get" {
				gets++
			}
			return storagetest.Fault{}
		})

		w.deliverOne(p)
		if gets != 0 {
			t.Errorf("got %d reads of single rows, want none", gets)
		}
	})
}
