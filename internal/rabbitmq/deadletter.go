package rabbitmq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"weir/internal/weir"
)

// The headers of a dead letter. They begin with x-, because a delivery with an unknown Weir-… header is invalid, and
// a dead letter may be published to its queue again.
const (
	errorHeader     = "x-weir-error"      // the sentence that the answer to a post would have
	problemsHeader  = "x-weir-problems"   // the problems, as JSON; see encodeProblems
	queueHeader     = "x-weir-queue"      // the queue that had the message
	refusedAtHeader = "x-weir-refused-at" // time in the form of RFC 3339
)

// A frame has 128 KiB at most, and one frame has all headers of a message.
const (
	maxProblemsBytes = 32 << 10 // limit for problemsHeader
	maxHeaderBytes   = 64 << 10 // limit for the message's own headers
)

// confirmTimeout bounds the wait for the broker's confirmation, unless the broker blocks the connection.
const confirmTimeout = 10 * time.Second

// deadLetters publishes refused deliveries, one at a time. It has a connection of its own: while the broker is
// short of memory or disk space, the broker reads nothing from a connection that publishes, not even
// acknowledgements. deadLetters is safe for concurrent use. The caller must call stopPublishing.
type deadLetters struct {
	exchange string
	connect  func(context.Context) (*amqp.Connection, error)
	now      func() time.Time

	mu        sync.Mutex
	conn      *amqp.Connection // nil = the connection is not open
	channel   *amqp.Channel
	returned  chan amqp.Return
	isBlocked *atomic.Bool // true while the broker reads nothing from conn
}

// publish publishes a refused delivery as a dead letter. It returns nil when the broker has confirmed the dead letter
// and at least one queue has it.
func (l *deadLetters) publish(ctx context.Context, queue string, d *amqp.Delivery, reason error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.publishLetter(ctx, queue, d, reason)
	if err != nil {
		l.closeConnection() // because the state of the connection is unknown
	}
	return err
}

func (l *deadLetters) publishLetter(ctx context.Context, queue string, d *amqp.Delivery, reason error) error {
	if err := l.openChannel(ctx); err != nil {
		return err
	}
	conn := l.conn
	// If the broker reads nothing, only closing the connection ends a write.
	defer context.AfterFunc(ctx, func() { conn.CloseDeadline(time.Now()) })()
	letter := newDeadLetter(queue, d, reason, l.now())
	confirmed, err := l.channel.PublishWithDeferredConfirmWithContext(ctx, l.exchange, d.RoutingKey, true, false,
		letter)
	if err != nil {
		return err
	}
	isAcked, err := l.awaitConfirmation(ctx, confirmed)
	if err != nil {
		return fmt.Errorf("no confirmation of the broker: %w", err)
	}
	select {
	case back := <-l.returned: // the broker returns an unroutable message before its confirmation
		return fmt.Errorf("no queue takes dead letters of the exchange %s with the routing key %q (%s)", l.exchange,
			back.RoutingKey, back.ReplyText)
	default:
	}
	if !isAcked {
		return errors.New("the broker did not take the dead letter")
	}
	return nil
}

// awaitConfirmation waits for the broker's confirmation. It still waits while the broker blocks the connection,
// because publishing again would make a second dead letter.
func (l *deadLetters) awaitConfirmation(ctx context.Context, confirmed *amqp.DeferredConfirmation) (bool, error) {
	for {
		limited, cancel := context.WithTimeout(ctx, confirmTimeout)
		isAcked, err := confirmed.WaitContext(limited)
		cancel()
		if err == nil || ctx.Err() != nil || !l.isBlocked.Load() || l.conn.IsClosed() {
			return isAcked, err
		}
	}
}

func (l *deadLetters) openChannel(ctx context.Context) error {
	if l.channel != nil && !l.channel.IsClosed() {
		return nil
	}
	l.closeConnection()
	conn, err := l.connect(ctx)
	if err != nil {
		return err
	}
	l.conn, l.isBlocked = conn, &atomic.Bool{}
	go recordBlocking(conn.NotifyBlocked(make(chan amqp.Blocking, 1)), l.isBlocked)
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	l.channel, l.returned = ch, ch.NotifyReturn(make(chan amqp.Return, 1))
	return ch.Confirm(false)
}

// recordBlocking records whether the broker blocks a connection, until the connection ends.
func recordBlocking(changes <-chan amqp.Blocking, isBlocked *atomic.Bool) {
	for change := range changes {
		isBlocked.Store(change.Active)
	}
}

// stopPublishing closes the connection. Call it when no call of publish is running.
func (l *deadLetters) stopPublishing() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closeConnection()
}

func (l *deadLetters) closeConnection() {
	if l.conn != nil {
		l.conn.CloseDeadline(time.Now().Add(closeTimeout)) // an error means that the connection is lost
	}
	l.conn, l.channel = nil, nil
}

// newDeadLetter returns a refused delivery with the reason in its headers. It leaves out the property user_id, which
// the broker compares with the user of the connection, and the property expiration. It also leaves out the delivery's
// own headers if they are invalid or take more than maxHeaderBytes.
func newDeadLetter(queue string, d *amqp.Delivery, reason error, now time.Time) amqp.Publishing {
	headers := amqp.Table{}
	if estimateSize(d.Headers) <= maxHeaderBytes && d.Headers.Validate() == nil {
		maps.Copy(headers, d.Headers)
	}
	headers[errorHeader] = safeMessage(reason)
	headers[problemsHeader] = encodeProblems(reason)
	headers[queueHeader] = queue
	headers[refusedAtHeader] = now.UTC().Format(time.RFC3339Nano)
	return amqp.Publishing{Headers: headers, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding,
		DeliveryMode: amqp.Persistent, Priority: d.Priority, CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo,
		MessageId: d.MessageId, Timestamp: d.Timestamp, Type: d.Type, AppId: d.AppId, Body: d.Body}
}

// safeMessage returns the text of an error for the publisher. An error that is no *weir.Error may have internal texts,
// which safeMessage replaces.
func safeMessage(err error) string {
	var e *weir.Error
	if errors.As(err, &e) {
		return e.Message
	}
	return "the message could not be filed"
}

// encodeProblems returns the problems of an error as JSON. While they take more than maxProblemsBytes, it drops the
// second half of them. If the error has no problems, encodeProblems returns the error as the only problem.
func encodeProblems(err error) string {
	problems := []weir.Problem{{Message: safeMessage(err)}}
	if e := (*weir.Error)(nil); errors.As(err, &e) && len(e.Problems) > 0 {
		problems = e.Problems
	}
	for ; len(problems) > 0; problems = problems[:len(problems)/2] {
		if text, err := json.Marshal(problems); err == nil && len(text) <= maxProblemsBytes {
			return string(text)
		}
	}
	return "[]"
}

// estimateSize returns an upper bound of the bytes that a value of a header takes in a frame.
func estimateSize(value any) int {
	const overhead = 16 // bytes of a number, of a time, or of the length of any other value
	size := overhead
	switch v := value.(type) {
	case string:
		size += len(v)
	case []byte:
		size += len(v)
	case []any:
		for _, e := range v {
			size += estimateSize(e)
		}
	case amqp.Table:
		for name, e := range v {
			size += len(name) + overhead + estimateSize(e)
		}
	}
	return size
}
