package host

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
)

// delivery is one dequeued message on its way through the function.
type delivery struct {
	*listener
	message *azqueue.DequeuedMessage

	lock    sync.Mutex
	receipt string // of the last renewal
}

// run calls the function and settles the message. When the instance crashes nothing is settled: the
// message comes back when its lease ends.
func (d *delivery) run() {
	if *d.message.DequeueCount > int64(d.options.maxDequeueCount) {
		d.giveUp("it was dequeued too often")
		return
	}
	text := *d.message.MessageText
	if d.options.base64 {
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			d.giveUp("it is not base64")
			return
		}
		text = string(raw)
	}
	err := d.call(text)
	switch {
	case d.instance.life.Err() != nil:
	case err == nil:
		d.settled("delete message", d.remove())
	case *d.message.DequeueCount >= int64(d.options.maxDequeueCount):
		d.giveUp("it failed too often")
	default:
		d.settled("release message", d.release())
	}
}

// call runs the function while the message is renewed.
func (d *delivery) call(text string) error {
	ctx, cancel := context.WithCancel(d.instance.life)
	var renewing sync.WaitGroup
	renewing.Go(func() { d.renew(ctx) })
	defer renewing.Wait()
	defer cancel()
	id := newGUID()
	d.host.console.event(categoryOf(d.function.name), levelInformation, "Trigger Details: MessageId: %s, DequeueCount: %d, InsertedOn: %s",
		*d.message.MessageID, *d.message.DequeueCount, d.message.InsertionTime.Format("2006-01-02T15:04:05.000-07:00"))
	_, err := d.instance.invoke(id, d.function, queuePayload(d.function, queueMessage{
		id: *d.message.MessageID, popReceipt: *d.message.PopReceipt, text: text, dequeueCount: *d.message.DequeueCount,
		inserted: d.message.InsertionTime, expires: d.message.ExpirationTime, nextVisible: d.message.TimeNextVisible,
	}, d.host.console.now()))
	return err
}

// renew hides the message anew at half of each lease.
func (d *delivery) renew(ctx context.Context) {
	for pause(ctx, d.host.cfg.MessageLease/2) {
		err := d.hide(ctx, d.host.cfg.MessageLease)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			d.settled("renew message", err)
			if isLost(err) {
				return
			}
		}
	}
}

// hide sets when the message becomes visible. Each time it gets a new receipt.
func (d *delivery) hide(ctx context.Context, span time.Duration) error {
	d.lock.Lock()
	defer d.lock.Unlock()
	seconds := int32(span / time.Second)
	res, err := d.queue.UpdateMessage(ctx, *d.message.MessageID, d.receipt, *d.message.MessageText,
		&azqueue.UpdateMessageOptions{VisibilityTimeout: &seconds})
	if err != nil {
		return err
	}
	if res.PopReceipt != nil {
		d.receipt = *res.PopReceipt
	}
	return nil
}

func (d *delivery) release() error { return d.hide(d.instance.life, d.options.visibilityTimeout) }

func (d *delivery) remove() error {
	d.lock.Lock()
	defer d.lock.Unlock()
	_, err := d.queue.DeleteMessage(d.instance.life, *d.message.MessageID, d.receipt, nil)
	return err
}

// giveUp moves the message to the poison queue: its body only. Where there can be none, it is
// left hidden until its lease ends.
func (d *delivery) giveUp(reason string) {
	if d.poison == nil {
		return
	}
	d.host.console.event(categoryPoison, levelWarning, "Message of queue '%s' moved to '%s-poison': %s.", d.function.trigger.queue, d.function.trigger.queue, reason)
	err := d.bury()
	if err == nil {
		d.instance.wake(d.function.trigger.queue+"-poison", d.function.trigger.connection)
		err = d.remove()
	}
	d.settled("move message to poison queue", err)
}

func (d *delivery) bury() error {
	ctx, text := d.instance.life, *d.message.MessageText
	_, err := d.poison.EnqueueMessage(ctx, text, nil)
	if !hasStatus(err, http.StatusNotFound) {
		return err
	}
	if _, err := d.poison.Create(ctx, nil); err != nil && !hasStatus(err, http.StatusConflict) {
		return err
	}
	_, err = d.poison.EnqueueMessage(ctx, text, nil)
	return err
}

// settled logs an error with the queue. One that says another has the message is normal.
func (d *delivery) settled(step string, err error) {
	if err != nil && !isLost(err) && d.instance.life.Err() == nil {
		d.host.console.log("Queue '%s': %s: %s", d.function.trigger.queue, step, firstLine(err))
	}
}

// isLost says that the message is gone or in other hands.
func isLost(err error) bool {
	return hasStatus(err, http.StatusNotFound) || hasStatus(err, http.StatusConflict) || hasCode(err, "PopReceiptMismatch")
}

func hasStatus(err error, status int) bool {
	var res *azcore.ResponseError
	return errors.As(err, &res) && res.StatusCode == status
}

func hasCode(err error, code string) bool {
	var res *azcore.ResponseError
	return errors.As(err, &res) && res.ErrorCode == code
}
