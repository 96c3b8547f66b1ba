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

// sharedBroker is the broker of all tests except those that start a broker of their own. Each test has queues of its
// own.
var sharedBroker struct {
	sync.Mutex
	broker *realbroker.Broker
	dir    string
	log    processLogs
}

// useSharedBroker returns the shared broker. The first call starts it.
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

// stopSharedBroker ends the shared broker, if a test has started it.
func stopSharedBroker() error {
	sharedBroker.Lock()
	defer sharedBroker.Unlock()
	if sharedBroker.broker == nil {
		return nil
	}
	return errors.Join(sharedBroker.broker.Stop(), os.RemoveAll(sharedBroker.dir))
}

// brokerQueue is a durable queue, and a channel to publish to it with confirms.
type brokerQueue struct {
	t        *testing.T
	name     string
	consumer string // the setting "consumer" of the queue
	upstream string // the setting "upstream" of the queue; "" = none
	ch       *amqp.Channel
}

// declareQueue makes a classic queue with the name of the test and a suffix.
func declareQueue(t *testing.T, b *realbroker.Broker, suffix string) *brokerQueue {
	t.Helper()
	return declareQueueWith(t, b, suffix, nil)
}

// declareQueueWith does the same as declareQueue, and passes arguments to the broker.
func declareQueueWith(t *testing.T, b *realbroker.Broker, suffix string, arguments amqp.Table) *brokerQueue {
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

// reconnect makes a connection with a channel. It is called at first, and after each stop of the broker.
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
	ctx, cancel := context.WithTimeout(q.t.Context(), time.Minute)
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

// waitConfirmed waits for the broker's answer, and reports whether it is a confirmation.
func waitConfirmed(ctx context.Context, c *amqp.DeferredConfirmation) bool {
	isAcked, err := c.WaitContext(ctx)
	return isAcked && err == nil
}

// countReady returns the number of messages in the queue, without those that a consumer has in hand.
func (q *brokerQueue) countReady() int {
	q.t.Helper()
	state, err := q.ch.QueueDeclarePassive(q.name, true, false, false, false, nil)
	if err != nil {
		q.t.Fatal(err)
	}
	return state.Messages
}

// get waits up to a minute for a message in the queue, and takes it.
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

// newArticle returns a version of an article as a message for the broker. keyOf returns its message_id.
func newArticle(path string, version int) amqp.Publishing {
	return amqp.Publishing{ContentType: "application/xml", MessageId: keyOf(path, version),
		Body: []byte(versionedArticle(path, version))}
}

// newArticles returns versions of the articles of all paths. It begins with the version "first" of each path, goes on
// with the next version of each path, and ends with the version "last" of each path.
func newArticles(paths []string, first, last int) []amqp.Publishing {
	var all []amqp.Publishing
	for v := first; v <= last; v++ {
		for _, path := range paths {
			all = append(all, newArticle(path, v))
		}
	}
	return all
}

// declareDeadQueue makes an exchange that has the test's name, and a queue that gets the dead letters of the
// exchange.
func declareDeadQueue(t *testing.T, b *realbroker.Broker) (exchange string, dead *brokerQueue) {
	t.Helper()
	exchange, dead = t.Name(), declareQueue(t, b, "-dead")
	if err := dead.ch.ExchangeDeclare(exchange, "fanout", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := dead.ch.QueueBind(dead.name, "", exchange, false, nil); err != nil {
		t.Fatal(err)
	}
	return exchange, dead
}

// relay passes connections on to an address. After a test has closed the channel "frozen", all connections stay open,
// and the relay passes no byte on.
type relay struct {
	listener net.Listener
	frozen   chan struct{}
}

// startRelay starts a relay, and returns it with its address.
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
			_, _ = to.Write(buffer[:n]) // after an error, the read of the other direction fails, too
		}
		if err != nil {
			to.Close()
			return
		}
	}
}
