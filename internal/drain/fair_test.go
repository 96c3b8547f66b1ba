//go:build !race || long

package drain_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/testkit/lanetest"
	"weir/internal/weir"
)

// In these tests the CMS refuses some messages for good, or all messages for a while. A message
// that the CMS would take is tried within ten seconds (turn), and a refused message becomes final
// in bounded time. If the CMS refuses all messages, none becomes dead within a day, the default of
// Config.Patience.

// refuseBad returns a function for setAnswer. If a message's key begins with "bad", the function
// answers with the given status, and otherwise with 200.
func refuseBad(status int, takesTime time.Duration) func(context.Context, weir.Delivery) weir.Result {
	return func(ctx context.Context, d weir.Delivery) weir.Result {
		if strings.HasPrefix(d.Message.Key, "bad") {
			return answerAfter(takesTime, status)(ctx, d)
		}
		return answerAfter(takesTime, 200)(ctx, d)
	}
}

// postMany appends n messages, 40 at a time, because the appender bounds the bytes that wait.
func (w *world) postMany(n int, key func(int) string, change ...func(*weir.Message)) {
	w.t.Helper()
	var wg sync.WaitGroup
	room := make(chan struct{}, 40)
	for i := range n {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			m := weir.Message{Contract: "article", Key: key(i), ContentType: "application/xml",
				Body: []byte("<a/>")}
			for _, f := range change {
				f(&m)
			}

			if _, err := lanetest.AppendAndWake(w.t.Context(), w.lanes.Appender, m, ""); err !=
				nil {
				w.t.Error(err)
			}
		})
	}

	wg.Wait()
}

// waitUntilTaken waits until the CMS has taken messages of n different keys that begin with prefix.
// It returns how long it waited.
func (w *world) waitUntilTaken(prefix string, n int, limit time.Duration) time.Duration {
	w.t.Helper()
	began := time.Now()
	for ; time.Since(began) < limit; time.Sleep(10 * time.Millisecond) {
		keys := map[string]bool{}
		for _, s := range w.cms.listRequests() {
			if strings.HasPrefix(s.key, prefix) && s.result.Outcome == weir.OutcomeDelivered {
				keys[s.key] = true
			}
		}

		if len(keys) == n {
			return time.Since(began)
		}
	}

	w.t.Fatalf("%d messages of %s… are not delivered after %s, %d requests were made",
		n, prefix, limit, len(w.cms.listRequests()))

	return 0
}

// turn is the time within which the holder tries each message that the CMS would take.
const turn = 10 * time.Second

func TestFair_RefusedKeysInFront(t *testing.T) {
	for _, status := range []int{403, 500} {
		for _, n := range []int{7, 400, 2000} {
			t.Run(fmt.Sprint(status, "x", n), func(t *testing.T) {
				simulate(t, func(t *testing.T, w *world) {
					w.cms.setAnswer(refuseBad(status, 20*time.Millisecond))
					w.postMany(n, numberKeys("bad"))
					w.postMany(50, numberKeys("good"))
					w.start(withDefaultBackoff).Wake(0)
					t.Logf("50 good ones behind %d refused: %s", n,
						w.waitUntilTaken("good", 50, turn))
				})
			})
		}
	}
}

// A lane moves to another process again and again. A message after refused messages in the log is
// still tried soon, because each holder takes messages from both ends of the log. If each holder
// began at the beginning of the log, it would try only refused messages.
func TestFair_RefusedKeysInFrontOfALaneThatMoves(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(refuseBad(403, 20*time.Millisecond))
		w.postMany(100, numberKeys("bad"))
		first := w.start(withDefaultBackoff)
		first.Wake(0)
		w.waitForRequests(20)
		if err := first.Close(t.Context()); err != nil {
			t.Fatal(err)
		}

		w.postMany(1, numberKeys("good"))

		for range 3 {
			p := w.start(withDefaultBackoff)
			p.Wake(0)
			w.waitForRequests(2)
			if err := p.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}

		w.waitUntilTaken("good", 1, time.Millisecond)
	})
}

