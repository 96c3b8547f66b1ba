package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// These environment variables configure the usual consumer, which keeps each message in memory
// until the due time. The usual consumer is another process of this program, so that the demo can
// kill it.
const (
	usualQueue    = "WEIR_DEMO_QUEUE" // only the usual consumer has this variable
	usualBroker   = "WEIR_DEMO_BROKER"
	usualCMS      = "WEIR_DEMO_CMS"
	usualPrefetch = "WEIR_DEMO_PREFETCH"
)

// writesAtOnce limits the usual consumer's concurrent writes to the CMS. Weir has the same limit:
// one write per lane.
const writesAtOnce = lanes

// startUsual starts the usual consumer of c's queue in another process.
func (c *consumer) startUsual() (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return c.demo.startProgram(self, []string{usualQueue + "=" + c.queueName(),
		usualBroker + "=" + c.demo.broker.URL(),
		usualCMS + "=" + c.cmsURL, usualPrefetch + "=" + strconv.Itoa(c.prefetch)})
}

// runAsConsumer returns false if startUsual did not start this process. Otherwise it runs the usual
// consumer until the channel is lost: each delivery waits in memory for its due time, is posted to
// the CMS, and is then acknowledged.
func runAsConsumer(ctx context.Context) (bool, error) {
	queue := os.Getenv(usualQueue)
	if queue == "" {
		return false, nil
	}

	prefetch, err := strconv.Atoi(os.Getenv(usualPrefetch))
	if err != nil {
		return true, err
	}

	conn, err := amqp.Dial(os.Getenv(usualBroker))
	if err != nil {
		return true, err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return true, err
	}

	if err := ch.Qos(prefetch, 0, false); err != nil {
		return true, err
	}

	deliveries, err := ch.ConsumeWithContext(ctx, queue, "", false, false, false, false, nil)
	if err != nil {
		return true, err
	}

	writes := make(chan struct{}, writesAtOnce)
	for delivery := range deliveries {
		// the demo publishes no other type
		seconds, _ := delivery.Headers["perform_job_at"].(float64)
		dueAt := time.UnixMicro(int64(seconds * 1e6))
		time.AfterFunc(time.Until(dueAt), func() {
			writes <- struct{}{}
			defer func() { <-writes }()
			if postDelivery(ctx, &delivery) == nil {
				// if the channel is lost, the broker delivers the message again
				_ = delivery.Ack(false)
			}
		})
	}

	return true, errors.New("the channel was lost")
}

// postDelivery posts a message to the CMS, and ignores the status of the answer.
func postDelivery(ctx context.Context, d *amqp.Delivery) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv(usualCMS),
		bytes.NewReader(d.Body))
	if err != nil {
		return err
	}

	req.Header.Set("Content-Type", d.ContentType)
	req.Header.Set("Idempotency-Key", d.MessageId)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)

	return err
}
