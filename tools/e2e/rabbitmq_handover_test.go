package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"weir/internal/lane/epochs"
	"weir/tools/delay"
)

// A consumer with slow storage stops while it has unacknowledged messages. The next consumer must
// not append a key's later messages before the earlier ones.
func TestRabbitMQ_StopKeepsTheOrder(t *testing.T) {
	s := newSystem(t, 1)
	slow, err := delay.Start(context.WithoutCancel(t.Context()),
		delay.Config{Target: s.storage.ConnectionString(), Median: 700 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { slow.Close() })
	b := useSharedBroker(t)
	q := declareQueueWith(t, b, "",
		amqp.Table{"x-queue-type": "quorum", "x-single-active-consumer": true})
	app := s.stageConsumer(b, "    prefetch: 10\n", q)
	first := s.startConsumer(app,
		"AzureWebJobsStorage="+slow.ConnectionString(s.storage.ConnectionString()))
	s.awaitConsumer(first)
	q.publish(newArticles([]string{"/a"}, 1, 40)...)
	s.awaitCondition("the first consumer has messages", time.Minute,
		func() bool { return q.countReady() <= 30 })
	second := s.startConsumer(app)
	s.awaitConsumer(second)
	if code := first.endProcess(syscall.SIGTERM); code != 0 {
		t.Errorf("got exit code %d of the first consumer, want 0", code)
	}

	s.awaitWrites(40, 2*time.Minute)
}

// The number of lanes changes while a consumer works on a burst. The consumer exits, and the test
// starts a new one, as a supervisor would.
func TestRabbitMQ_NumberOfLanesChanges(t *testing.T) {
	const versions = 120
	s := newBareSystemAt(t, time.Millisecond)
	b := useSharedBroker(t)
	q := declareQueue(t, b, "")
	s.app = s.stageConsumer(b, "    prefetch: 10\n", q)
	s.startStagedHost(nil, []string{"--instances", "1"})
	paths := []string{"/a", "/b", "/c", "/d"}
	q.publish(newArticles(paths, 1, versions)...)
	p := s.startConsumer(s.app)
	s.awaitCondition("the consumer takes messages", time.Minute, func() bool {
		return q.countReady() < len(paths)*versions-50
	})
	s.changeLanes(epochs.Epoch{Lanes: 1}, epochs.Epoch{Lanes: 3})
	if left := q.countReady(); left == 0 {
		t.Error("the queue is empty, want the number changed in the burst")
	}

	select {
	case <-p.ended:
	case <-time.After(slowdown * 2 * time.Minute):
		t.Fatalf("the consumer runs on, want it to end: %s", p.output.String())
	}

	if code := p.cmd.ProcessState.ExitCode(); code != 200 {
		t.Errorf("got exit code %d, want 200", code)
	}

	last := s.startConsumer(s.app)
	want := len(paths) * versions
	s.awaitCondition(fmt.Sprintf("%d writes", want), 3*time.Minute,
		func() bool { return s.readStats().Writes >= want })

	// The counter Overtaken compares sequence numbers, which begin anew after the change. So the
	// test checks the counter Inversions instead, which compares versions.
	if st := s.readStats(); st.Writes != want || st.Repeats+st.Overlaps+st.Inversions != 0 {
		t.Errorf("got %+v, want %d writes, each once and in the order of its key", st, want)
	}

	if code := last.endProcess(syscall.SIGTERM); code != 0 || q.countReady() != 0 {
		t.Errorf("got exit code %d and %d messages in the queue, want 0 and 0", code,
			q.countReady())
	}

	if log := p.output.String(); !strings.Contains(log, "number of lanes") {
		t.Errorf("got the log %s\nwant the reason: \"number of lanes\"", log)
	}
}