// After crashes a holder is cautious for 32 messages: it commits each outcome before it sends the
// next message. Even a cautious holder must take messages from both ends of the log. Otherwise it
// would first try refused messages, with a pause of up to three seconds after every two attempts.
func TestFair_RefusedKeysInFrontAfterCrashes(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(refuseBad(403, 20*time.Millisecond))
		w.postMany(100, numberKeys("bad"))

		for range 3 {
			p := w.start(withDefaultBackoff)
			p.Wake(0)
			w.waitForRequests(3)
			p.kill()
			time.Sleep(20 * time.Second) // until the lease of p has expired
		}

		if c := w.control(); !c.Tail.IsOpen || c.Tail.Crashes != 2 {
			t.Fatalf("got %+v, want the lane open with 2 crashes, as a third crash leaves it",
				c.Tail)
		}

		w.postMany(4, numberKeys("good"))
		w.start(withDefaultBackoff).Wake(0)
		w.waitUntilTaken("good", 4, turn)
	})
}

// waitForRequests waits until the CMS has got n more requests.
func (w *world) waitForRequests(n int) {
	w.t.Helper()
	before := len(w.cms.listRequests())
	for end := time.Now().Add(time.Minute); len(w.cms.listRequests()) < before+
		n; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("%d requests in a minute, want %d", len(w.cms.listRequests())-before, n)
		}
	}
}

func TestFair_RefusedLargeOnesInFront(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(refuseBad(403, 20*time.Millisecond))
		body := []byte(strings.Repeat("x", 200<<10))
		w.postMany(400, numberKeys("bad"), func(m *weir.Message) { m.Body = body })
		w.postMany(50, numberKeys("good"), func(m *weir.Message) { m.Body = body })
		w.start(withDefaultBackoff).Wake(0)
		w.waitUntilTaken("good", 50, turn)

		for _, s := range w.cms.listRequests() {
			if len(s.body) != len(body) {
				t.Fatalf("key %s was sent with %d bytes, want %d", s.key, len(s.body), len(body))
			}
		}
	})
}

func TestFair_RefusedBetweenOthers(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(refuseBad(403, 5*time.Millisecond))
		for i := range 20 {
			w.post(fmt.Sprint("bad", i), "x")
			w.post(fmt.Sprint("good", i), "x")
		}

		w.start(withDefaultBackoff).Wake(0)
		if took := w.waitUntilTaken("good", 20, turn); took > time.Second {
			t.Errorf("20 good ones took %s, want no pause between", took)
		}
	})
}

// The CMS has refused messages for an hour, and the pauses have grown. A new message is still sent
// soon, and a scheduled message is sent soon after its due time.
func TestFair_AfterAnHourOfRefusals(t *testing.T) {
	for name, n := range map[string]int{"One": 1, "Many": 300} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				w.cms.setAnswer(refuseBad(403, 20*time.Millisecond))
				w.postMany(n, numberKeys("bad"))
				p := w.start(withDefaultBackoff)
				p.Wake(0)
				due := time.Now().Add(time.Hour + 3*time.Minute)
				w.post("gooddue", "x", func(m *weir.Message) { m.DueAt = due })
				time.Sleep(time.Hour)

				if c := w.control(); n == 1 && time.Until(c.Tail.PausedUntil) > 5*time.Minute ||
					c.Tail.Counts.Dead > 0 {
					t.Errorf("after an hour: %+v, want none dead, and a pause of at most 5m with one key", c.Tail)
				}

				w.post("goodwoken", "x")
				p.Wake(0)
				t.Logf("woken: %s", w.waitUntilTaken("goodwoken", 1, turn))

				// meanwhile refusals count as attempts, because the CMS has taken a message
				for range 3 {
					time.Sleep(50 * time.Second)
					p.Wake(0) // as the sweep does
				}

				w.waitUntilTaken("gooddue", 1, time.Until(due)+turn)
			})
		})
	}
}

