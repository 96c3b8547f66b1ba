package rabbitmq

import (
	"context"
	"errors"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"weir/internal/filing"
	"weir/internal/lane"
	"weir/internal/panics"
	"weir/internal/retry"
	"weir/internal/weir"
)

const (
	// firstRefile is the first pause before a further try to append a message, and maxRefile is the
	// longest pause.
	firstRefile = 200 * time.Millisecond
	maxRefile   = 5 * time.Second
	// fileTimeout bounds one try to append a message. It equals the limit for a post.
	fileTimeout = 9 * time.Second
	// notFiledInterval is the shortest time between two log lines about messages that cannot be
	// appended. Without it, each unacknowledged delivery would cause a line every maxRefile while
	// storage is unavailable.
	notFiledInterval = 10 * time.Second
)

// worker handles the deliveries of one channel. It has at most Config.Prefetch goroutines.
type worker struct {
	consumer *Consumer
	queue    Queue
	guard    *stallGuard
	letters  *deadLetters
	tasks    sync.WaitGroup

	mu sync.Mutex
	// for each key with a task in progress: the waiting tasks, in order
	keys       map[string][]*task
	reportedAt time.Time // time of the last log line of reportNotFiled; zero = none
}

// task is a message to append, with its delivery.
type task struct {
	message  weir.Message
	delivery *amqp.Delivery
}

// accept validates a delivery, and then appends its message or refuses the delivery in the
// background. Call it in the order of the queue, one call at a time: the messages of a key are
// appended in the order of these calls.
func (w *worker) accept(ctx context.Context, d *amqp.Delivery) {
	var m weir.Message
	err := panics.Catch(func() (err error) {
		m, err = w.consumer.validate(ctx, w.queue, d)
		return err
	})

	var panicked *panics.Error
	switch {
	case errors.As(err, &panicked):
		w.leaveAside(ctx, d, panicked)
	case err == nil:
		w.addTask(ctx, &task{m, d})
	case filing.IsRefusal(err):
		w.tasks.Go(func() { w.refuseSafely(ctx, d, err) })
	}
	// Any other error means that ctx has ended. The channel is then closed, and the broker repeats
	// the delivery.
}

// addTask appends a message in the background, after the earlier messages of its key.
func (w *worker) addTask(ctx context.Context, t *task) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := w.consumer.cfg.Filer.OrderOf(&t.message)
	waiting, inWork := w.keys[key]
	if inWork {
		w.keys[key] = append(waiting, t)
		return
	}

	w.keys[key] = nil
	w.tasks.Go(func() { w.fileKey(ctx, t) })
}

// fileKey appends a message, and then the messages that wait for its key. If ctx ends, fileKey
// appends no further message: perhaps the present message was not appended, and a later message of
// its key must not overtake it.
func (w *worker) fileKey(ctx context.Context, t *task) {
	defer panics.Log(w.consumer.cfg.Log, "consume: key")
	for ; t != nil; t = w.takeNext(w.consumer.cfg.Filer.OrderOf(&t.message)) {
		if ctx.Err() == nil {
			w.fileMessage(ctx, t)
		}
	}
}

// refuseSafely calls refuse. If that panics, the delivery stays unacknowledged until the channel
// ends.
func (w *worker) refuseSafely(ctx context.Context, d *amqp.Delivery, reason error) {
	defer panics.Log(w.consumer.cfg.Log, "consume: refusal")
	w.refuse(ctx, d, reason)
}

// leaveAside handles a delivery whose validation has panicked. It publishes the delivery to the
// dead-letter exchange. Without an exchange the delivery stays unacknowledged: a rejection would
// lose it, and another version of Weir may be able to take it.
func (w *worker) leaveAside(ctx context.Context, d *amqp.Delivery, cause *panics.Error) {
	w.consumer.cfg.Log.Error("consume: panic in a delivery", "subject", w.queue.Name, "err", cause)
	if w.letters.exchange == "" {
		return
	}

	reason := &weir.Error{Kind: weir.Invalid, Op: "consume",
		Message: "the delivery led to an internal error; the log of Weir has the cause", Err: cause}
	w.tasks.Go(func() { w.refuseSafely(ctx, d, reason) })
}

// takeNext returns the next task of a key. If the key has none, takeNext removes the key from keys
// and returns nil.
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

// fileMessage appends a message and acknowledges its delivery. It tries again until the message is
// appended or refused, or ctx ends.
func (w *worker) fileMessage(ctx context.Context, t *task) {
	c := w.consumer
	var filed lane.Receipt
	err := retry.Policy{First: firstRefile, Max: maxRefile, Spread: 0.5,
		IsTransient: func(err error) bool {
			return !filing.IsRefusal(err) &&
				!errors.Is(err, errStalled)
		},
		BeforePause: func(err error, pause time.Duration) (time.Duration, bool) {
			w.reportNotFiled(err)
			return pause, true
		}}.Do(ctx, func() (err error) {
		if !w.guard.isIntact() {
			// useConnection leaves the connection, and the broker repeats the delivery
			return errStalled
		}

		limited, cancel := context.WithTimeout(ctx, fileTimeout)
		defer cancel()

		// A panic is no refusal, so the message is tried again, and its key waits.
		return panics.Catch(func() (err error) {
			filed, err = c.cfg.Filer.FileValid(limited, t.message, t.delivery.MessageId)
			return err
		})
	})

	switch {
	case err == nil:
		if !filed.Stage.Final() {
			c.cfg.Wake(filed.Message.ID.Lane)
		}

		// if the channel is lost, Ack fails and the broker repeats the delivery
		_ = t.delivery.Ack(false)
		c.cfg.Log.Debug("consume: accepted", "subject", w.queue.Name, "message_id",
			filed.Message.Public().String(),
			"lane", filed.Message.ID.Lane, "seq", filed.Message.ID.Seq, "stage",
			string(filed.Stage))

	case filing.IsRefusal(err):
		w.refuse(ctx, t.delivery, err)
	}
}

// reportNotFiled logs that messages cannot be appended now, at most one time in notFiledInterval.
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

// refuse removes a delivery from its queue for good. It publishes the delivery to the dead-letter
// exchange, or rejects the delivery if no exchange is configured. The delivery stays in the queue
// until the broker has confirmed the dead letter.
func (w *worker) refuse(ctx context.Context, d *amqp.Delivery, reason error) {
	c := w.consumer
	if w.letters.exchange == "" {
		// if the channel is lost, Nack fails and the broker repeats the delivery
		_ = d.Nack(false, false)
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

// stopInOrder waits until all tasks are done. After stopTimeout it stops the work. It does not
// cancel the consumer, because after a cancel the broker would at once send later messages to
// another process. That process could append the later messages before the earlier messages of the
// same key.
func (w *worker) stopInOrder(stopWork func()) {
	timer := time.AfterFunc(stopTimeout, stopWork)
	defer timer.Stop()
	w.tasks.Wait()
}

// abandon ends the work on a lost channel, and returns the reason. It waits until no append is
// running, because the broker repeats the same deliveries on the next channel.
func (w *worker) abandon(stopWork func(), reason error) error {
	stopWork()
	w.tasks.Wait()
	return reason
}
