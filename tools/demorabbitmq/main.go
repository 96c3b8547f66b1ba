// Command demorabbitmq compares consumers of messages with due times, on a real RabbitMQ. The usual
// consumer keeps each delivery in memory until it is due. The command "weir consume" instead
// appends each delivery to Weir's log at once. All consumers run at the same time, each with its
// own queue and CMS, and each is killed twice. The table shows how late the messages reach the CMS.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"golang.org/x/sync/errgroup"

	"weir/internal/democms"
	"weir/tools/realbroker"
)

// logPath is the file with the output of all processes.
const logPath = "build/demo-rabbitmq.log"

// demo has the data that all consumers share.
type demo struct {
	messages int
	// lead: from the start to the first due time; span: from the first due time to the last
	lead, span time.Duration
	firstDueAt time.Time
	dueAt      map[string]time.Time // due time of each message, by path
	out        io.Writer
	log        *os.File
	dir        string
	broker     *realbroker.Broker
}

// consumer is one of the compared consumers. It has one row in the table.
type consumer struct {
	name     string
	isWeir   bool
	prefetch int // prefetch limit of the usual consumer; 0 = no limit

	demo   *demo
	cms    *democms.Server
	cmsURL string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	if isConsumer, err := runAsConsumer(ctx); isConsumer {
		if err != nil {
			fmt.Fprintln(os.Stderr, "consumer:", err)
			os.Exit(1)
		}
		return
	}

	d := demo{out: os.Stdout}
	flag.IntVar(&d.messages, "messages", 10_000, "messages with due times")
	flag.DurationVar(&d.lead, "lead", 2*time.Minute, "from the start to the first due time")
	flag.DurationVar(&d.span, "span", 8*time.Minute, "from the first due time to the last")
	flag.Parse()

	if err := d.compareConsumers(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "make demo-rabbitmq: %v (the processes' output: %s)\n", err, logPath)
		os.Exit(1)
	}
}

func (d *demo) compareConsumers(ctx context.Context) (err error) {
	if d.messages < 1 || d.span <= 0 {
		return errors.New("-messages and -span must be above 0")
	}

	if d.log, err = os.Create(logPath); err != nil {
		return err
	}
	defer d.log.Close()
	if d.dir, err = os.MkdirTemp("", "weir-demo-rabbitmq-"); err != nil {
		return err
	}
	defer os.RemoveAll(d.dir)
	if d.broker, err = realbroker.Start(ctx, d.dir, d.log); err != nil {
		return err
	}
	defer d.broker.Stop()
	d.chooseDueTimes()
	fmt.Fprintf(d.out, "%d messages for each consumer, due from %s to %s …\n", d.messages,
		d.firstDueAt.Format(time.TimeOnly), d.firstDueAt.Add(d.span).Format(time.TimeOnly))
	consumers := []*consumer{{name: "holds deliveries, prefetch 1000", prefetch: 1000},
		{name: "holds deliveries, no prefetch limit"}, {name: "weir consume", isWeir: true}}
	rows := make([]string, len(consumers))
	group, measuring := errgroup.WithContext(ctx)
	for i, c := range consumers {
		c.demo = d
		group.Go(func() (err error) {
			if rows[i], err = c.measureDeliveries(measuring); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			return nil
		})
	}

	if err := group.Wait(); err != nil {
		return err
	}

	table := tabwriter.NewWriter(d.out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "consumer\twritten\twritten twice\tearly\tup to 1 s late\tlater\tmedian\t99 %\tlatest")
	fmt.Fprintln(table, strings.Join(rows, "\n"))

	return table.Flush()
}

// chooseDueTimes chooses a random due time for each message. All consumers get the same due times.
func (d *demo) chooseDueTimes() {
	d.firstDueAt, d.dueAt = time.Now().Add(d.lead), map[string]time.Time{}
	for i := range d.messages {
		d.dueAt[fmt.Sprintf("/m/%d", i)] =
			d.firstDueAt.Add(rand.N(d.span)).Truncate(time.Microsecond)
	}
}

// measureDeliveries publishes the messages, runs a consumer, and returns the consumer's row of the
// table. It kills the consumer three seconds after the start, when the consumer takes its first
// deliveries, and again in the middle of the due times. A second after each kill it restarts the
// consumer, as a supervisor would.
func (c *consumer) measureDeliveries(ctx context.Context) (string, error) {
	stopCMS, err := c.startCMS()
	if err != nil {
		return "", err
	}
	defer stopCMS()
	ch, err := c.publishAll(ctx)
	if err != nil {
		return "", err
	}

	start := c.startUsual
	if c.isWeir {
		w, err := c.startWeir(ctx)
		if err != nil {
			return "", err
		}
		defer w.stop()
		start = w.startConsumer
	}

	worker, err := start()
	if err != nil {
		return "", err
	}
	defer func() { _ = killWorker(worker) }() // an error means that the consumer has already ended
	killAndStart := func(at time.Time) error {
		if err := sleepUntil(ctx, at); err != nil {
			return err
		}

		if err := killWorker(worker); err != nil {
			return err
		}

		if err := sleepUntil(ctx, time.Now().Add(time.Second)); err != nil {
			return err
		}

		worker, err = start()

		return err
	}
	if err := killAndStart(time.Now().Add(3 * time.Second)); err != nil {
		return "", err
	}

	if err := sleepUntil(ctx, c.demo.firstDueAt); err != nil {
		return "", err
	}

	if c.isWeir {
		if err := c.warnOfUnfiled(ch); err != nil {
			return "", err
		}
	}

	if err := killAndStart(c.demo.firstDueAt.Add(c.demo.span / 2)); err != nil {
		return "", err
	}

	return c.name + "\t" + c.awaitRequests(ctx), ctx.Err()
}

