package e2e_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"weir/tools/realbroker"

	"weir/internal/testkit/settings"
)

// stageConsumer makes an app folder with settings for weir consume. "more" has further settings of
// intake.rabbitmq.
func (s *system) stageConsumer(b *realbroker.Broker, more string, queues ...*brokerQueue) string {
	s.t.Helper()
	return s.stageConsumerAt(b.URL(), more, queues...)
}

// stageConsumerAt is stageConsumer with a broker at any address.
func (s *system) stageConsumerAt(url, more string, queues ...*brokerQueue) string {
	s.t.Helper()
	return s.stageAppWith(settings.YAML + consumerYAML(url, more, queues...))
}

// consumerYAML returns the section intake.rabbitmq of weir.yaml.
func consumerYAML(url, more string, queues ...*brokerQueue) string {
	settings := fmt.Sprintf("\nintake:\n  rabbitmq:\n    url: %s\n%s    queues:\n", url, more)
	for _, q := range queues {
		settings += fmt.Sprintf(
			"      - { name: %q, contract: article, consumer: %s, upstream: %q }\n", q.name,
			q.consumer, q.upstream)
	}
	return settings
}

// consumerProcess is a process of weir consume.
type consumerProcess struct {
	cmd    *exec.Cmd
	output *processLogs
	ended  chan struct{} // closed when the process has ended
}

// startConsumer starts weir consume with the app's weir.yaml, and adds env to its environment.
func (s *system) startConsumer(app string, env ...string) *consumerProcess {
	s.t.Helper()
	p := &consumerProcess{cmd: exec.Command(filepath.Join(built, "handler"), "consume"),
		output: &processLogs{}, ended: make(chan struct{})}
	settings := "WEIR_CONFIG=" + filepath.Join(app, "weir.yaml")
	p.cmd.Env = slices.Concat(os.Environ(), s.handlerEnv(), []string{settings}, env)
	output := io.MultiWriter(s.output, p.output)
	p.cmd.Stdout, p.cmd.Stderr = output, output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}

	go func() {
		p.cmd.Wait()
		close(p.ended)
	}()

	s.t.Cleanup(func() { p.endProcess(syscall.SIGKILL) })

	return p
}

// endProcess sends a signal, and waits until the process has ended. It kills the process after 20
// s. It returns the exit code; -1 = a signal ended the process.
func (p *consumerProcess) endProcess(signal syscall.Signal) int {
	p.cmd.Process.Signal(signal) // an error means that the process has ended
	timer := time.AfterFunc(slowdown*20*time.Second, func() { p.cmd.Process.Kill() })
	defer timer.Stop()
	<-p.ended
	return p.cmd.ProcessState.ExitCode()
}

func (s *system) awaitConsumer(p *consumerProcess) {
	s.t.Helper()
	s.awaitCondition("the consumer consumes", time.Minute,
		func() bool { return strings.Contains(p.output.String(), `"consume: consuming"`) })
}

// awaitWrites waits until the CMS has the given number of writes. It checks that each message was
// written once, in order per key.
func (s *system) awaitWrites(want int, limit time.Duration) {
	s.t.Helper()
	s.awaitCondition(fmt.Sprintf("%d writes", want), limit,
		func() bool { return s.readStats().Writes >= want })

	if st := s.checkRecord(); st.Writes != want || st.Repeats != 0 {
		s.t.Errorf("got %d writes with %d repeats, want %d without: %+v", st.Writes,
			st.Repeats, want, st)
	}
}

func TestRabbitMQ_KeepsTheOrderOfEachKey(t *testing.T) {
	s := newSystem(t, 1)
	b := useSharedBroker(t)
	q := declareQueue(t, b, "")
	consumer := s.startConsumer(s.stageConsumer(b, "", q))
	q.publish(newArticles([]string{"/a", "/b"}, 1, 60)...)
	s.awaitWrites(120, 2*time.Minute)
	if code := consumer.endProcess(syscall.SIGTERM); code != 0 {
		t.Errorf("got exit code %d, want 0", code)
	}

	if n := q.countReady(); n != 0 {
		t.Errorf("%d messages are in the queue, want 0: each is acknowledged", n)
	}

	if log := s.output.String(); !strings.Contains(log, `"consume: consuming"`) {
		t.Errorf("got the log %s\nwant \"consume: consuming\"", log)
	}
}

// In the middle of a burst, the test kills the consumer of a queue. A second consumer takes over,
// and the test kills it, too. A third consumer takes the remaining messages.
func TestRabbitMQ_ConsumersKilledInABurst(t *testing.T) {
	t.Parallel()
	for name, arguments := range map[string]amqp.Table{
		"Classic":             nil,
		"Quorum":              {"x-queue-type": "quorum"},
		"QuorumSingleActive":  {"x-queue-type": "quorum", "x-single-active-consumer": true},
		"ClassicSingleActive": {"x-single-active-consumer": true},
	} {
		t.Run(name, func(t *testing.T) { killConsumersInABurst(t, arguments) })
	}
}

