package memory

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/limits"
)

// Queue implements storage.Queue and storage.QueueLength.
type Queue struct {
	now      func() time.Time
	mu       sync.Mutex
	messages []*message
	lastID   int
}

type message struct {
	storage.QueueMessage
	visibleAt time.Time
}

var (
	_ storage.Queue       = (*Queue)(nil)
	_ storage.QueueLength = (*Queue)(nil)
)

// Put implements storage.Queue.
func (q *Queue) Put(ctx context.Context, text string, delay time.Duration) error {
	if err := ctx.Err(); err != nil {
		return newError("queue put", storage.Unavailable, err)
	}

	if err := limits.CheckMessage("queue put", text, delay, 0); err != nil {
		return err
	}

	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	m := &message{visibleAt: now.Add(limits.WholeSeconds(delay))}
	m.ID, m.Text, m.InsertedAt = q.nextID("message"), text, now.UTC().Truncate(time.Second)
	q.messages = append(q.messages, m)

	return nil
}

// Get implements storage.Queue.
func (q *Queue) Get(ctx context.Context, max int,
	hide time.Duration) ([]storage.QueueMessage, error) {
	if err := ctx.Err(); err != nil {
		return nil, newError("queue get", storage.Unavailable, err)
	}

	if err := limits.CheckMessages("queue get", max, hide); err != nil {
		return nil, err
	}

	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	var got []storage.QueueMessage
	for _, m := range q.messages {
		if len(got) < max && !m.visibleAt.After(now) {
			m.DequeueCount++
			m.visibleAt, m.PopReceipt = now.Add(limits.WholeSeconds(hide)), q.nextID("receipt")
			got = append(got, m.QueueMessage)
		}
	}

	return got, nil
}

// Update implements storage.Queue.
func (q *Queue) Update(ctx context.Context, in storage.QueueMessage, text string,
	hide time.Duration) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", newError("queue update", storage.Unavailable, err)
	}

	if err := limits.CheckMessage("queue update", text, hide, 0); err != nil {
		return "", err
	}

	q.mu.Lock()
	defer q.mu.Unlock()
	i := q.findDequeued(in)
	if i < 0 {
		return "", newError("queue update", storage.NotFound, nil)
	}

	m := q.messages[i]
	m.Text, m.PopReceipt, m.visibleAt = text, q.nextID("receipt"),
		q.now().Add(limits.WholeSeconds(hide))

	return m.PopReceipt, nil
}

// Delete implements storage.Queue.
func (q *Queue) Delete(ctx context.Context, in storage.QueueMessage) error {
	if err := ctx.Err(); err != nil {
		return newError("queue delete", storage.Unavailable, err)
	}

	q.mu.Lock()
	defer q.mu.Unlock()
	i := q.findDequeued(in)
	if i < 0 {
		return newError("queue delete", storage.NotFound, nil)
	}

	q.messages = slices.Delete(q.messages, i, i+1)

	return nil
}

// Length implements storage.QueueLength.
func (q *Queue) Length(ctx context.Context) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, newError("queue length", storage.Unavailable, err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return int64(len(q.messages)), nil
}

// findDequeued returns the index of the message with the ID and pop receipt of in; -1 = none. The
// caller has locked mu.
func (q *Queue) findDequeued(in storage.QueueMessage) int {
	return slices.IndexFunc(q.messages,
		func(m *message) bool { return m.ID == in.ID && m.PopReceipt == in.PopReceipt })
}

func (q *Queue) nextID(kind string) string {
	q.lastID++
	return fmt.Sprintf("%s-%d", kind, q.lastID)
}
