package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"weir/tools/realbroker"
)

// consumedKeys is the number of keys of the published messages. It is larger than the prefetch, so
// that no message waits for an earlier message of its key.
const consumedKeys = 1000

// runConsume measures the rate at which "weir consume" takes messages from a real RabbitMQ. The
// baseline is the rate at which a receiver accepts posts. The lane is paused, so that Weir delivers
// nothing meanwhile.
func runConsume(ctx context.Context, b *bench) (rows []result, err error) {
	dir, err := os.MkdirTemp(b.temp, "broker-")
	if err != nil {
		return nil, err
	}

	broker, err := realbroker.Start(ctx, dir, b.log)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, broker.Stop()) }()
	r, err := b.newRig(ctx, rigOptions{})
	if err != nil {
		return nil, err
	}
	defer r.shutDown()
	n, consumed := b.sizes.consume, throughput{}
	posts, err := measureBetweenPosts(ctx, r, n, consumedKeys, func() (err error) {
		consumed, err = measureConsumer(ctx, r, broker, n)
		return err
	})
	if err != nil {
		return nil, err
	}

	return []result{newRow("consume rate from RabbitMQ, lane paused", "/s", consumed.perSecond()).
		withBaseline(posts.perSecond()).
		withNote("%d messages from a queue, prefetch 100, against as many posts of %d clients", n,
			b.sizes.load.clients)}, nil
}

// measureConsumer publishes n messages, starts "weir consume", and measures the time from the first
// appended message to the last one.
func measureConsumer(ctx context.Context, r *rig, broker *realbroker.Broker,
	n int) (throughput, error) {
	const queue = "bench"
	if err := publishArticles(ctx, broker.URL(), queue, n); err != nil {
		return throughput{}, err
	}

	before, err := r.countFiled(ctx)
	if err != nil {
		return throughput{}, err
	}

	config := filepath.Join(r.temp, r.prefix+"-consume.yaml")
	settings := r.weirYAML() +
		fmt.Sprintf("\nintake: { rabbitmq: { url: %q, queues: [{ name: %s }] } }\n",
			broker.URL(), queue)
	if err := os.WriteFile(config, []byte(settings), 0o600); err != nil {
		return throughput{}, err
	}

	cmd := exec.CommandContext(ctx, filepath.Join(r.app, "handler"), "consume")
	cmd.Env = append(os.Environ(), "AzureWebJobsStorage="+r.storageConnection(),
		"WEIR_PREFIX="+r.prefix, "WEIR_CONFIG="+config, "WEIR_CMS_URL="+r.cmsURL)
	cmd.Stdout, cmd.Stderr = r.log, r.log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Start(); err != nil {
		return throughput{}, err
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // the exit status after the signal does not matter
	}()

	var began time.Time // time of the first check that found an appended message
	var atFirst int64   // number of appended messages at that check
	err = r.awaitCondition(ctx, time.Minute+time.Duration(n)*100*time.Millisecond, "all are filed",
		func() bool {
			filed, err := r.countFiled(ctx)
			if err != nil {
				return false
			}

			if began.IsZero() && filed > before {
				began, atFirst = time.Now(), filed-before
			}

			return filed-before >= int64(n)
		})

	steps := n - int(atFirst)
	if err == nil && (steps <= 0) {
		return throughput{}, fmt.Errorf(
			"the first look found all %d messages filed: too few to measure", n)
	}

	return throughput{steps: steps, spent: time.Since(began)}, err
}

// countFiled returns how many messages were ever appended to lane 0.
func (r *rig) countFiled(ctx context.Context) (int64, error) {
	c, err := r.store.ReadControl(ctx, 0)
	return c.Head.Next - 1, err
}

// publishArticles makes a queue and publishes n messages to the queue. It returns when the broker
// has confirmed all messages.
func publishArticles(ctx context.Context, address, queue string, n int) error {
	conn, err := amqp.Dial(address)
	if err != nil {
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}

	if _, err := ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
		return err
	}

	if err := ch.Confirm(false); err != nil {
		return err
	}

	var confirmations []*amqp.DeferredConfirmation
	for i := range n {
		m := message{fmt.Sprintf("/consume/%d", i%consumedKeys), i/consumedKeys + 1}
		confirmed, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", queue, true, false,
			amqp.Publishing{DeliveryMode: amqp.Persistent, MessageId: fmt.Sprint(i),
				ContentType: "application/xml", Body: []byte(m.articleBody())})
		if err != nil {
			return err
		}

		confirmations = append(confirmations, confirmed)
	}

	for _, c := range confirmations {
		if isAcked, err := c.WaitContext(ctx); err != nil || !isAcked {
			return errors.Join(errors.New("the broker did not confirm a message"), err)
		}
	}

	return nil
}
