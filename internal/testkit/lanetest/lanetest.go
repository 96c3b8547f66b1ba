// Package lanetest has lanes on storage in memory, for the tests of packages that use the package
// lane. A test adds its own CMS, processes and faults.
package lanetest

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/lane"
	"weir/internal/storage/memory"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

// Quiet is a logger that discards its lines.
var Quiet = slog.New(slog.DiscardHandler)

// Simulate runs a test in virtual time (see testing/synctest), in parallel with other tests.
func Simulate(t *testing.T, f func(*testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// SimulateHere runs a test in virtual time, and returns when the test has ended.
func SimulateHere(t *testing.T, f func(*testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// PreemptedNow returns the current time. Before that it lets other goroutines run, at random. So
// the test meets the orders of goroutines that a busy machine has: without this, a goroutine mostly
// runs until it waits, and a fault that needs an event between two of its steps hardly ever shows.
func PreemptedNow() time.Time {
	for range rand.IntN(8) {
		runtime.Gosched()
	}
	return time.Now()
}

// Lanes has the open lanes of an account. Its methods end the test if storage fails.
type Lanes struct {
	Account  *memory.Account
	Store    *lane.Store // without faults, for the test itself
	Appender *lane.Appender

	t testing.TB
}

// New opens lanes on a new account.
func New(t testing.TB, lanes int) *Lanes {
	t.Helper()
	account := memory.New(time.Now)
	store := &lane.Store{Table: account.Table(), Bodies: account.Blobs(), Lanes: lanes,
		Now: time.Now}
	if err := store.Open(t.Context()); err != nil {
		t.Fatalf("open lanes: %v", err)
	}

	return &Lanes{Account: account, Store: store, Appender: lane.NewAppender(store, Quiet), t: t}
}

// FaultyStore returns a store of the same lanes, whose table and bodies have these faults.
func (l *Lanes) FaultyStore(faults *storagetest.Faults) *lane.Store {
	store := *l.Store
	store.Table, store.Bodies = faults.Table(l.Account.Table()), faults.Blobs(l.Account.Blobs())
	return &store
}

// Append appends a message, and returns the message's id. The message has the contract "article",
// unless a function in changes sets another contract.
func (l *Lanes) Append(key, body string, changes ...func(*weir.Message)) weir.ID {
	l.t.Helper()
	m := weir.Message{Contract: "article", Key: key, ContentType: "application/xml",
		Body: []byte(body)}
	for _, change := range changes {
		change(&m)
	}

	m.Size = len(m.Body)
	receipt, err := AppendAndWake(l.t.Context(), l.Appender, m, "")
	if err != nil {
		l.t.Fatalf("append: %v", err)
	}

	return receipt.Message.ID
}

// AppendAndWake appends a message, and then calls OnWake if the message is new.
func AppendAndWake(ctx context.Context, a *lane.Appender, m weir.Message,
	idempotencyKey string) (lane.Receipt, error) {
	receipt, err := a.Append(ctx, m, idempotencyKey)
	if err == nil && !receipt.Duplicate && a.OnWake != nil {
		a.OnWake(receipt.Message.ID.Lane)
	}
	return receipt, err
}

// Status returns the stored status of a message.
func (l *Lanes) Status(id weir.ID) weir.Status {
	l.t.Helper()
	status, err := l.Store.Messages().Status(l.t.Context(), id)
	if err != nil {
		l.t.Fatalf("status: %v", err)
	}
	return status
}

// Control returns the control rows of a lane.
func (l *Lanes) Control(number int) lane.Control {
	l.t.Helper()
	c, err := l.Store.ReadControl(l.t.Context(), number)
	if err != nil {
		l.t.Fatalf("control rows of lane %d: %v", number, err)
	}
	return c
}

// Messages returns all messages with their bodies, ordered by lane and then by sequence number.
func (l *Lanes) Messages() (all []weir.Message) {
	l.t.Helper()
	for number := range l.Store.Lanes {
		all = append(all, l.readLog(number, func(*weir.Message) bool { return true })...)
	}
	return all
}

// MessagesOf returns the messages of a key with their bodies, ordered by sequence number.
func (l *Lanes) MessagesOf(key string) []weir.Message {
	l.t.Helper()
	return l.readLog(l.Store.LaneOf(key), func(m *weir.Message) bool { return m.Key == key })
}

// BodiesOf returns the bodies of a key's messages, ordered by sequence number.
func (l *Lanes) BodiesOf(key string) (bodies []string) {
	l.t.Helper()
	for _, m := range l.MessagesOf(key) {
		bodies = append(bodies, string(m.Body))
	}
	return bodies
}

func (l *Lanes) readLog(number int, isWanted func(*weir.Message) bool) (messages []weir.Message) {
	l.t.Helper()
	for seq := int64(1); ; {
		entries, err := l.Store.ReadLog(l.t.Context(), number, seq, 100)
		if err != nil {
			l.t.Fatalf("log of lane %d: %v", number, err)
		}

		for _, e := range entries {
			seq = e.Seq() + 1
			if !isWanted(&e.Message) {
				continue
			}

			if err := l.Store.LoadBody(l.t.Context(), e); err != nil {
				l.t.Fatalf("body of message %d of lane %d: %v", e.Seq(), number, err)
			}

			messages = append(messages, e.Message)
		}

		if len(entries) == 0 {
			return messages
		}
	}
}

// Calls counts how often a process wakes a lane, and how often it refuses a message or a batch. A
// test passes the methods of Calls to the process as hooks. Calls is safe for concurrent use.
type Calls struct {
	Wakes    atomic.Int64
	Refusals atomic.Int64
}

// CountWake counts a wake of a lane.
func (c *Calls) CountWake(int) { c.Wakes.Add(1) }

// CountRefusal counts the refusal of a message or of a batch.
func (c *Calls) CountRefusal(error) { c.Refusals.Add(1) }

// Closer is a part of a process that can be closed.
type Closer interface {
	Close(ctx context.Context) error
}

// Close closes parts of a process one after the other, within ten minutes in all. It ends the test
// if a part returns an error.
func Close(t testing.TB, parts ...Closer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()

	for _, part := range parts {
		if err := part.Close(ctx); err != nil {
			t.Fatalf("close %T: %v", part, err)
		}
	}
}

// NoTickets drops each ticket. It is for tests that wake the lanes themselves.
type NoTickets struct{}

// EnqueueNow drops a ticket.
func (NoTickets) EnqueueNow(context.Context, int) error { return nil }
