package notify_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/lane/outbox"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
)

// fillOutbox puts events for an address into the outbox, of messages that became final at a time.
func (w *world) fillOutbox(address string, count int, at time.Time) {
	w.t.Helper()
	box := outbox.Outbox{Table: w.store.Table, Partition: w.store.Partition(0)}
	var events []outbox.Event
	for n := range count {
		e := outbox.NewEvent("message.delivered", fmt.Sprint(address, at, n),
			at.Add(time.Duration(n-count)*time.Microsecond), outbox.CallbackTo,
			[]byte(`{"type":"message.delivered"}`))
		e.URL = address
		events = append(events, e)
	}

	for chunk := range slices.Chunk(events, storage.MaxOps-1) {
		if err := box.Enqueue(w.t.Context(), chunk); err != nil {
			w.t.Fatal(err)
		}
	}
}

// countAllRows returns the number of rows in the outbox.
func (w *world) countAllRows() (n int) {
	w.t.Helper()
	q := storage.Query{Partition: w.store.Partition(0), From: "n_", To: "n_~", Columns: []string{}}
	for {
		page, err := w.account.Table().Range(w.t.Context(), q)
		if err != nil {
			w.t.Fatal(err)
		}

		if n += len(page.Rows); !page.More {
			return n
		}

		q.After = page.Rows[len(page.Rows)-1].Key
	}
}

// slowly answers each request after a time.
func slowly(takes time.Duration,
	answer func(*http.Request) (int, http.Header, error)) func(*http.Request) (int,
	http.Header, error) {
	return func(r *http.Request) (int, http.Header, error) {
		timer := time.NewTimer(takes)
		defer timer.Stop()

		select {
		case <-timer.C:
			return answer(r)
		case <-r.Context().Done():
			return 0, nil, r.Context().Err()
		}
	}
}

// An event's row is removed once, and written again only after a failed request of this event. So
// the number of written rows does not depend on the length of the backlog, however the receiver
// behaves.
func TestSender_WritesARowOnlyForARequest(t *testing.T) {
	var turn atomic.Int64
	for name, answer := range map[string]func(*http.Request) (int, http.Header, error){
		"Slow":    slowly(5*time.Second, answerStatus(204)),
		"Away":    refuseConnection,
		"Hangs":   slowly(time.Minute, answerStatus(204)),
		"Refuses": slowly(time.Second, answerStatus(500)),
		"Busy":    answerStatus(429),
		"Flaky": slowly(2*time.Second, func(*http.Request) (int, http.Header, error) {
			if turn.Add(1)%3 == 0 {
				return 0, nil, errors.New("connection reset")
			}
			return 204, nil, nil
		}),
	} {
		for _, backlog := range []int{1_000, 16_000} {
			if backlog > 1_000 && name != "Slow" && name != "Away" {
				continue // takes too much time
			}
			t.Run(fmt.Sprint(name, backlog), func(t *testing.T) {
				simulate(t, func(t *testing.T, w *world) { checkRowsWritten(t, w, answer, backlog) })
			})
		}
	}
}

func checkRowsWritten(t *testing.T, w *world, answer func(*http.Request) (int, http.Header, error),
	backlog int) {
	var mu sync.Mutex
	accepted, failed := 0, 0
	w.receiver.setAnswer(func(r *http.Request) (int, http.Header, error) {
		status, header, err := answer(r)
		mu.Lock()
		defer mu.Unlock()

		if err == nil && status == 204 {
			accepted++
		} else {
			failed++
		}

		return status, header, err
	})

	w.fillOutbox(hook, backlog, time.Now())
	p := w.startSender()
	written, queries := 0, 0
	p.faults.Set(func(c storagetest.Call) storagetest.Fault {
		if c.Op == "Range" && strings.HasPrefix(c.Key, "n_") {
			queries++
		}

		for _, op := range c.Ops {
			if strings.HasPrefix(op.Key, "n_") {
				written++
			}
		}

		return storagetest.Fault{}
	})

	p.WakeOutbox(0)
	passTime(10 * time.Minute)
	mu.Lock()
	t.Logf("%d events accepted, %d requests failed, %d rows written, %d queries", accepted, failed,
		written, queries)

	if accepted+failed == 0 || written > accepted+2*failed {
		t.Errorf("got %d rows written for %d accepted events and %d failed requests, want at most %d, "+
			"and some requests", written, accepted, failed, accepted+2*failed)
	}

	if limit := 4*(accepted+failed) + 10*(1+backlog/1000); queries > limit {
		t.Errorf("got %d queries of the outbox, want at most %d", queries, limit)
	}

	mu.Unlock()
	if want := backlog - accepted; w.countAllRows() != want {
		t.Errorf("got %d rows left, want %d", w.countAllRows(), want)
	}
}

