package lane_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
	"weir/internal/storage/timelimit"
	"weir/internal/weir"
)

// answers counts the results of posts, and records the longest duration of a post.
type answers struct {
	sync.WaitGroup
	accepted, refused atomic.Int64
	mu                sync.Mutex // guards slowest
	slowest           time.Duration
}

// appendInBackground appends a message in a goroutine. The goroutine gives up after the duration in
// "patience".
func (c *answers) appendInBackground(ctx context.Context, a *lane.Appender, patience time.Duration,
	m weir.Message, idempotencyKey string) {
	c.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		began := time.Now()
		_, err := a.Append(ctx, m, idempotencyKey)
		c.mu.Lock()
		c.slowest = max(c.slowest, time.Since(began))
		c.mu.Unlock()

		if err == nil {
			c.accepted.Add(1)
		} else {
			c.refused.Add(1)
		}
	})
}

// newLimitedAppender returns an appender whose storage calls have time limits, as in production.
func (b *bench) newLimitedAppender() *lane.Appender {
	b.store.Table, b.store.Bodies = timelimit.Table(b.store.Table), timelimit.Blobs(b.store.Bodies)
	return lane.NewAppender(b.store, quiet)
}

// hangAll makes every call of the storage method op hang.
func (b *bench) hangAll(op string) {
	b.faults.Set(func(c storagetest.Call) storagetest.Fault {
		if c.Op == op {
			return storagetest.Fault{Kind: storagetest.Hang}
		}
		return storagetest.Fault{}
	})
}

func TestAppender_StorageHangs(t *testing.T) {
	t.Run("OneTransactionIsSentAgain", func(t *testing.T) {
		simulate(t, func(t *testing.T, b *bench) {
			a, c := b.newLimitedAppender(), &answers{}
			b.faults.Once(isAppend, storagetest.Fault{Kind: storagetest.Hang})

			for i := range 300 { // 30 per second
				c.appendInBackground(t.Context(), a, time.Minute,
					newMessage(fmt.Sprint(i), "x"), "")
				time.Sleep(time.Second / 30)
			}

			c.Wait()

			if c.refused.Load() != 0 || c.slowest > 6*time.Second || len(b.readWholeLog()) != 300 {
				t.Errorf("%d refused, slowest %s, %d in the log, want 0, 6s at most and 300",
					c.refused.Load(), c.slowest, len(b.readWholeLog()))
			}
		})
	})

	for _, op := range []string{"Transact", "Range"} {
		t.Run("AllPostsAreAnsweredWhileCallsHangOf"+op, func(t *testing.T) {
			simulate(t, func(t *testing.T, b *bench) {
				a, c := b.newLimitedAppender(), &answers{}
				b.hangAll(op)

				for i := range 1500 { // 50 per second for half a minute
					c.appendInBackground(t.Context(), a, time.Hour,
						newMessage(fmt.Sprint(i), "x"), "")
					time.Sleep(time.Second / 50)
				}

				c.Wait()

				if c.slowest > 10*time.Second || c.accepted.Load() != 0 {
					t.Errorf("slowest answer %s, %d accepted, want 10s at most and 0", c.slowest,
						c.accepted.Load())
				}
			})
		})
	}

	t.Run("TheMemoryOfWaitingPostsIsBounded", func(t *testing.T) {
		simulate(t, func(t *testing.T, b *bench) {
			a, c := lane.NewAppender(b.store, quiet), &answers{}
			b.hangAll("Range")

			for i := range 200 {
				c.appendInBackground(t.Context(), a, time.Minute,
					newMessage(fmt.Sprint(i), string(make([]byte, 1<<20))), "")
			}

			synctest.Wait()
			if got := c.refused.Load(); got < 130 || got > 140 {
				t.Errorf("%d of 200 posts of 1 MiB were refused at once, want 136 or so: 64 MiB may wait", got)
			}

			b.faults.Set(nil)
			c.Wait()
			c = &answers{}
			c.appendInBackground(t.Context(), a, time.Minute,
				newMessage("a", string(make([]byte, 65<<20))), "")

			if c.Wait(); c.accepted.Load() != 1 {
				t.Errorf("accepted %d messages larger than the bound, want 1, because no other post waits",
					c.accepted.Load())
			}
		})
	})
}