// startCMS starts a CMS that answers in a millisecond. The caller must call stop.
func (c *consumer) startCMS() (stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}

	c.cms, c.cmsURL = democms.New(time.Millisecond, 0),
		"http://"+listener.Addr().String()+"/api/content"
	site := &http.Server{Handler: c.cms, ReadHeaderTimeout: time.Minute}
	go site.Serve(listener) // returns after site.Close

	return func() { site.Close() }, nil
}

func (c *consumer) queueName() string { return "demo-" + c.name }

// publishAll publishes the messages to a new queue. When ctx ends, the returned channel closes.
func (c *consumer) publishAll(ctx context.Context) (*amqp.Channel, error) {
	conn, err := amqp.Dial(c.demo.broker.URL())
	if err != nil {
		return nil, err
	}

	context.AfterFunc(ctx, func() { conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}

	if _, err := ch.QueueDeclare(c.queueName(), true, false, false, false, nil); err != nil {
		return nil, err
	}

	if err := ch.Confirm(false); err != nil {
		return nil, err
	}

	var confirmations []*amqp.DeferredConfirmation
	for i := range c.demo.messages {
		path := fmt.Sprintf("/m/%d", i)
		m := amqp.Publishing{DeliveryMode: amqp.Persistent, MessageId: path,
			ContentType: "application/xml",
			Headers: amqp.Table{
				"perform_job_at": float64(c.demo.dueAt[path].UnixMicro()) / 1e6},
			Body: fmt.Appendf(nil,
				`<article path="%s" version="1"><title>Due</title></article>`, path)}

		confirmed, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", c.queueName(),
			true, false, m)
		if err != nil {
			return nil, err
		}

		confirmations = append(confirmations, confirmed)
	}

	for _, confirmed := range confirmations {
		if isAcked, err := confirmed.WaitContext(ctx); err != nil || !isAcked {
			return nil, errors.Join(errors.New("the broker did not confirm a message"), err)
		}
	}

	return ch, nil
}

// warnOfUnfiled prints a warning if Weir has not yet taken all messages from the queue. Weir may
// then deliver the remaining messages late.
func (c *consumer) warnOfUnfiled(ch *amqp.Channel) error {
	state, err := ch.QueueDeclarePassive(c.queueName(), true, false, false, false, nil)
	if err == nil && state.Messages > 0 {
		fmt.Fprintf(c.demo.out,
			"%s: %d messages are still in the queue at the first due time; set a longer -lead\n",
			c.name, state.Messages)
	}
	return err
}

// awaitRequests waits until the CMS has received each message, but no longer than five minutes
// after the last due time. It returns the consumer's figures as columns of the table.
func (c *consumer) awaitRequests(ctx context.Context) string {
	giveUpAt := c.demo.firstDueAt.Add(c.demo.span + 5*time.Minute)
	lateBy := map[string]time.Duration{}
	twice := 0
	for {
		clear(lateBy)
		twice = 0
		for _, r := range c.cms.Requests() {
			if _, isRepeat := lateBy[r.Path]; isRepeat {
				twice++
				continue
			}
			lateBy[r.Path] = r.StartedAt.Sub(c.demo.dueAt[r.Path])
		}

		isOver := len(lateBy) == c.demo.messages || time.Now().After(giveUpAt)
		if isOver || sleepUntil(ctx, time.Now().Add(time.Second)) != nil {
			break
		}
	}

	late := slices.Sorted(slices.Values(mapValues(lateBy)))
	if len(late) == 0 {
		return "0\t0\t\t\t\t\t\t"
	}

	// The header perform_job_at is a float64 of seconds, with a rounding error below a microsecond.
	// So a message that arrives a millisecond early was sent early.
	early, _ := slices.BinarySearch(late, -time.Millisecond)
	onTime, _ := slices.BinarySearch(late, time.Second)
	quantile := func(q float64) time.Duration {
		return late[int(q*float64(len(late)-1))].Round(time.Millisecond)
	}

	return fmt.Sprintf("%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s", len(late), twice, early, onTime-early,
		len(late)-onTime, quantile(0.5), quantile(0.99), quantile(1))
}

func mapValues[V any](m map[string]V) []V {
	values := make([]V, 0, len(m))
	for _, v := range m {
		values = append(values, v)
	}
	return values
}

// sleepUntil returns the error of ctx if ctx ends before the given time.
func sleepUntil(ctx context.Context, at time.Time) error {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()

	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// startProgram starts a program that writes its output to d.log. The kernel kills the program if
// this process dies.
func (d *demo) startProgram(path string, env []string, args ...string) (*exec.Cmd, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}

	cmd := exec.Command(absolute, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = d.log, d.log

	// With its own process group the child does not get Ctrl-C from the terminal. So this process
	// can stop the child gracefully.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}

	return cmd, cmd.Start()
}

// killWorker kills a process, and waits until the process has ended.
func killWorker(cmd *exec.Cmd) error {
	if cmd == nil || cmd.Process == nil {
		return nil // it was not started
	}

	if err := cmd.Process.Kill(); err != nil {
		return err
	}

	_ = cmd.Wait() // returns an error, because the process was killed
	return nil
}