// The lane pauses because the CMS refuses messages. A message that becomes due in such a pause is
// sent at its due time. For each due message the holder takes the lane only a few times, and sends
// only a few requests.
func TestFair_DueInAPauseForRefusedMessages(t *testing.T) {
	for _, n := range []int{1, 100} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				const scheduled = 20
				w.cms.setAnswer(refuseBad(403, 20*time.Millisecond))
				w.postMany(n, numberKeys("bad"))
				first := time.Now().Add(time.Hour)
				w.postMany(scheduled, numberKeys("baddue"), func(m *weir.Message) {
					var i int
					fmt.Sscanf(m.Key, "baddue%d", &i)
					m.DueAt = first.Add(time.Duration(i) * 7 * time.Minute)
				})

				w.start(withDefaultBackoff).Wake(0)
				time.Sleep(59 * time.Minute)
				asked, fence := len(w.cms.listRequests()), w.control().Tail.Fence
				time.Sleep(scheduled * 7 * time.Minute)
				w.firstSentBy("baddue", scheduled, first, 7*time.Minute, 50*time.Millisecond)

				// Pauses take 2.5 to 5 min, and a message becomes due every 7 min: about 1.9 pauses
				// per message.
				if got := w.control().Tail.Fence - fence; got > 5*scheduled {
					t.Errorf("the lane was taken %d times for %d scheduled messages, want at most %v", got, scheduled,
						5*scheduled)
				}

				if got := len(w.cms.listRequests()) - asked; got > 10*scheduled {
					t.Errorf("%d requests for %d refused messages, and %d scheduled, want at most %v", got, n,
						scheduled, 10*scheduled)
				}
			})
		})
	}
}

// firstSentBy checks the first attempts of n messages, whose keys are "prefix" and a number from 0.
// The message with the number i was due at first + i*apart. Its first attempt must begin at the due
// time, or at most "limit" later.
func (w *world) firstSentBy(prefix string, n int, first time.Time, apart, limit time.Duration) {
	w.t.Helper()
	sentAt := map[string]time.Time{}
	for _, s := range w.cms.listRequests() {
		if _, again := sentAt[s.key]; !again {
			sentAt[s.key] = s.at
		}
	}

	for i := range n {
		key, due := fmt.Sprint(prefix, i), first.Add(time.Duration(i)*apart)
		at, ok := sentAt[key]
		if late := at.Sub(due); !ok || late < 0 || late > limit {
			w.t.Errorf("%s was sent %s after it was due (sent: %t), want %s at most", key,
				late, ok, limit)
		}
	}
}

// The CMS answers 403 (expired credentials) or 500 to all messages for hours. No message becomes
// dead, and the CMS gets at most one request per second on average. After the CMS has recovered, it
// gets all messages.
func TestFair_AllRefusedForHours(t *testing.T) {
	for _, status := range []int{403, 500} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				w.cms.setAnswer(answerAfter(20*time.Millisecond, status))
				w.postMany(200, numberKeys("k"))
				p := w.start(withDefaultBackoff)
				for range 8 * 60 {
					p.Wake(0)
					time.Sleep(time.Minute)
				}

				n := len(w.cms.listRequests())
				if c := w.control(); c.Tail.Counts.Dead > 0 || n > 8*60*60 {
					t.Errorf("after 8 h of %d: %d dead, %d requests, want Dead 0 and at most %v",
						status, c.Tail.Counts.Dead, n, 8*60*60)
				}

				t.Logf("%d requests in 8 h", n)
				w.cms.setAnswer(answerAfter(20*time.Millisecond, 200))
				began := time.Now()
				for w.control().WaitingCount() > 0 && time.Since(began) < 10*time.Minute {
					p.Wake(0)
					time.Sleep(time.Second)
				}

				if took := time.Since(began); took > 6*time.Minute {
					t.Errorf("it took %s until all were delivered, want the longest pause and a little", took)
				}
			})
		})
	}
}

