package e2e_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// A consumer stands still in the middle of a burst, as on a suspended machine, until the broker has
// given its messages to a second consumer. Then it goes on, beside the second one. No message is
// lost, written twice, or overtaken by a later one of its key; and the first consumer takes part
// again when the second one ends.
func TestRabbitMQ_ConsumerFrozenInABurst(t *testing.T) {
	const versions = 250
	s := newBareSystemAt(t, time.Millisecond)
	s.app = s.stageApp()
	s.startStagedHost(nil, []string{"--instances", "1"})
	b := useSharedBroker(t)
	q := declareQueueWith(t, b, "",
		amqp.Table{"x-queue-type": "quorum", "x-single-active-consumer": true})

	app := s.stageConsumer(b, "    prefetch: 20\n", q)
	paths := []string{"/a", "/b", "/c", "/d"}
	want := len(paths) * versions
	q.publish(newArticles(paths, 1, versions)...)
	first := s.startConsumer(app)
	s.awaitCondition("the first consumer takes messages", time.Minute,
		func() bool { return q.countReady() < want-50 })
	if err := first.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = first.cmd.Process.Signal(syscall.SIGCONT) })
	left := q.countReady()
	if left == 0 {
		t.Fatal("the queue is empty, want the consumer frozen in the burst")
	}

	second := s.startConsumer(app)
	// The broker takes a consumer for gone after three heartbeats at the latest, which are 30 s.
	s.awaitCondition("the second consumer takes messages", 2*time.Minute,
		func() bool { return q.countReady() < left/2 })
	if err := first.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}

	s.awaitWrites(want, 3*time.Minute)
	s.awaitCondition("the first consumer connects again", time.Minute, func() bool {
		return strings.Count(first.output.String(), `"consume: connected"`) > 1
	})

	if code := second.endProcess(syscall.SIGTERM); code != 0 {
		t.Errorf("got exit code %d of the second consumer, want 0", code)
	}

	q.publish(newArticles(paths, versions+1, versions+5)...)
	s.awaitWrites(want+5*len(paths), 2*time.Minute)

	if n := q.countReady(); n != 0 {
		t.Errorf("%d messages are in the queue, want 0: each is acknowledged", n)
	}
}
