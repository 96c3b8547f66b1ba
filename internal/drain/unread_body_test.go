package drain_test

import (
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/storage/denial"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

// newLargeBody returns a body that is stored in a blob.
func newLargeBody() string {
	body := make([]byte, 200<<10)
	_, _ = rand.Read(body)
	return string(body)
}

// failReads makes each read of a blob fail with a storage error of the given kind.
func failReads(kind storage.Kind) func(storagetest.Call) storagetest.Fault {
	return func(c storagetest.Call) storagetest.Fault {
		if c.Port != "blobs" || c.Op != "Get" {
			return storagetest.Fault{}
		}
		return storagetest.Fault{Kind: storagetest.FailBefore,
			Err: &storage.Error{Op: "blob get", Kind: kind, Index: -1, Code: "409 TheAnswer"}}
	}
}

// startWithBlobs starts a process whose blobs have faults, too.
func (w *world) startWithBlobs(change ...func(*drain.Config)) *process {
	var faults *storagetest.Faults
	p := w.start(append(change, func(c *drain.Config) {
		faults = storagetest.NewFaults()
		c.Store.Bodies = denial.Blobs(faults.Blobs(w.account.Blobs()))
	})...)

	p.blobFaults = faults
	return p
}

// expectDelivered waits until the CMS has got a message of the key, at most for the limit.
func (w *world) expectDelivered(p *process, key string, limit time.Duration) {
	w.t.Helper()
	for end := time.Now().Add(limit); len(w.listDelivered(key)) ==
		0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("after %s the message of %s is not delivered, want it not to wait for another key", limit, key)
		}
		p.Wake(0)
	}
}

// Storage refuses to read the body of one message, for good. Messages of other keys go on at once.
func TestUnreadBody_HoldsUpItsKeyOnly(t *testing.T) {
	for name, kind := range map[string]storage.Kind{
		"Unreadable": storage.Unreadable, "Conflict": storage.Conflict, "Other": storage.Other,
		"Denied": storage.Denied, "Unavailable": storage.Unavailable,
		"Throttled": storage.Throttled,
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				p := w.startWithBlobs(func(c *drain.Config) { c.Attempts = 50 })
				p.blobFaults.Set(failReads(kind))
				bad := w.post("bad", newLargeBody())
				behind := w.post("bad", "behind")
				p.Wake(0)
				time.Sleep(10 * time.Second)
				w.post("good", "1")
				w.expectDelivered(p, "good", 2*time.Second)
				if got := w.status(behind).Stage; got != weir.Queued {
					t.Errorf("the next message of the key is %s, want it to wait", got)
				}

				if st := w.status(bad); st.Stage != weir.Retrying ||
					!strings.Contains(st.LastError, "409 TheAnswer") {
					t.Errorf("the message is %s because of %q, want it to wait with storage's answer", st.Stage,
						st.LastError)
				}

				if got := w.control().Tail.LastError; !strings.Contains(got, "409 TheAnswer") {
					t.Errorf("the lane has the error %q, want storage's answer", got)
				}

				p.blobFaults.Set(nil)
				w.waitUntilEmpty(2 * time.Minute)

				if got := w.listDelivered("bad"); len(got) != 2 || got[1] != "behind" {
					t.Errorf("after storage returns the body again, the CMS has got %d messages, want two in order",
						len(got))
				}
			})
		})
	}
}

// If the cause is the body, each attempt counts, so the message becomes dead. It can be replayed
// later.
func TestUnreadBody_BecomesDead(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.startWithBlobs()
		p.blobFaults.Set(failReads(storage.Unreadable))
		bad := w.post("bad", newLargeBody())
		p.Wake(0)
		w.waitUntilEmpty(10 * time.Minute)

		if st := w.status(bad); st.Stage != weir.Dead || st.AttemptCount != 5 ||
			!strings.Contains(st.LastError, "cannot return the message's body: 409 TheAnswer") {
			t.Errorf("got %s after %d attempts: %q; want dead after 5, with the reason", st.Stage,
				st.AttemptCount, st.LastError)
		}

		if n := len(w.cms.listRequests()); n != 0 {
			t.Errorf("got %d requests, want none", n)
		}

		p.blobFaults.Set(nil)
		w.replay(bad, lane.ReplayOptions{})
		p.Wake(0)
		time.Sleep(time.Minute)
		if st := w.status(bad); st.Stage != weir.Delivered {
			t.Errorf("after the replay got %s (%s), want delivered", st.Stage, st.LastError)
		}
	})
}