// If the caller gives up before a transaction with the message is sent, the message is not
// appended.
func TestAppender_GivenUp(t *testing.T) {
	t.Run("WhileStorageIsAway", func(t *testing.T) {
		simulate(t, func(t *testing.T, b *bench) {
			a, c := lane.NewAppender(b.store, quiet), &answers{}
			b.faults.Set(func(c storagetest.Call) storagetest.Fault {
				if c.Op == "Transact" {
					return storagetest.Fault{Kind: storagetest.FailBefore}
				}
				return storagetest.Fault{}
			})

			for i := range 65 * 50 { // 50 per second; storage works again after a minute
				if i == 60*50 {
					b.faults.Set(nil)
				}
				c.appendInBackground(t.Context(), a, 10*time.Second,
					newMessage(fmt.Sprint(i), "x"), "")
				time.Sleep(time.Second / 50)
			}

			c.Wait()
			time.Sleep(10 * time.Minute)

			if got, want := int64(b.countAppended()), c.accepted.Load(); got != want || want < 240 {
				t.Errorf("%d are in the log, want the %d that were accepted, and at least 240", got,
					want)
			}
		})
	})

	t.Run("BeforeTheTransactionOfTheGroup", func(t *testing.T) {
		simulate(t, func(t *testing.T, b *bench) {
			a, c := lane.NewAppender(b.store, quiet), &answers{}
			b.faults.Once(func(c storagetest.Call) bool { return c.Op == "Range" },
				storagetest.Fault{Kind: storagetest.FailBefore})
			c.appendInBackground(t.Context(), a, 50*time.Millisecond, newMessage("a", "given up"),
				"") // the caller gives up before the second read of head, which comes after 100 ms
			c.appendInBackground(t.Context(), a, time.Minute, newMessage("a", "awaited"), "")
			c.Wait()
			if log := b.readWholeLog(); c.refused.Load() != 1 || len(log) != 1 {
				t.Errorf("%d refused, %d in the log, want 1 and 1", c.refused.Load(), len(log))
			}
		})
	})

	t.Run("ARepeatThatIsAwaitedIsFiled", func(t *testing.T) {
		simulate(t, func(t *testing.T, b *bench) {
			a, c := lane.NewAppender(b.store, quiet), &answers{}
			b.faults.Once(func(c storagetest.Call) bool { return c.Op == "Range" },
				storagetest.Fault{Kind: storagetest.FailBefore})
			c.appendInBackground(t.Context(), a, time.Minute, newMessage("a", "first"),
				"") // this message waits for head, and the next messages wait for this one
			synctest.Wait()
			b.faults.Once(isAppend, storagetest.Fault{Kind: storagetest.FailBefore})

			for i := range 5 {
				c.appendInBackground(t.Context(), a, time.Duration(1+i)*20*time.Millisecond,
					newMessage("a", "x"), "k")
				synctest.Wait()
			}

			c.appendInBackground(t.Context(), a, time.Minute, newMessage("a", "x"), "k")
			c.Wait()

			if c.accepted.Load() != 2 || b.countAppended() != 2 {
				t.Errorf("%d accepted, %d in the log, want 2 and 2", c.accepted.Load(),
					b.countAppended())
			}
		})
	})
}

// countAppended returns the number of messages in the log, according to head.
func (b *bench) countAppended() int {
	c, err := b.faultless.ReadControl(b.t.Context(), 0)
	if err != nil {
		b.t.Fatal(err)
	}
	return int(c.Head.Next - 1)
}

// nameless is a table whose errors do not name the failed operation.
type nameless struct{ storage.Table }

func (n nameless) Transact(ctx context.Context, p string,
	ops []storage.Op) ([]storage.ETag, error) {
	tags, err := n.Table.Transact(ctx, p, ops)
	var e *storage.Error
	if errors.As(err, &e) {
		e.Index = -1
	}
	return tags, err
}

func TestAppender_HeadMovedAndStorageNamesNoOperation(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		b.store.Table = nameless{b.store.Table}
		mine, other := lane.NewAppender(b.store, quiet), lane.NewAppender(b.faultless, quiet)
		for i := range 6 { // the appenders take turns, and each finds that the other has moved head
			a := []*lane.Appender{mine, other}[i%2]
			if _, err := a.Append(t.Context(), newMessage("a", fmt.Sprint(i)), ""); err != nil {
				t.Errorf("append %d: err = %v, want none", i, err)
			}
		}

		if got := len(b.readWholeLog()); got != 6 {
			t.Errorf("%d in the log, want 6", got)
		}
	})
}
