package memory

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"weir/internal/storage"
)

// maxMessage is the size of a queue message on the wire; base64 makes 4 bytes of 3.
const maxMessage = 64 << 10

// Queue is a queue.
type Queue struct {
	now      func() time.Time
	mu       sync.Mutex
	messages []*message
	numbers  int
}

type message struct {
	storage.QueueMessage
	visible time.Time
}

var (
	_ storage.Queue       = (*Queue)(nil)
	_ storage.QueueLength = (*Queue)(nil)
)

// Put implements storage.Queue.
func (q *Queue) Put(ctx context.Context, text string, delay time.Duration) error {
	if err := ctx.Err(); err != nil {
		return fail("queue put", storage.Unavailable, err)
	}
	if (len(text)+2)/3*4 > maxMessage {
		return fail("queue put", storage.TooLarge, nil)
	}
	if delay < 0 || delay > 7*24*time.Hour {
		return fail("queue put", storage.Other, fmt.Errorf("delay %s", delay))
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	m := &message{visible: now.Add(wholeSeconds(delay))}
	m.ID, m.Text, m.InsertedAt = q.number("message"), text, now.UTC()
	q.messages = append(q.messages, m)
	return nil
}

// Get implements storage.Queue.
func (q *Queue) Get(ctx context.Context, max int, hide time.Duration) ([]storage.QueueMessage, error) {
	if err := ctx.Err(); err != nil {
		return nil, fail("queue get", storage.Unavailable, err)
	}
	if max < 1 || max > 32 {
		return nil, fail("queue get", storage.Other, fmt.Errorf("%d messages", max))
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	var got []storage.QueueMessage
	for _, m := range q.messages {
		if len(got) < max && !m.visible.After(now) {
			m.DequeueCount++
			m.visible, m.PopReceipt = now.Add(wholeSeconds(hide)), q.number("receipt")
			got = append(got, m.QueueMessage)
		}
	}
	return got, nil
}

// Update implements storage.Queue.
func (q *Queue) Update(ctx context.Context, in storage.QueueMessage, text string, hide time.Duration) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", fail("queue update", storage.Unavailable, err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	i := q.find(in)
	if i < 0 {
		return "", fail("queue update", storage.NotFound, nil)
	}
	m := q.messages[i]
	m.Text, m.PopReceipt, m.visible = text, q.number("receipt"), q.now().Add(wholeSeconds(hide))
	return m.PopReceipt, nil
}

// Delete implements storage.Queue.
func (q *Queue) Delete(ctx context.Context, in storage.QueueMessage) error {
	if err := ctx.Err(); err != nil {
		return fail("queue delete", storage.Unavailable, err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	i := q.find(in)
	if i < 0 {
		return fail("queue delete", storage.NotFound, nil)
	}
	q.messages = slices.Delete(q.messages, i, i+1)
	return nil
}

// Length implements storage.QueueLength.
func (q *Queue) Length(context.Context) (int64, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return int64(len(q.messages)), nil
}

func (q *Queue) find(in storage.QueueMessage) int {
	return slices.IndexFunc(q.messages, func(m *message) bool { return m.ID == in.ID && m.PopReceipt == in.PopReceipt })
}

func (q *Queue) number(kind string) string {
	q.numbers++
	return fmt.Sprintf("%s-%d", kind, q.numbers)
}

// wholeSeconds rounds up, as the service has seconds only.
func wholeSeconds(d time.Duration) time.Duration {
	return (d + time.Second - 1) / time.Second * time.Second
}
