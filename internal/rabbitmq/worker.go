package rabbitmq

import (
	"context"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"weir/internal/filing"
	"weir/internal/lane"
	"weir/internal/retry"
	"weir/internal/weir"
)

const (
	// The first and the longest pause before a message is filed again.
	firstRefile = 200 * time.Millisecond
	maxRefile   = 5 * time.Second
	// fileTimeout bounds one attempt to file a message, as it does for a post.
	fileTimeout = 9 * time.Second
	// notFiledInterval is the least time between two log lines about messages that are not filed yet. Without it, each
	// delivery in hand would cause a line every maxRefile while storage is away.
	notFiledInterval = 10 * time.Second
)

// worker handles the deliveries of one channel. Its number of goroutines is at most the prefetch.
type worker struct {
	consumer *Consumer
	queue    Queue
	letters  *deadLetters
	tasks    sync.WaitGroup

	mu         sync.Mutex
	keys       map[string][]*task // by key in work: its next tasks, in the order of the queue
	reportedAt time.Time          // when the last line about messages that are not filed was logged
}

// task is a message that is to be filed, and its delivery.
type task struct {
	message  weir.Message
	delivery *amqp.Delivery
}

// accept validates a delivery, and files or refuses it in the background. Call it in the order of the queue: the
// validation finds the key, and the messages of one key are filed in the order of these calls.
func (w *worker) accept(ctx context.Context, d *amqp.Delivery) {
	m, err := w.consumer.validate(ctx, w.queue, d)
	switch {
	case err == nil:
		w.addTask(ctx, &task{m, d})
	case filing.IsRefusal(err):
		w.tasks.Go(func() { w.refuse(ctx, d, err) })
	}
	// Otherwise ctx has ended, and with it the channel: the broker delivers the message again.
}

// addTask files a message after those of its key that are in work.
func (w *worker) addTask(ctx context.Context, t *task) {
	w.mu.Lock()
	defer w.mu.Unlock()
	waiting, inWork := w.keys[t.message.Key]
	if inWork {
		w.keys[t.message.Key] = append(waiting, t)
		return
	}
	w.keys[t.message.Key] = nil
	w.tasks.Go(func() { w.fileKey(ctx, t) })
}

// fileKey files a message and all that follow it in its key. If ctx ends, it leaves the rest to the broker: a later
// message must not be filed before one that was not.
func (w *worker) fileKey(ctx context.Context, t *task) {
	for ; t != nil; t = w.takeNext(t.message.Key) {
		if ctx.Err() == nil {
			w.fileMessage(ctx, t)
		}
	}
}

// takeNext returns the next task of a key; nil = there is none, and the key is no longer in work.
func (w *worker) takeNext(key string) *task {
	w.mu.Lock()
	defer w.mu.Unlock()
	waiting := w.keys[key]
	if len(waiting) == 0 {
		delete(w.keys, key)
		return nil
	}
	w.keys[key] = waiting[1:]
	return waiting[0]
}

// fileMessage files a message and acknowledges its delivery. It tries again until ctx ends.
func (w *worker) fileMessage(ctx context.Context, t *task) {
	c := w.consumer
	var filed lane.Receipt
	err := retry.Policy{First: firstRefile, Max: maxRefile, Spread: 0.5,
		IsTransient: func(err error) bool { return !filing.IsRefusal(err) },
		BeforePause: func(err error, pause time.Duration) (time.Duration, bool) {
			w.reportNotFiled(err)
			return pause, true
		}}.Do(ctx, func() (err error) {
		limited, cancel := context.WithTimeout(ctx, fileTimeout)
		defer cancel()
		filed, err = c.cfg.Filer.FileValid(limited, t.message, t.delivery.MessageId)
		return err
	})
	switch {
	case err == nil:
		if !filed.Stage.Final() {
			c.cfg.Wake(filed.Message.ID.Lane)
		}
		_ = t.delivery.Ack(false) // fails if the channel is lost: then the message is delivered again
		c.cfg.Log.Debug("consume: accepted", "subject", w.queue.Name, "message_id", filed.Message.Public().String(),
			"lane", filed.Message.ID.Lane, "seq", filed.Message.ID.Seq, "stage", string(filed.Stage))
	case filing.IsRefusal(err):
		w.refuse(ctx, t.delivery, err)
	}
}

// reportNotFiled logs that messages cannot be filed now, and stay in the queue.
func (w *worker) reportNotFiled(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.consumer.cfg.Now()
	if now.Sub(w.reportedAt) < notFiledInterval {
		return
	}
	w.reportedAt = now
	w.consumer.cfg.Log.Warn("consume: not filed yet", "subject", w.queue.Name, "err", err)
}

// refuse takes a delivery from its queue for good: it goes to the dead-letter exchange, or is rejected if there is
// none. The delivery stays in the queue until the broker has confirmed the dead letter.
func (w *worker) refuse(ctx context.Context, d *amqp.Delivery, reason error) {
	c := w.consumer
	if w.letters.exchange == "" {
		_ = d.Nack(false, false) // fails if the channel is lost: then the message is delivered again
	} else {
		err := retry.Policy{First: firstReconnect, Max: maxReconnect, Spread: 0.5,
			BeforePause: func(err error, pause time.Duration) (time.Duration, bool) {
				c.cfg.Log.Error("consume: dead letter not published", "subject", w.letters.exchange,
					"delay_ms", pause.Milliseconds(), "err", err)
				return pause, true
			}}.Do(ctx, func() error { return w.letters.publish(ctx, w.queue.Name, d, reason) })
		if err != nil {
			return
		}
		_ = d.Ack(false)
	}
	c.cfg.Observer.Refused(reason)
	c.cfg.Log.Warn("consume: refused", "subject", w.queue.Name, "reason", safeMessage(reason))
}

// stopInOrder waits for the deliveries in hand, for stopTimeout at most. The consumer stays registered until the
// channel or its connection closes: when a consumer ends, the broker passes later messages on to the next one at once,
// which could file them before the earlier ones of their key that are in hand here.
func (w *worker) stopInOrder(stopWork func()) {
	timer := time.AfterFunc(stopTimeout, stopWork)
	defer timer.Stop()
	w.tasks.Wait()
}

// abandon ends the work on a channel that is lost, and returns the reason. It waits until no append is under way,
// because the next channel brings the same deliveries.
func (w *worker) abandon(stopWork func(), reason error) error {
	stopWork()
	w.tasks.Wait()
	return reason
}