// While storage can be the cause, no attempt counts until delivery.patience has passed. Then the
// message becomes final, although holders change in between.
func TestUnreadBody_PatienceEnds(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		patience := func(c *drain.Config) { c.Patience = time.Hour }
		p := w.startWithBlobs(patience)
		p.blobFaults.Set(failReads(storage.Unavailable))
		bad := w.post("bad", newLargeBody())
		p.Wake(0)
		time.Sleep(30 * time.Minute)

		if st := w.status(bad); st.Stage != weir.Retrying || st.AttemptCount != 0 {
			t.Fatalf("after half of the patience got %s after %d attempts, want no attempt counted",
				st.Stage, st.AttemptCount)
		}

		p.close(t)
		next := w.startWithBlobs(patience)
		next.blobFaults.Set(failReads(storage.Unavailable))
		next.Wake(0)
		time.Sleep(25 * time.Minute)

		if st := w.status(bad); st.Stage != weir.Retrying || st.AttemptCount != 0 {
			t.Fatalf("before the end of the patience got %s after %d attempts, want no attempt counted", st.Stage,
				st.AttemptCount)
		}

		w.waitUntilEmpty(20 * time.Minute)
		if st := w.status(bad); st.Stage != weir.Dead || st.AttemptCount != 5 {
			t.Errorf("got %s after %d attempts, want dead after 5", st.Stage, st.AttemptCount)
		}
	})
}

// A denied read counts only if another body of the container was read meanwhile.
func TestUnreadBody_DeniedCountsIfAnotherBodyIsRead(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.startWithBlobs()
		denied := map[string]bool{}
		p.blobFaults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Op == "Get" && len(denied) == 0 {
				denied[c.Key] = true
			}

			if !denied[c.Key] {
				return storagetest.Fault{}
			}
			return failReads(storage.Denied)(c)
		})

		bad := w.post("bad", newLargeBody())
		p.Wake(0)
		time.Sleep(5 * time.Minute)

		if st := w.status(bad); st.AttemptCount != 0 || st.Stage != weir.Retrying {
			t.Fatalf("got %s after %d attempts, want none counted: the process may lack its role",
				st.Stage, st.AttemptCount)
		}

		for range 5 {
			w.post("good", newLargeBody())
			p.Wake(0)
			time.Sleep(2 * time.Minute)
		}

		if st := w.status(bad); st.Stage != weir.Dead || st.AttemptCount != 5 {
			t.Errorf("got %s after %d attempts, want dead after 5: storage returned other bodies",
				st.Stage, st.AttemptCount)
		}
	})
}

// A body that cannot be decompressed is the fault of its message.
func TestUnreadBody_Damaged(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		bad := w.post("bad", newLargeBody())
		page, err := w.account.Blobs().List(t.Context(), "", "")
		if err != nil || len(page.Infos) != 1 {
			t.Fatalf("got the blobs %+v (%v), want one", page.Infos, err)
		}

		if err := w.account.Blobs().Put(t.Context(), page.Infos[0].Name, []byte("damaged")); err !=
			nil {
			t.Fatal(err)
		}

		p := w.start()
		p.Wake(0)
		w.post("good", "1")
		w.expectDelivered(p, "good", 2*time.Second)
		w.waitUntilEmpty(10 * time.Minute)

		if st := w.status(bad); st.Stage != weir.Dead ||
			!strings.Contains(st.LastError, "unreadable") {
			t.Errorf("got %s because of %q, want dead because its body is unreadable", st.Stage,
				st.LastError)
		}
	})
}

// Scheduled messages whose bodies are prefetched become due beside one whose body storage does not
// return.
func TestUnreadBody_DoesNotStopDueMessages(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.startWithBlobs()
		p.blobFaults.Set(failReads(storage.Unreadable))
		due := time.Now().Add(time.Minute)
		atDue := func(m *weir.Message) { m.DueAt = due }
		w.post("bad", newLargeBody(), atDue)
		w.post("good", "1", atDue)
		p.Wake(0)
		time.Sleep(time.Until(due))
		w.expectDelivered(p, "good", time.Second)
	})
}

// If storage ends a session, the lane shows the error.
func TestSession_InterruptionIsShown(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start()
		p.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Op != "Range" || !strings.HasPrefix(c.Key, "m_") {
				return storagetest.Fault{}
			}
			return storagetest.Fault{Kind: storagetest.FailBefore,
				Err: &storage.Error{Op: "table range", Kind: storage.Other, Index: -1,
					Code: "400 InvalidInput"}}
		})

		w.post("a", "1")
		p.Wake(0)
		time.Sleep(time.Minute)
		tail := w.control().Tail
		if want := "the holder was interrupted: storage: 400 InvalidInput"; tail.LastError !=
			want ||
			time.Since(tail.LastErrorAt) > 10*time.Second {
			t.Errorf("the lane has the error %q of %s, want %q of the last seconds", tail.LastError,
				tail.LastErrorAt, want)
		}
	})
}