// If the CMS answers that it is unavailable, messages wait without a time limit, and none becomes
// dead.
func TestFair_AwayForDays(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(answerAfter(20*time.Millisecond, 503))
		w.postMany(20, numberKeys("k"))
		p := w.start(withDefaultBackoff)
		for range 72 * 60 {
			p.Wake(0)
			time.Sleep(time.Minute)
		}

		if c := w.control(); c.WaitingCount() != 20 {
			t.Errorf("after three days: %+v, want WaitingCount 20", c.Tail)
		}
	})
}

// If a lane has only refused messages, they become dead when Config.Patience is over, and not
// before. For a message that was accepted later, the patience begins later.
func TestFair_RefusedAloneDies(t *testing.T) {
	for _, status := range []int{403, 500} {
		for _, n := range []int{1, 100} {
			if n == 1 && status == 500 {
				continue // if only one message gets 500, its attempts count at once
			}

			t.Run(fmt.Sprint(status, "x", n), func(t *testing.T) {
				simulate(t, func(t *testing.T, w *world) {
					w.cms.setAnswer(refuseBad(status, 20*time.Millisecond))
					w.postMany(n, numberKeys("bad"))
					p := w.start(withDefaultBackoff)
					wake := func(d time.Duration) {
						for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(
							time.Minute) {
							p.Wake(0)
						}
					}

					wake(12 * time.Hour)
					late := w.post("badlate", "x")
					wake(12*time.Hour - time.Minute)
					if c := w.control(); c.Tail.Counts.Dead > 0 {
						t.Errorf("%d died within a day, want 0", c.Tail.Counts.Dead)
					}

					wake(45 * time.Minute)

					if c := w.control(); c.Tail.Counts.Dead != int64(n) || c.WaitingCount() != 1 {
						t.Errorf(
							"a day and three quarters of an hour later: %+v, want Dead %v and WaitingCount 1",
							c.Tail.Counts, int64(n))
					}

					wake(12 * time.Hour)

					if st := w.status(late); st.Stage != weir.Dead || st.AttemptCount != 5 {
						t.Errorf(
							"the later one: %s after %d attempts, want Stage dead and AttemptCount 5", st.Stage,
							st.AttemptCount)
					}
				})
			})
		}
	}
}

// If the CMS takes another message between two refusals of a message, further refusals of that
// message count as attempts.
func TestFair_RefusedBesideTakenOnesDies(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(refuseBad(403, 20*time.Millisecond))
		bad := w.post("bad", "x")
		p := w.start(withDefaultBackoff)
		p.Wake(0)
		time.Sleep(5 * time.Second)
		w.post("good", "x")
		p.Wake(0)
		time.Sleep(5 * time.Minute)

		if st := w.status(bad); st.Stage != weir.Dead || st.AttemptCount != 5 ||
			st.CMSStatus != 403 {
			t.Errorf("got %+v, want Stage dead, AttemptCount 5 and CMSStatus 403", st)
		}
	})
}

// slow is a table with slow operations. It counts the messages that were read from the log but are
// not yet stored as held or superseded.
type slow struct {
	storage.Table
	mu                sync.Mutex
	read, put, atMost int // messages read, messages committed, and the largest difference so far
}

func (s *slow) recordMessages(read, put int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read, s.put = s.read+read, s.put+put
	s.atMost = max(s.atMost, s.read-s.put)
}

func (s *slow) mostUnwritten() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.atMost
}

func (s *slow) Get(ctx context.Context, p, k string) (storage.Row, error) {
	time.Sleep(10 * time.Millisecond)
	return s.Table.Get(ctx, p, k)
}

