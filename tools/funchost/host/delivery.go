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

// delivery is one dequeued message that the host passes to a function.
type delivery struct {
	*queueListener
	message *azqueue.DequeuedMessage

	mu         sync.Mutex
	popReceipt string // receipt of the dequeue, or of the last renewal
}

// processMessage calls the function with the message. The message's lease is the time for which the
// queue hides the message.
//
//   - After a success, processMessage deletes the message.
//   - After a failure, processMessage releases the message. But if the message was dequeued
//     maxDequeueCount times, processMessage moves the message to the poison queue.
//   - If the instance ends during the call, the message stays hidden until the message's lease
//     ends.
//
// A message goes to the poison queue without a call if it was dequeued more than maxDequeueCount
// times, or if the app expects base64 and the text is not base64.
func (d *delivery) processMessage() {
	if *d.message.DequeueCount > int64(d.options.maxDequeueCount) {
		d.moveToPoison("it was dequeued too often")
		return
	}

	text := *d.message.MessageText
	if d.options.base64 {
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			d.moveToPoison("it is not base64")
			return
		}
		text = string(raw)
	}

	err := d.callFunction(text)
	switch {
	case d.instance.lifetime.Err() != nil:
	case err == nil:
		d.logFailure("delete message", d.deleteMessage())
	case *d.message.DequeueCount >= int64(d.options.maxDequeueCount):
		d.moveToPoison("it failed too often")
	default:
		d.logFailure("release message", d.releaseMessage())
	}
}

// callFunction calls the function, and keeps the message hidden during the call.
func (d *delivery) callFunction(text string) error {
	ctx, cancel := context.WithCancel(d.instance.lifetime)
	var renewing sync.WaitGroup
	renewing.Go(func() { d.keepHidden(ctx) })
	defer renewing.Wait()
	defer cancel()
	id := newGUID()
	d.host.console.logEvent(categoryOf(d.function.name), levelInformation,
		"Trigger Details: MessageId: %s, DequeueCount: %d, InsertedOn: %s",
		*d.message.MessageID, *d.message.DequeueCount,
		d.message.InsertionTime.Format("2006-01-02T15:04:05.000-07:00"))

	_, err := caller{d.instance}.invokeFunction(id, d.function,
		queuePayload(d.function, queueMessage{
			id: *d.message.MessageID, popReceipt: *d.message.PopReceipt, text: text,
			dequeueCount: *d.message.DequeueCount,
			inserted:     d.message.InsertionTime, expires: d.message.ExpirationTime,
			nextVisible: d.message.TimeNextVisible,
		}, d.host.console.now()))

	return err
}

// keepHidden renews the message's lease each time half of the lease has passed. It returns when ctx
// ends or the message is lost (see isLost).
func (d *delivery) keepHidden(ctx context.Context) {
	for sleepFor(ctx, d.host.cfg.MessageLease/2) {
		err := d.hideFor(ctx, d.host.cfg.MessageLease)
		if ctx.Err() != nil {
			return
		}

		if err != nil {
			d.logFailure("renew message", err)
			if isLost(err) {
				return
			}
		}
	}
}

// hideFor hides the message for "span" from now on. It also stores the new pop receipt, which the
// next update or delete of the message needs.
func (d *delivery) hideFor(ctx context.Context, span time.Duration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	seconds := int32(span / time.Second)
	res, err := d.queue.UpdateMessage(ctx, *d.message.MessageID, d.popReceipt,
		*d.message.MessageText, &azqueue.UpdateMessageOptions{VisibilityTimeout: &seconds})
	if err != nil {
		return err
	}

	if res.PopReceipt != nil {
		d.popReceipt = *res.PopReceipt
	}

	return nil
}

func (d *delivery) releaseMessage() error {
	return d.hideFor(d.instance.lifetime, d.options.visibilityTimeout)
}

func (d *delivery) deleteMessage() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, err := d.queue.DeleteMessage(d.instance.lifetime, *d.message.MessageID, d.popReceipt, nil)
	return err
}

// moveToPoison moves the message's body to the poison queue. If the queue can have no poison queue,
// because it is a poison queue itself or its name is too long, the message stays hidden until the
// message's lease ends.
func (d *delivery) moveToPoison(reason string) {
	if d.poison == nil {
		return
	}

	d.host.console.logEvent(categoryPoison, levelWarning,
		"Message of queue '%s' moved to '%s-poison': %s.",
		d.function.trigger.queue, d.function.trigger.queue, reason)
	err := d.sendToPoison()
	if err == nil {
		d.instance.wakeListeners(d.function.trigger.queue+"-poison", d.function.trigger.connection)
		err = d.deleteMessage()
	}

	d.logFailure("move message to poison queue", err)
}

func (d *delivery) sendToPoison() error {
	ctx, text := d.instance.lifetime, *d.message.MessageText
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

// logFailure logs the error of a storage request. It does not log the loss of the message, because
// another host can have dequeued the message in the meantime.
func (d *delivery) logFailure(step string, err error) {
	if err != nil && !isLost(err) && d.instance.lifetime.Err() == nil {
		d.host.console.logOwn("Queue '%s': %s: %s", d.function.trigger.queue, step, firstLine(err))
	}
}

// isLost reports whether err means that the message was deleted, or that another host has dequeued
// it.
func isLost(err error) bool {
	return hasStatus(err, http.StatusNotFound) || hasStatus(err, http.StatusConflict) ||
		hasCode(err, "PopReceiptMismatch")
}

func hasStatus(err error, status int) bool {
	var res *azcore.ResponseError
	return errors.As(err, &res) && res.StatusCode == status
}

func hasCode(err error, code string) bool {
	var res *azcore.ResponseError
	return errors.As(err, &res) && res.ErrorCode == code
}