func killConsumersInABurst(t *testing.T, arguments amqp.Table) {
	const versions = 120
	s := newBareSystemAt(t, time.Millisecond)
	s.app = s.stageApp()
	s.startStagedHost(nil, []string{"--instances", "1"})
	b := useSharedBroker(t)
	q := declareQueueWith(t, b, "", arguments)
	app := s.stageConsumer(b, "    prefetch: 20\n", q)
	paths := []string{"/a", "/b", "/c", "/d"}
	q.publish(newArticles(paths, 1, versions)...)
	first := s.startConsumer(app)
	s.awaitCondition("the first consumer takes messages", time.Minute, func() bool {
		return q.countReady() < len(paths)*versions-50
	})
	second := s.startConsumer(app)
	first.endProcess(syscall.SIGKILL)
	left := q.countReady()
	s.awaitCondition("the second consumer takes messages", time.Minute,
		func() bool { return q.countReady() < left/2 })
	second.endProcess(syscall.SIGKILL)
	if left = q.countReady(); left == 0 {
		t.Error("the queue is empty, want both consumers killed in the burst")
	}

	s.startConsumer(app)
	s.awaitWrites(len(paths)*versions, 3*time.Minute)
}

func TestRabbitMQ_BrokerRestarts(t *testing.T) {
	s := newSystem(t, 1)
	b, err := realbroker.Start(t.Context(), t.TempDir(), s.output)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { b.Stop() })
	q := declareQueue(t, b, "")
	s.startConsumer(s.stageConsumer(b, "    prefetch: 5\n", q))
	paths := []string{"/a", "/b", "/c"}
	q.publish(newArticles(paths, 1, 60)...)
	s.awaitCondition("the CMS has messages", time.Minute,
		func() bool { return s.readStats().Writes > 0 })
	if err := b.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}

	if err := b.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}

	q.reconnect(b)
	if _, err := q.ch.QueueDeclarePassive(q.name, true, false, false, false, nil); err != nil {
		t.Fatalf("the broker has lost the queue: %v", err)
	}

	q.publish(newArticles(paths, 61, 80)...)
	s.awaitWrites(240, 3*time.Minute)
}

func TestRabbitMQ_StorageAway(t *testing.T) {
	s := newSystemOnOwnStorage(t, 1)
	b := useSharedBroker(t)
	q := declareQueue(t, b, "")
	consumer := s.startConsumer(s.stageConsumer(b, "    prefetch: 10\n", q))
	paths := []string{"/a", "/b", "/c"}
	q.publish(newArticles(paths, 1, 10)...)
	s.awaitCondition("the CMS has messages", time.Minute,
		func() bool { return s.readStats().Writes > 0 })
	if err := s.storage.Stop(); err != nil {
		t.Fatal(err)
	}

	q.publish(newArticles(paths, 11, 30)...)
	s.awaitCondition("the consumer notices", time.Minute,
		func() bool { return strings.Contains(s.output.String(), `"consume: not filed yet"`) })

	if n := q.countReady(); n < 50 {
		t.Errorf("%d messages are in the queue, want 50 and more: the consumer takes 10 at a time",
			n)
	}

	s.storage.restart(t)

	// The CMS gets a message twice if storage stopped between the delivery and its commit.
	s.awaitCondition("90 messages are written", 3*time.Minute, func() bool {
		st := s.readStats()
		return st.Writes-st.Repeats >= 90
	})

	if st := s.checkRecord(); st.Writes-st.Repeats != 90 {
		t.Errorf("got %+v, want 90 messages, each once", st)
	}

	if code := consumer.endProcess(syscall.SIGTERM); code != 0 || q.countReady() != 0 {
		t.Errorf("got exit code %d and %d messages in the queue, want 0 and 0", code,
			q.countReady())
	}
}

// A broker that is short of memory accepts acknowledgements, but no dead letter. The consumer still
// takes all valid messages, which are more than its prefetch (5). When the broker has memory again,
// it gets the dead letter once.
func TestRabbitMQ_BrokerBlocksPublishers(t *testing.T) {
	s := newSystem(t, 1)

	// not shared: a memory alarm stops all queues
	b, err := realbroker.Start(t.Context(), t.TempDir(), s.output)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { b.Stop() })
	q := declareQueue(t, b, "")
	exchange, dead := declareDeadQueue(t, b)
	invalid := newArticle("/a", 1)
	invalid.Body = []byte(`<article path="/a" version="1"/>`)
	q.publish(append([]amqp.Publishing{invalid}, newArticles([]string{"/b", "/c"}, 1, 30)...)...)
	setMemory := func(share float64) {
		if err := b.LimitMemory(t.Context(), share); err != nil {
			t.Fatal(err)
		}
	}

	setMemory(0)
	s.startConsumer(s.stageConsumer(b,
		"    prefetch: 5\n    deadLetterExchange: "+exchange+"\n", q))
	s.awaitWrites(60, time.Minute)
	setMemory(0.4)
	if d := dead.get(s); d.MessageId != invalid.MessageId {
		t.Errorf("got the dead letter %q, want %q", d.MessageId, invalid.MessageId)
	}

	s.awaitCondition("the queue is empty", time.Minute, func() bool { return q.countReady() == 0 })
	if n := dead.countReady(); n != 0 {
		t.Errorf("got %d further dead letters, want none", n)
	}
}