func (s *slow) Range(ctx context.Context, q storage.Query) (storage.Page, error) {
	time.Sleep(10 * time.Millisecond)
	page, err := s.Table.Range(ctx, q)
	if strings.HasPrefix(q.From, "m_") {
		s.recordMessages(len(page.Rows), 0)
	}
	return page, err
}

func (s *slow) Transact(ctx context.Context, p string, ops []storage.Op) ([]storage.ETag, error) {
	time.Sleep(15 * time.Millisecond)
	tags, err := s.Table.Transact(ctx, p, ops)
	put := 0
	for _, op := range ops {
		if stage, _ := op.Values["Stage"].(string); strings.HasPrefix(op.Key, "m_") &&
			(op.Values["Held"] == true || stage == "superseded") {
			put++
		}
	}

	if err == nil {
		s.recordMessages(0, put)
	}

	return tags, err
}

func (w *world) startSlow(change ...func(*drain.Config)) (*process, *slow) {
	s := &slow{Table: w.account.Table()}
	return w.start(append(change, func(c *drain.Config) {
		store := *w.store
		store.Table = s
		c.Store = &store
	})...), s
}

// insertCopies appends n copies of a message's row to the log.
func (w *world) insertCopies(of weir.ID, n int) {
	w.t.Helper()
	ctx, partition := w.t.Context(), fmt.Sprintf("%d.%d", of.Epoch, of.Lane)
	row, err := w.account.Table().Get(ctx, partition, "m_"+lane.OrderPos(of.Seq))
	if err != nil {
		w.t.Fatal(err)
	}

	for next := w.control().Head.Next; n > 0; {
		ops := []storage.Op{{}}
		for ; n > 0 && len(ops) < storage.MaxOps; n-- {
			ops = append(ops, storage.Op{Kind: storage.Insert, Key: "m_" + lane.OrderPos(next),
				Values: row.Values})
			next++
		}

		ops[0] = storage.Op{Kind: storage.Merge, Key: "!head", Values: map[string]any{"Next": next}}
		if _, err := w.account.Table().Transact(ctx, partition, ops); err != nil {
			w.t.Fatal(err)
		}
	}
}

// The log has thousands of messages that are not sent: messages of a blocked or paused key, or
// outdated versions. The holder must not read them much faster than it stores them as held or
// superseded. Otherwise they would fill the memory. Messages of other keys must still be sent soon.
func TestFair_ReadNoFasterThanParked(t *testing.T) {
	const n = 20_000
	old := func(m *weir.Message) { m.Supersede, m.Version = true, "1" }
	for name, fill := range map[string]func(*world) weir.ID{
		"Blocked": func(w *world) weir.ID { return w.post("bad", "x") },
		"Paused": func(w *world) weir.ID {
			w.pause("one", time.Time{})
			return w.post("one", "x")
		},
		"Outdated": func(w *world) weir.ID {
			w.post("one", "x", old, func(m *weir.Message) { m.Version = "9" })
			return w.post("one", "x", old)
		},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				w.cms.setAnswer(refuseBad(500, time.Millisecond))
				first := fill(w)
				w.insertCopies(first, n/2)
				w.post("goodmiddle", "x")
				w.insertCopies(first, n/2)
				w.post("goodlast", "x")
				p, table := w.startSlow(func(c *drain.Config) {
					c.Backoff = drain.Backoff{Steps: []time.Duration{
						time.Hour}}
				})

				p.Wake(0)

				if name == "Blocked" ||
					// outdated versions take longer, because the holder checks each alone
					name == "Paused" {
					w.waitUntilTaken("goodmiddle", 1, 3*time.Second)
				}

				w.waitUntilTaken("good", 2, turn)

				if most := table.mostUnwritten(); most > n*6/10 {
					t.Errorf("%d of %d messages were read and not committed, want at most %d",
						most, n, n*6/10)
				}
			})
		})
	}
}
