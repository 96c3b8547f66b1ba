package azure

import (
	"context"
	"encoding/base64"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"weir/internal/storage"
)

const maxDequeue = 32

// Queue implements storage.Queue on a queue of the account.
type Queue struct {
	client *azqueue.QueueClient
}

var (
	_ storage.Queue       = (*Queue)(nil)
	_ storage.QueueLength = (*Queue)(nil)
)

// Put implements storage.Queue, and creates a missing queue. The message never expires. With the
// default lifetime of seven days, Azure would refuse a delay of seven days.
func (q *Queue) Put(ctx context.Context, text string, delay time.Duration) error {
	return createAndRetry(ctx, q.createQueue,
		func(ctx context.Context) error { return q.putOnce(ctx, text, delay) })
}

func (q *Queue) putOnce(ctx context.Context, text string, delay time.Duration) error {
	return doOnce(ctx, "queue put", func(ctx context.Context) error {
		_, err := q.client.EnqueueMessage(ctx, encodeText(text), &azqueue.EnqueueMessageOptions{
			TimeToLive: new(int32(-1)), VisibilityTimeout: new(wholeSeconds(delay)),
		})
		return err
	})
}

func (q *Queue) createQueue(ctx context.Context) error {
	return createIfMissing(ctx, "queue create",
		func(ctx context.Context) error { _, err := q.client.Create(ctx, nil); return err })
}

// Get implements storage.Queue.
func (q *Queue) Get(ctx context.Context, max int, hide time.Duration) (got []storage.QueueMessage,
	err error) {
	err = doOnce(ctx, "queue get", func(ctx context.Context) error {
		r, err := q.client.DequeueMessages(ctx, &azqueue.DequeueMessagesOptions{
			NumberOfMessages:  new(int32(min(max, maxDequeue))),
			VisibilityTimeout: new(wholeSeconds(hide)),
		})
		for _, m := range r.Messages {
			got = append(got, storage.QueueMessage{
				ID: deref(m.MessageID), PopReceipt: deref(m.PopReceipt),
				Text:         decodeText(deref(m.MessageText)),
				DequeueCount: deref(m.DequeueCount), InsertedAt: deref(m.InsertionTime).UTC(),
			})
		}

		return err
	})

	return got, err
}

// Update implements storage.Queue.
func (q *Queue) Update(ctx context.Context, m storage.QueueMessage, text string,
	hide time.Duration) (receipt string, err error) {
	err = doOnce(ctx, "queue update", func(ctx context.Context) error {
		r, err := q.client.UpdateMessage(ctx, m.ID, m.PopReceipt, encodeText(text),
			&azqueue.UpdateMessageOptions{
				VisibilityTimeout: new(wholeSeconds(hide)),
			})
		receipt = deref(r.PopReceipt)
		return err
	})

	return receipt, err
}

// Delete implements storage.Queue.
func (q *Queue) Delete(ctx context.Context, m storage.QueueMessage) error {
	return doOnce(ctx, "queue delete", func(ctx context.Context) error {
		_, err := q.client.DeleteMessage(ctx, m.ID, m.PopReceipt, nil)
		return err
	})
}

// Length implements storage.QueueLength.
func (q *Queue) Length(ctx context.Context) (n int64, err error) {
	err = doRead(ctx, "queue length", func(ctx context.Context) error {
		r, err := q.client.GetProperties(ctx, nil)
		n = int64(deref(r.ApproximateMessagesCount))
		return err
	})
	return n, err
}

func encodeText(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// decodeText decodes base64. If s is not base64, decodeText returns s unchanged.
func decodeText(s string) string {
	if b, err := base64.StdEncoding.DecodeString(s); err == nil {
		return string(b)
	}
	return s
}

// wholeSeconds rounds up: storage accepts only whole seconds, and a message must not become visible
// early.
func wholeSeconds(d time.Duration) int32 {
	// no overflow, because d is at most seven days
	return int32((max(d, 0) + time.Second - 1) / time.Second)
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
