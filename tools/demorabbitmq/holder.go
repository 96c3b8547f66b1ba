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

// The environment of the usual consumer. That consumer is this program again, as a process that can be killed.
const (
	usualQueue    = "WEIR_DEMO_QUEUE" // set = this process is the usual consumer
	usualBroker   = "WEIR_DEMO_BROKER"
	usualCMS      = "WEIR_DEMO_CMS"
	usualPrefetch = "WEIR_DEMO_PREFETCH"
)

// writesAtOnce is the number of writes to the CMS that the usual consumer makes at a time: as many as Weir has lanes.
const writesAtOnce = lanes

// startUsual starts a process that runs the usual consumer of c's queue.
func (c *consumer) startUsual() (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return c.demo.startProgram(self, []string{usualQueue + "=" + c.queueName(),
		usualBroker + "=" + c.demo.broker.URL(),
		usualCMS + "=" + c.cmsURL, usualPrefetch + "=" + strconv.Itoa(c.prefetch)})
}

// runAsConsumer runs the usual consumer if this process was started as one, and reports whether it was. Each delivery
// waits in memory for its due time, is posted to the CMS, and then acknowledged.
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
		seconds, _ := delivery.Headers["perform_job_at"].(float64) // the demo publishes no other type
		dueAt := time.UnixMicro(int64(seconds * 1e6))
		time.AfterFunc(time.Until(dueAt), func() {
			writes <- struct{}{}
			defer func() { <-writes }()
			if postDelivery(ctx, &delivery) == nil {
				_ = delivery.Ack(false) // fails if the channel is lost; then the message is delivered again
			}
		})
	}
	return true, errors.New("the channel was lost")
}

// postDelivery posts a message to the CMS. It does not look at the status of the answer.
func postDelivery(ctx context.Context, d *amqp.Delivery) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv(usualCMS), bytes.NewReader(d.Body))
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
