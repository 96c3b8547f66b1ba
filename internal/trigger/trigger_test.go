package trigger_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/invoke"
	"weir/internal/storage"
	"weir/internal/storage/memory"
	"weir/internal/trigger"
)

// calls records the texts of the calls, and when they came.
type calls struct {
	mu    sync.Mutex
	texts []string
	at    []time.Time
}

func (c *calls) add(t *testing.T, in invoke.Invocation) string {
	t.Helper()
	text, err := in.Text("ticket")
	if err != nil || in.ID == "" {
		t.Errorf("got the invocation %q with the error %v, want an id and a text", in.ID, err)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.texts, c.at = append(c.texts, text), append(c.at, time.Now())

	return text
}

func (c *calls) list() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.texts)
}

// runQueue runs a Queue over storage in memory until the test ends.
func runQueue(
	t *testing.T,
	account *memory.Account,
	call func(context.Context, invoke.Invocation) error,
) func() {
	t.Helper()
	q := &trigger.Queue{Function: "process", Binding: "ticket", Messages: account.Queue("tickets"),
		Poison: account.Queue("poison"), Call: call, Log: slog.New(slog.DiscardHandler)}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); q.Run(ctx) }()
	return func() { stop(); <-done }
}

func put(t *testing.T, q storage.Queue, text string) {
	t.Helper()
	if err := q.Put(t.Context(), text, 0); err != nil {
		t.Fatal(err)
	}
}

func lengthOf(t *testing.T, q storage.QueueLength) int64 {
	t.Helper()
	n, err := q.Length(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestQueue_CallsOnceForEachMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		account, got := memory.New(time.Now), &calls{}
		tickets := account.Queue("tickets")
		for _, text := range []string{"a", "b", "c"} {
			put(t, tickets, text)
		}

		stop := runQueue(t, account, func(_ context.Context, in invoke.Invocation) error {
			got.add(t, in)
			return nil
		})

		time.Sleep(time.Hour)
		stop()

		texts := got.list()
		slices.Sort(texts)
		if want := []string{"a", "b", "c"}; !slices.Equal(texts, want) {
			t.Errorf("got calls for %q, want %q", texts, want)
		}

		if n := lengthOf(t, tickets); n != 0 {
			t.Errorf("got %d messages left, want 0", n)
		}
	})
}

// A message that comes to an idle process waits for the longest pause at most.
func TestQueue_PollsOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		account, got := memory.New(time.Now), &calls{}
		stop := runQueue(t, account, func(_ context.Context, in invoke.Invocation) error {
			got.add(t, in)
			return nil
		})

		time.Sleep(time.Hour)
		put(t, account.Queue("tickets"), "late")
		putAt := time.Now()
		time.Sleep(time.Minute)
		stop()

		if len(got.at) != 1 || got.at[0].Sub(putAt) > 10*time.Second {
			t.Errorf("got calls at %v, want one within 10 s of %v", got.at, putAt)
		}
	})
}

// A message whose calls fail is tried five times, and then goes to the poison queue, as under a
// host. A panic is a failure.
func TestQueue_PoisonsAfterFiveFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		account, got := memory.New(time.Now), &calls{}
		put(t, account.Queue("tickets"), "bad")
		stop := runQueue(t, account, func(_ context.Context, in invoke.Invocation) error {
			if got.add(t, in); len(got.list()) == 2 {
				panic("a defect")
			}
			return errors.New("fails")
		})

		time.Sleep(time.Hour)
		stop()

		if n := len(got.list()); n != 5 {
			t.Errorf("got %d calls, want 5", n)
		}

		if n := lengthOf(t, account.Queue("tickets")); n != 0 {
			t.Errorf("got %d messages left, want 0", n)
		}

		if n := lengthOf(t, account.Queue("poison")); n != 1 {
			t.Errorf("got %d poisoned messages, want 1", n)
		}
	})
}

// A call that the stop of the process interrupts has not answered its message: another process gets
// it at once.
func TestQueue_StopLeavesTheMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		account := memory.New(time.Now)
		put(t, account.Queue("tickets"), "a")
		stop := runQueue(t, account, func(ctx context.Context, _ invoke.Invocation) error {
			<-ctx.Done()
			return ctx.Err()
		})

		synctest.Wait()
		stop()

		left, err := account.Queue("tickets").Get(t.Context(), 1, time.Minute)
		if err != nil || len(left) != 1 {
			t.Errorf("got %d visible messages and the error %v, want 1", len(left), err)
		}
	})
}

// No more calls than those of a host run at a time.
func TestQueue_LimitsCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		account := memory.New(time.Now)
		for range 60 {
			put(t, account.Queue("tickets"), "a")
		}

		var mu sync.Mutex
		running, most, done := 0, 0, 0
		count := func(change int) {
			mu.Lock()
			defer mu.Unlock()
			running += change
			most = max(most, running)
			done += (1 - change) / 2
		}

		stop := runQueue(t, account, func(context.Context, invoke.Invocation) error {
			count(1)
			defer count(-1)
			time.Sleep(time.Second)
			return nil
		})

		time.Sleep(time.Hour)
		stop()
		if most != 24 || done != 60 {
			t.Errorf("got %d calls at a time and %d in all, want 24 and 60", most, done)
		}
	})
}

func TestEachMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var at []int
		done := make(chan struct{})
		time.Sleep(17 * time.Second)
		go func() {
			defer close(done)
			trigger.EachMinute(ctx, time.Now, func(context.Context) {
				at = append(at, time.Now().Second())
				time.Sleep(90 * time.Second) // the next call waits
			})
		}()

		time.Sleep(6 * time.Minute)
		stop()
		<-done
		if want := []int{0, 0, 0}; !slices.Equal(at, want) {
			t.Errorf("got calls at the seconds %v, want %v", at, want)
		}
	})
}