// A backlog waits for its receiver only: when the receiver is fast again, all events are sent at
// once.
func TestSender_SendsABacklogAsFastAsItsReceiver(t *testing.T) {
	for name, answer := range map[string]func(*http.Request) (int, http.Header, error){
		"Slow": slowly(5*time.Second, answerStatus(204)),
		"Away": refuseConnection,
		"Busy": answerStatus(429),
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				w.receiver.setAnswer(answer)
				w.fillOutbox(hook, 3000, time.Now())
				w.startSender().WakeOutbox(0)
				passTime(10 * time.Minute)
				before := len(w.receiver.listEvents())
				w.receiver.setAnswer(slowly(10*time.Millisecond, answerStatus(204)))
				passTime(3 * time.Minute)

				if left := w.countAllRows(); left > before {
					t.Errorf("got %d of 3000 events left after 3 minutes, want those with a retry, at most %d", left,
						before)
				}

				passTime(2 * time.Hour)
				w.checkOutboxEmpty()
			})
		})
	}
}

// While a slow receiver has a backlog, the session does not read the whole outbox for each new
// event. An event whose row is added late, behind the position of the reads, must still be sent
// soon.
func TestSender_FindsALateRowDuringABacklog(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		isOther := func(r *http.Request) bool { return r.URL.Host == "other.slow.example.com" }
		slow := slowly(9*time.Second, answerStatus(204))
		w.receiver.setAnswer(func(r *http.Request) (int, http.Header, error) {
			if isOther(r) {
				return 204, nil, nil
			}
			return slow(r)
		})

		w.fillOutbox(hook, 5000, time.Now())
		p := w.startSender()
		p.WakeOutbox(0)
		passTime(10 * time.Minute)
		w.fillOutbox("https://other.slow.example.com/", 1, time.Now().Add(-5*time.Minute))
		p.WakeOutbox(0)
		passTime(6 * time.Minute)
		sent := 0
		for _, e := range w.receiver.listEvents() {
			if strings.Contains(e.url, "other") {
				sent++
			}
		}

		if sent != 1 {
			t.Errorf("got the late event %d times within 6 minutes, want once", sent)
		}

		w.receiver.setAnswer(answerStatus(204))
		passTime(time.Minute)
	})
}

// Events of a receiver that is too slow or away are given up by their age, without a request, and
// no younger event is.
func TestSender_GivesUpUntriedEventsByTheirAge(t *testing.T) {
	for name, answer := range map[string]func(*http.Request) (int, http.Header, error){
		"Slow": slowly(9*time.Second, answerStatus(204)),
		"Away": refuseConnection,
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				w.receiver.setAnswer(answer)
				w.fillOutbox(hook, 3000, time.Now().Add(-70*time.Hour))
				w.fillOutbox(hook, 3000, time.Now().Add(-60*time.Hour))
				w.startSender().WakeOutbox(0)
				passTime(time.Hour + 50*time.Minute)

				if given := w.seen.countOf("message.delivered given_up"); given != 0 {
					t.Fatalf("got %d events given up before they were three days old, want 0",
						given)
				}

				passTime(40 * time.Minute)
				told, given := w.seen.countOf("message.delivered told"),
					w.seen.countOf("message.delivered given_up")

				// Some events were tried, and are kept for three days from their first try. A slow
				// receiver has got some of the younger events.
				if left := w.countAllRows(); left < 2600 || left > 3200 || given < 1200 ||
					given > 3000 {
					t.Errorf("got %d events told, %d given up, and %d left; want at most the 3000 older "+
						"ones given up, and about 3000 left", told, given, left)
				}

				w.receiver.setAnswer(answerStatus(204))
				passTime(2 * time.Hour)
				w.checkOutboxEmpty()
			})
		})
	}
}

// If no process has sent events for days, a receiver that takes them gets all of them.
func TestSender_GivesUpNothingAfterALongStandstill(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.receiver.setAnswer(slowly(50*time.Millisecond, answerStatus(204)))
		w.fillOutbox(hook, 4000, time.Now().Add(-4*24*time.Hour))
		w.startSender().WakeOutbox(0)
		passTime(10 * time.Minute)
		if told := w.seen.countOf("message.delivered told"); told != 4000 {
			t.Errorf("got %d events told, want 4000; the outcomes are %v", told, w.seen.n)
		}

		w.checkOutboxEmpty()
	})
}
