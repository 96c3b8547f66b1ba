package e2e_test

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"weir/tools/realbroker"
)

// sharedBroker serves all tests that do not start a broker themselves. Each test declares its own
// queues.
var sharedBroker struct {
	sync.Mutex
	broker *realbroker.Broker
	dir    string
	log    processLogs
}

// useSharedBroker returns the shared broker, and starts it in the first call.
func useSharedBroker(t *testing.T) *realbroker.Broker {
	t.Helper()
	sharedBroker.Lock()
	defer sharedBroker.Unlock()
	if sharedBroker.broker != nil {
		return sharedBroker.broker
	}

	dir, err := os.MkdirTemp("", "weir-broker-")
	if err == nil {
		sharedBroker.dir = dir
		sharedBroker.broker, err = realbroker.Start(t.Context(), dir, &sharedBroker.log)
	}

	if err != nil {
		t.Fatalf("the broker does not start: %v\n%s", err, sharedBroker.log.String())
	}

	return sharedBroker.broker
}

func stopSharedBroker() error {
	sharedBroker.Lock()
	defer sharedBroker.Unlock()
	if sharedBroker.broker == nil {
		return nil
	}
	return errors.Join(sharedBroker.broker.Stop(), os.RemoveAll(sharedBroker.dir))
}

// brokerQueue is a durable queue, and a channel for publishing to the queue with confirms.
type brokerQueue struct {
	t        *testing.T
	name     string
	consumer string // the setting "consumer" of the queue
	upstream string // the setting "upstream" of the queue; "" = not set
	ch       *amqp.Channel
}

// declareQueue declares a classic queue that has the test's name and a suffix.
func declareQueue(t *testing.T, b *realbroker.Broker, suffix string) *brokerQueue {
	t.Helper()
	return declareQueueWith(t, b, suffix, nil)
}

// declareQueueWith does the same as declareQueue, and passes arguments to the broker.
func declareQueueWith(t *testing.T, b *realbroker.Broker, suffix string,
	arguments amqp.Table) *brokerQueue {
	t.Helper()
	q := &brokerQueue{t: t, name: t.Name() + suffix, consumer: "exclusive"}
	if arguments["x-single-active-consumer"] == true {
		q.consumer = "single-active"
	}

	q.reconnect(b)
	if _, err := q.ch.QueueDeclare(q.name, true, false, false, false, arguments); err != nil {
		t.Fatal(err)
	}

	return q
}

// reconnect replaces q.ch by a channel of a new connection.
func (q *brokerQueue) reconnect(b *realbroker.Broker) {
	q.t.Helper()
	conn, err := amqp.Dial(b.URL())
	if err == nil {
		q.t.Cleanup(func() { conn.Close() })
		q.ch, err = conn.Channel()
	}

	if err == nil {
		err = q.ch.Confirm(false)
	}

	if err != nil {
		q.t.Fatal(err)
	}
}

// publish publishes messages, and returns when the broker has confirmed all of them.
func (q *brokerQueue) publish(messages ...amqp.Publishing) {
	q.t.Helper()
	ctx, cancel := context.WithTimeout(q.t.Context(), slowdown*time.Minute)
	defer cancel()
	var last *amqp.DeferredConfirmation
	for _, m := range messages {
		m.DeliveryMode = amqp.Persistent
		confirmed, err := q.ch.PublishWithDeferredConfirm("", q.name, true, false, m)
		if err != nil {
			q.t.Fatal(err)
		}

		if last != nil && !waitConfirmed(ctx, last) {
			q.t.Fatalf("the broker did not confirm a message for %s", q.name)
		}

		last = confirmed
	}

	if !waitConfirmed(ctx, last) {
		q.t.Fatalf("the broker did not confirm a message for %s", q.name)
	}
}

// waitConfirmed waits for the broker's answer, and reports whether the broker has confirmed the
// message.
func waitConfirmed(ctx context.Context, c *amqp.DeferredConfirmation) bool {
	isAcked, err := c.WaitContext(ctx)
	return isAcked && err == nil
}

// countReady returns the number of messages in the queue without the unacknowledged ones.
func (q *brokerQueue) countReady() int {
	q.t.Helper()
	state, err := q.ch.QueueDeclarePassive(q.name, true, false, false, false, nil)
	if err != nil {
		q.t.Fatal(err)
	}
	return state.Messages
}

// get takes one message from the queue. It waits for up to a minute.
func (q *brokerQueue) get(s *system) amqp.Delivery {
	q.t.Helper()
	var d amqp.Delivery
	s.awaitCondition("a message in "+q.name, time.Minute, func() bool {
		var found bool
		var err error
		if d, found, err = q.ch.Get(q.name, true); err != nil {
			q.t.Fatal(err)
		}
		return found
	})

	return d
}

// newArticle returns a version of an article as a message for the broker. Its MessageId is
// keyOf(path, version).
func newArticle(path string, version int) amqp.Publishing {
	return amqp.Publishing{ContentType: "application/xml", MessageId: keyOf(path, version),
		Body: []byte(versionedArticle(path, version))}
}

// newArticles returns the versions first to last of the articles at all paths. The first version of
// all articles comes first, then the next version of all articles, and so on.
func newArticles(paths []string, first, last int) []amqp.Publishing {
	var all []amqp.Publishing
	for v := first; v <= last; v++ {
		for _, path := range paths {
			all = append(all, newArticle(path, v))
		}
	}
	return all
}

// declareDeadQueue declares an exchange for dead letters with the test's name, and a queue that
// gets all messages of the exchange.
func declareDeadQueue(t *testing.T, b *realbroker.Broker) (exchange string, dead *brokerQueue) {
	t.Helper()
	exchange, dead = t.Name(), declareQueue(t, b, "-dead")
	if err := dead.ch.ExchangeDeclare(exchange, "fanout", true, false, false, false, nil); err !=
		nil {
		t.Fatal(err)
	}

	if err := dead.ch.QueueBind(dead.name, "", exchange, false, nil); err != nil {
		t.Fatal(err)
	}

	return exchange, dead
}

// relay forwards TCP connections to an address. If a test closes frozen, all connections stay open,
// but the relay forwards no more bytes.
type relay struct {
	listener net.Listener
	frozen   chan struct{}
}

func startRelay(t *testing.T, to string) (*relay, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	r := &relay{l, make(chan struct{})}
	var all sync.WaitGroup
	t.Cleanup(func() { l.Close(); all.Wait() })
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}

			t.Cleanup(func() { in.Close() })
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}

			t.Cleanup(func() { out.Close() })
			go r.copyBytes(out, in)
			go r.copyBytes(in, out)
		}
	})

	return r, l.Addr().String()
}

func (r *relay) copyBytes(to, from net.Conn) {
	for buffer := make([]byte, 32<<10); ; {
		n, err := from.Read(buffer)
		select {
		case <-r.frozen:
			return
		default:
		}

		if n > 0 {
			// if it fails, the goroutine of the other direction closes "from"
			_, _ = to.Write(buffer[:n])
		}

		if err != nil {
			to.Close()
			return
		}
	}
}