// The connections to the broker stay open, but transfer nothing any more. The consumer still ends
// within 10 s after SIGTERM.
func TestRabbitMQ_StopsWithoutTheBroker(t *testing.T) {
	s := newSystem(t, 1)
	b := useSharedBroker(t)
	q := declareQueue(t, b, "")
	r, address := startRelay(t, b.Address())
	app := s.stageConsumer(b, "", q)
	settings := filepath.Join(app, "weir.yaml")
	if err := os.WriteFile(settings,
		[]byte(strings.ReplaceAll(readFile(t, settings), b.Address(), address)),
		0o600); err != nil {
		t.Fatal(err)
	}

	consumer := s.startConsumer(app)
	q.publish(newArticles([]string{"/a"}, 1, 3)...)
	s.awaitWrites(3, time.Minute)
	close(r.frozen)
	began := time.Now()
	code, took := consumer.endProcess(syscall.SIGTERM), time.Since(began)
	if code != 0 || took > slowdown*10*time.Second {
		t.Errorf("got exit code %d after %s, want 0 within 10s on a quiet machine", code, took)
	}
}

func TestRabbitMQ_InvalidMessagesAreDeadLetters(t *testing.T) {
	s := newSystem(t, 1)
	b := useSharedBroker(t)
	q := declareQueue(t, b, "")
	exchange, dead := declareDeadQueue(t, b)
	s.startConsumer(s.stageConsumer(b, "    deadLetterExchange: "+exchange+"\n", q))
	noTitle := newArticle("/a", 1)
	noTitle.Body, noTitle.Headers = []byte(`<article path="/a" version="1"/>`),
		amqp.Table{"sender": "cms"}
	reused := newArticle("/a", 3)
	reused.MessageId = keyOf("/a", 2)
	noID, dueText, otherContract := newArticle("/a", 4), newArticle("/a", 5), newArticle("/a", 6)
	noID.MessageId = ""
	dueText.Headers = amqp.Table{"perform_job_at": "tomorrow"}
	otherContract.Body = []byte(`<delete path="/a"/>`)
	for _, c := range []struct {
		bad  amqp.Publishing
		want string
	}{
		{noTitle, `"path":"./title"`}, {noID, "message_id is missing"},
		{dueText, "number of seconds since 1970"},
		{otherContract, "takes messages of the contract article"},
	} {
		q.publish(c.bad)
		d := dead.get(s)
		if problems := fmt.Sprint(d.Headers["x-weir-problems"]); !strings.Contains(problems, c.want) ||
			d.Headers["x-weir-queue"] != q.name || string(d.Body) != string(c.bad.Body) ||
			d.MessageId != c.bad.MessageId || c.bad.Headers["sender"] != d.Headers["sender"] {
			t.Errorf("got the dead letter %q of %q with %v, want %q in its problems", d.MessageId,
				d.Body, d.Headers, c.want)
		}
	}

	q.publish(newArticle("/a", 2), reused)

	if d := dead.get(s); d.MessageId != reused.MessageId || string(d.Body) != string(reused.Body) {
		t.Errorf("got the dead letter %q of %q, want the second one with its message_id",
			d.MessageId, d.Body)
	}

	s.awaitWrites(1, time.Minute)
	if n := q.countReady(); n != 0 {
		t.Errorf("%d messages are in the queue, want 0", n)
	}
}

// The consumer takes a message from the queue even if the message is not due yet. Such a message
// does not delay other messages.
func TestRabbitMQ_DueTimes(t *testing.T) {
	s := newSystem(t, 1)
	b := useSharedBroker(t)
	q := declareQueue(t, b, "")
	consumer := s.startConsumer(s.stageConsumer(b, "    prefetch: 1\n", q))
	dueAt := time.Now().Add(20 * time.Second)
	bySeconds, byHeader := newArticle("/due/1", 1), newArticle("/due/2", 1)
	bySeconds.Headers = amqp.Table{"perform_job_at": float64(dueAt.UnixMicro()) / 1e6}
	byHeader.Headers = amqp.Table{"Weir-Deliver-At": dueAt.Format(time.RFC3339Nano)}
	q.publish(bySeconds, byHeader, newArticle("/now", 1))
	s.awaitCondition("the third message is written", time.Minute,
		func() bool { return s.readStats().Writes >= 1 })

	if code := consumer.endProcess(syscall.SIGTERM); code != 0 || q.countReady() != 0 {
		t.Errorf("got exit code %d and %d messages in the queue, want 0 and 0", code,
			q.countReady())
	}

	s.awaitWrites(3, time.Minute)

	for _, r := range s.readRequests() {
		if r.Path != "/now" && r.StartedAt.Before(dueAt.Add(-time.Millisecond)) {
			t.Errorf("%s was written at %s, want it at %s or later", r.Path, r.StartedAt, dueAt)
		}
	}
}
