// Package rabbitmq takes messages from queues of RabbitMQ into the lanes.
//
// Each delivery is validated and accepted like a post. The delivery is acknowledged only after its
// message is durable in the log. If this process ends or loses its connection earlier, the broker
// repeats the delivery. A repeated delivery has the same message_id, which is the idempotency key,
// so it does not become a second message. Without a message_id it becomes a second message; see
// Config.RequiresMessageID.
//
// Only one consumer reads a queue at a time, over all processes; see Queue.SingleActive. The
// consumer appends the messages of one key one after the other, in the order of the queue. It
// appends messages of different keys concurrently. While a message cannot be appended, the later
// messages of its key wait, and their deliveries stay unacknowledged. The broker sends no more than
// Config.Prefetch unacknowledged deliveries, so it stops sending while storage is unavailable.
//
// An invalid delivery goes to the dead-letter exchange, together with its problems. If no exchange
// is configured, the delivery is rejected.
package rabbitmq

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"weir/internal/filing"
	"weir/internal/panics"
	"weir/internal/retry"
)

// Queue is a queue of RabbitMQ to consume. The queue must exist: Weir does not declare it.
type Queue struct {
	Name     string
	Contract string // the contract that the queue's messages must match; "" = any contract
	Upstream string // the upstream that sends the queue's messages; "" = none
	// SingleActive must be true if the queue has the argument x-single-active-consumer: then the
	// broker chooses one of several consumers. For any other queue, the consumer is exclusive.
	// Until that consumer ends, other processes try again and again to consume the queue.
	SingleActive bool
}

// Observer gets a call of Refused for each refused delivery, with the reason.
type Observer interface{ Refused(err error) }

// Config configures a Consumer. All fields are required, except TLS, DeadLetterExchange,
// RequiresMessageID, Queue.Contract and Queue.Upstream.
type Config struct {
	URL     string      // amqp:// or amqps://, with user, password and virtual host
	TLS     *tls.Config // nil = the certificate authorities of the system
	MaxBody int64       // largest number of bytes of a body that is unpacked
	Name    string      // name of the connection, for the operators of the broker
	Queues  []Queue
	// largest number of unacknowledged deliveries per queue in this process, 1 to 65535
	Prefetch           int
	DeadLetterExchange string // "" = invalid deliveries are rejected without requeue
	RequiresMessageID  bool   // true = a delivery without message_id is invalid
	Filer              *filing.Filer
	// called with each lane that has a new message; must not block
	Wake     func(lane int)
	Observer Observer
	Now      func() time.Time
	Log      *slog.Logger
}

// Consumer consumes queues. Call Run only one time.
type Consumer struct{ cfg Config }

// New returns a Consumer.
func New(cfg Config) *Consumer { return &Consumer{cfg: cfg} }

const (
	// firstReconnect is the first pause before a further try to connect or to consume a queue, and
	// maxReconnect is the longest pause. After a connection or consumer has lasted for stableAfter,
	// the next pause is firstReconnect again. The pauses are short, because a process that waits
	// for an exclusive queue must try again to learn that the queue is free. Tries to publish a
	// dead letter have the same pauses.
	firstReconnect = 250 * time.Millisecond
	maxReconnect   = 5 * time.Second
	stableAfter    = time.Minute

	dialTimeout = 10 * time.Second // limit for making a connection, with its handshakes

	// stopTimeout bounds the time for the unacknowledged deliveries of a process that stops.
	// Container platforms allow 10 s or more between SIGTERM and SIGKILL.
	stopTimeout = 7 * time.Second

	// limit for closing a connection to a broker that possibly does not answer
	closeTimeout = time.Second
)

// Run consumes all queues until ctx ends. Then Run takes at most stopTimeout to finish the
// deliveries that it has already received. The broker keeps all other deliveries. When a connection
// is lost, Run connects again, without a limit of tries.
func (c *Consumer) Run(ctx context.Context) {
	c.repeat(ctx, "connection", func() error { return c.useConnection(ctx) })
}

// repeat calls the function "work" again and again until ctx ends. The function must return when
// ctx ends, or when its connection or channel is lost.
func (c *Consumer) repeat(ctx context.Context, subject string, work func() error) {
	for ctx.Err() == nil {
		policy := retry.Policy{First: firstReconnect, Max: maxReconnect, Spread: 0.5,
			BeforePause: func(err error, pause time.Duration) (time.Duration, bool) {
				c.cfg.Log.Warn("consume: not consuming", "subject", subject, "delay_ms",
					pause.Milliseconds(), "err", err)
				return pause, true
			}}

		// without a limit of tries, an error only means that ctx has ended
		_ = policy.Do(ctx, func() error {
			began := c.cfg.Now()
			err := panics.Catch(work)
			if ctx.Err() == nil && c.cfg.Now().Sub(began) >= stableAfter {
				c.cfg.Log.Warn("consume: connection lost", "subject", subject, "err", err)
				return nil // so that the next pause is firstReconnect
			}

			if ctx.Err() != nil {
				return nil
			}

			return err
		})
	}
}

// errLost is the error of a connection or channel that ended without a reason.
var errLost = errors.New("the connection was lost")

