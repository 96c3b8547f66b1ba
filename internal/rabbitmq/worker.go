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
	// firstRefile is the first pause before a message is filed again, and maxRefile is the longest one.
	firstRefile = 200 * time.Millisecond
	maxRefile   = 5 * time.Second
	// fileTimeout bounds one attempt to file a message. A post has the same limit.
	fileTimeout = 9 * time.Second
	// notFiledInterval is the shortest time between two log lines about messages that are not filed yet.
	// Without it, each unacknowledged delivery would cause a line every maxRefile while storage is away.
	notFiledInterval = 10 * time.Second
)

// worker handles the deliveries of one channel. The number of its goroutines is at most Config.Prefetch.
type worker struct {
	consumer *Consumer
	queue    Queue
	letters  *deadLetters
	tasks    sync.WaitGroup

	mu         sync.Mutex
	keys       map[string][]*task // for each key that is being filed, its next tasks in the order of the queue
	reportedAt time.Time          // time of the last log line about messages that are not filed; zero = none
}

// task is a message to file, and its delivery.
type task struct {
	message  weir.Message
	delivery *amqp.Delivery
}

// accept validates a delivery, and files or refuses it in the background. It must be called in the order of the
// queue: the messages of one key are filed in the order of these calls, and only the validation finds the key.
func (w *worker) accept(ctx context.Context, d *amqp.Delivery) {
	m, err := w.consumer.validate(ctx, w.queue, d)
	switch {
	case err == nil:
		w.addTask(ctx, &task{m, d})
	case filing.IsRefusal(err):
		w.tasks.Go(func() { w.refuse(ctx, d, err) })
	}
	// Any other error means that ctx and the channel have ended: the broker delivers the message again.
}

// addTask files a message in the background, after the earlier messages of its key.
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

// fileKey files a message and then the tasks that wait for its key. If ctx ends, it leaves the rest to the
// broker: a later message of a key must not be filed before an earlier one.
func (w *worker) fileKey(ctx context.Context, t *task) {
	for ; t != nil; t = w.takeNext(t.message.Key) {
		if ctx.Err() == nil {
			w.fileMessage(ctx, t)
		}
	}
}

// takeNext returns the next task of a key; nil = there is none, and no task of the key is being filed any more.
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

// fileMessage files a message and acknowledges its delivery. It tries again until the message is filed or refused, or
// ctx ends.
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
		_ = t.delivery.Ack(false) // if the channel is lost, this fails and the broker delivers the message again
		c.cfg.Log.Debug("consume: accepted", "subject", w.queue.Name, "message_id", filed.Message.Public().String(),
			"lane", filed.Message.ID.Lane, "seq", filed.Message.ID.Seq, "stage", string(filed.Stage))
	case filing.IsRefusal(err):
		w.refuse(ctx, t.delivery, err)
	}
}

// reportNotFiled logs, at most once in notFiledInterval, that messages cannot be filed now and stay in the queue.
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

// refuse removes a delivery from its queue for good. The delivery goes to the dead-letter exchange, or is
// rejected if there is none. It stays in the queue until the broker has confirmed the dead letter.
func (w *worker) refuse(ctx context.Context, d *amqp.Delivery, reason error) {
	c := w.consumer
	if w.letters.exchange == "" {
		_ = d.Nack(false, false) // if the channel is lost, this fails and the broker delivers the message again
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

// stopInOrder waits for the deliveries that are being filed, for stopTimeout at most. The consumer stays registered
// until the channel or its connection closes. Otherwise the broker would at once pass later messages on to the next
// consumer, and that consumer could file them before the earlier messages of the same key, which this process is still
// filing.
func (w *worker) stopInOrder(stopWork func()) {
	timer := time.AfterFunc(stopTimeout, stopWork)
	defer timer.Stop()
	w.tasks.Wait()
}

// abandon ends the work on a lost channel, and returns the reason. It waits until no append is running, because
// the next channel brings the same deliveries.
func (w *worker) abandon(stopWork func(), reason error) error {
	stopWork()
	w.tasks.Wait()
	return reason
}