// useConnection makes a connection, and consumes all queues until the connection is lost or ctx
// ends.
func (c *Consumer) useConnection(ctx context.Context) error {
	conn, err := c.connect(ctx)
	if err != nil {
		return err
	}

	lost := conn.NotifyClose(make(chan *amqp.Error, 1))
	connected, disconnect := context.WithCancelCause(ctx)
	defer disconnect(nil)
	c.cfg.Log.Info("consume: connected", "from", conn.RemoteAddr().String())
	letters := &deadLetters{exchange: c.cfg.DeadLetterExchange, connect: c.connect, now: c.cfg.Now}
	defer letters.stopPublishing()
	guard := newStallGuard(c.cfg.Now, conn.Config.Heartbeat)

	// The guard watches until the work has ended, which can be some time after the end of ctx.
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	var watcher sync.WaitGroup
	watcher.Go(func() {
		defer panics.Log(c.cfg.Log, "consume: stall guard")
		if guard.watch(watching) {
			disconnect(errStalled)
		}
	})
	defer watcher.Wait()
	defer stopWatching()
	var queues sync.WaitGroup
	for _, q := range c.cfg.Queues {
		queues.Go(func() {
			defer panics.Log(c.cfg.Log, "consume: queue")
			c.repeat(connected, q.Name,
				func() error { return c.consumeQueue(connected, conn, guard, q, letters) })
		})
	}

	select {
	case reason := <-lost:
		disconnect(asError(reason))
	case <-connected.Done(): // the process stops, or has stood still
	}

	queues.Wait()

	// an error means that the connection is lost
	closing := conn.CloseDeadline(time.Now().Add(closeTimeout))
	if ctx.Err() == nil {
		return context.Cause(connected)
	}

	return closing
}

// asError returns the broker's reason as an error. It returns errLost if the reason is nil.
func asError(reason *amqp.Error) error {
	if reason == nil {
		return errLost
	}
	return reason
}

// connect makes a connection. If Config.URL can be parsed, an error does not contain the password.
func (c *Consumer) connect(ctx context.Context) (*amqp.Connection, error) {
	dialer := net.Dialer{Timeout: dialTimeout}
	properties := amqp.NewConnectionProperties()
	properties.SetClientConnectionName(c.cfg.Name)
	var tlsConfig *tls.Config
	if c.cfg.TLS != nil {
		// because the library sets the server's name in the configuration
		tlsConfig = c.cfg.TLS.Clone()
	}

	return amqp.DialConfig(c.cfg.URL,
		amqp.Config{TLSClientConfig: tlsConfig, Properties: properties,
			Dial: func(network, address string) (net.Conn, error) {
				conn, err := dialer.DialContext(ctx, network, address)
				if err != nil {
					return nil, err
				}
				// The library removes this deadline after the handshakes.
				return conn, conn.SetDeadline(time.Now().Add(dialTimeout))
			}})
}

// consumeQueue consumes one queue until its channel is lost or ctx ends. The argument ctx ends when
// the process stops, or when the connection is lost.
func (c *Consumer) consumeQueue(ctx context.Context, conn *amqp.Connection,
	guard *stallGuard, q Queue, letters *deadLetters) error {
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	defer func() {
		if ctx.Err() == nil { // if ctx has ended, useConnection closes the connection
			ch.Close() // the broker then requeues the unacknowledged deliveries
		}
	}()

	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	cancelled := ch.NotifyCancel(make(chan string, 1))
	if err := ch.Qos(c.cfg.Prefetch, 0, false); err != nil {
		return err
	}

	deliveries, err := ch.Consume(q.Name, c.cfg.Name, false, !q.SingleActive, false, false, nil)
	if err != nil {
		return explainRefusal(q, err)
	}

	c.cfg.Log.Info("consume: consuming", "subject", q.Name)

	// When the process stops, the work is allowed to continue for stopTimeout after the end of ctx.
	// When the channel is lost, the work ends at once.
	working, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	w := &worker{consumer: c, queue: q, guard: guard, letters: letters, keys: map[string][]*task{}}
	for {
		select {
		case d, isOpen := <-deliveries:
			if isOpen {
				w.accept(working, &d)
				continue
			}

		case <-cancelled:
			return w.abandon(stopWork,
				fmt.Errorf("the broker ended the consumer: the queue %s was removed, or moved",
					q.Name))

		case <-ctx.Done():
			if !conn.IsClosed() && guard.isIntact() {
				w.stopInOrder(stopWork)
				return nil
			}
		}

		return w.abandon(stopWork, receiveReason(closed))
	}
}

// receiveReason returns the reason why a channel was closed, or errLost if there is no reason. It
// does not wait, because the library sends the reason before it closes the channel of deliveries.
func receiveReason(closed <-chan *amqp.Error) error {
	select {
	case reason := <-closed:
		return asError(reason)
	default:
		return errLost
	}
}

// explainRefusal adds the likely causes to the error of a consumer that the broker refused.
func explainRefusal(q Queue, err error) error {
	var refusal *amqp.Error
	if errors.As(err, &refusal) && refusal.Code == amqp.AccessRefused && !q.SingleActive {
		return fmt.Errorf("another consumer reads the queue %s, or it has a single active consumer (then set consumer: "+
			"single-active): %w", q.Name, err)
	}
	return err
}
