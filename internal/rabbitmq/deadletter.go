package rabbitmq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"weir/internal/weir"
)

// The headers that Weir adds to a dead letter. An operator can publish the dead letter again to the
// queue from which the message came. Weir refuses unknown headers whose names begin with Weir-, so
// these names begin with x-.
const (
	errorHeader     = "x-weir-error"      // the sentence with which Weir would answer a post
	problemsHeader  = "x-weir-problems"   // the problems as JSON, see encodeProblems
	queueHeader     = "x-weir-queue"      // the queue from which the message came
	refusedAtHeader = "x-weir-refused-at" // time in the form of RFC 3339
)

// The properties and headers of a message must fit into one frame. If they do not, the broker
// closes the connection, so a dead letter would be published again and again, and its delivery
// would stay unacknowledged for good. A broker can have a frame_max below the usual 128 KiB, but
// none below 4 KiB.
const (
	usualFrame        = 128 << 10
	maxProblemsBytes  = 32 << 10 // limit for problemsHeader
	maxHeaderBytes    = 64 << 10 // limit for the message's own headers
	maxErrorBytes     = 1 << 10  // limit for errorHeader
	smallestErrorText = 128      // what is always left of errorHeader
)

// confirmTimeout bounds the wait for the broker's confirmation. It does not apply while the broker
// blocks the connection.
const confirmTimeout = 10 * time.Second

// deadLetters publishes refused deliveries one at a time, over its own connection. While the broker
// is short of memory or disk space, the broker reads nothing from a connection that has published.
// If Weir also received deliveries over this connection, the broker would not read Weir's
// acknowledgements of the deliveries. deadLetters is safe for concurrent use. Call stopPublishing
// at the end.
type deadLetters struct {
	exchange string
	connect  func(context.Context) (*amqp.Connection, error)
	now      func() time.Time

	mu        sync.Mutex
	conn      *amqp.Connection // nil = there is no open connection
	channel   *amqp.Channel
	returned  chan amqp.Return
	isBlocked *atomic.Bool // true while the broker reads nothing from conn
}

// publish publishes a refused delivery as a dead letter. It returns nil only after the broker has
// confirmed that at least one queue has the dead letter.
func (l *deadLetters) publish(ctx context.Context, queue string, d *amqp.Delivery,
	reason error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.publishLetter(ctx, queue, d, reason)
	if err != nil {
		l.closeConnection() // because the state of the connection is unknown
	}
	return err
}

func (l *deadLetters) publishLetter(ctx context.Context, queue string, d *amqp.Delivery,
	reason error) error {
	if err := l.openChannel(ctx); err != nil {
		return err
	}

	conn := l.conn
	// If the broker reads nothing, a write ends only when the connection is closed.
	defer context.AfterFunc(ctx, func() { conn.CloseDeadline(time.Now()) })()
	letter := newDeadLetter(queue, d, reason, l.now(), conn.Config.FrameSize)
	confirmed, err := l.channel.PublishWithDeferredConfirmWithContext(ctx, l.exchange, d.RoutingKey,
		true, false, letter)
	if err != nil {
		return err
	}

	isAcked, err := l.awaitConfirmation(ctx, confirmed)
	if err != nil {
		return fmt.Errorf("no confirmation of the broker: %w", err)
	}

	select {
	case back := <-l.returned: // the broker returns an unroutable message before it confirms the message
		return fmt.Errorf("no queue takes dead letters of the exchange %s with the routing key %q (%s)", l.exchange,
			back.RoutingKey, back.ReplyText)
	default:
	}

	if !isAcked {
		return errors.New("the broker did not take the dead letter")
	}

	return nil
}

// awaitConfirmation waits for the broker's confirmation, and reports whether the broker took the
// dead letter. It has no time limit while the broker blocks the connection, because publishing
// again would make a second dead letter.
func (l *deadLetters) awaitConfirmation(ctx context.Context,
	confirmed *amqp.DeferredConfirmation) (bool, error) {
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

// stopPublishing closes the connection. Call it only when no call of publish is running.
func (l *deadLetters) stopPublishing() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closeConnection()
}

func (l *deadLetters) closeConnection() {
	if l.conn != nil {
		// an error means that the connection is lost
		l.conn.CloseDeadline(time.Now().Add(closeTimeout))
	}
	l.conn, l.channel = nil, nil
}

// newDeadLetter returns a copy of a refused delivery with the reason in its headers, for a
// connection whose frames have up to frameSize bytes; 0 or less = usualFrame. It omits two
// properties: user_id, which the broker would compare with the user of Weir's connection, and
// expiration, which would make the dead letter expire. It also omits the delivery's own headers if
// they are invalid, larger than maxHeaderBytes, or too large for the rest of the frame.
func newDeadLetter(queue string, d *amqp.Delivery, reason error, now time.Time,
	frameSize int) amqp.Publishing {
	letter := amqp.Publishing{ContentType: d.ContentType, ContentEncoding: d.ContentEncoding,
		DeliveryMode: amqp.Persistent, Priority: d.Priority, CorrelationId: d.CorrelationId,
		ReplyTo:   d.ReplyTo,
		MessageId: d.MessageId, Timestamp: d.Timestamp, Type: d.Type, AppId: d.AppId, Body: d.Body}

	if frameSize <= 0 {
		frameSize = usualFrame
	}

	added := amqp.Table{queueHeader: queue, refusedAtHeader: now.UTC().Format(time.RFC3339Nano),
		errorHeader: "", problemsHeader: ""}
	left := frameSize - estimateProperties(&letter) - estimateSize(added)
	added[errorHeader] = truncate(safeMessage(reason),
		min(maxErrorBytes, max(left/4, smallestErrorText)))
	left -= len(added[errorHeader].(string))
	added[problemsHeader] = encodeProblems(reason, min(maxProblemsBytes, left/2))
	left -= len(added[problemsHeader].(string))

	letter.Headers = amqp.Table{}
	if estimateSize(d.Headers) <= min(maxHeaderBytes, left) && d.Headers.Validate() == nil {
		maps.Copy(letter.Headers, d.Headers)
	}

	maps.Copy(letter.Headers, added)

	return letter
}

// estimateProperties returns an upper bound for the bytes of a message's properties in a frame,
// without its headers.
func estimateProperties(p *amqp.Publishing) int {
	const fixed = 64 // frame, class, size and flags, and the properties that are numbers
	return fixed + len(p.ContentType) + len(p.ContentEncoding) + len(p.CorrelationId) +
		len(p.ReplyTo) +
		len(p.MessageId) + len(p.Type) + len(p.AppId)
}

// truncate cuts a text to at most limit bytes.
func truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:max(limit-len("…"), 0)], "") + "…"
}

// safeMessage returns the text of an error for the publisher. The text of an error other than
// *weir.Error can have internal details, so safeMessage replaces that text.
func safeMessage(err error) string {
	var e *weir.Error
	if errors.As(err, &e) {
		return e.Message
	}
	return "the message could not be filed"
}

// encodeProblems returns the problems of an error as JSON. If the error has no problems, the text
// from safeMessage is the only problem. While the JSON is larger than limit, encodeProblems drops
// the second half of the problems.
func encodeProblems(err error, limit int) string {
	problems := []weir.Problem{{Message: safeMessage(err)}}
	if e := (*weir.Error)(nil); errors.As(err, &e) && len(e.Problems) > 0 {
		problems = e.Problems
	}

	for ; len(problems) > 0; problems = problems[:len(problems)/2] {
		if text, err := json.Marshal(problems); err == nil && len(text) <= limit {
			return string(text)
		}
	}

	return "[]"
}

// estimateSize returns an upper bound for the bytes of a header's value in a frame.
func estimateSize(value any) int {
	// enough bytes for a number, for a time, or for the length field of any other value
	const overhead = 16
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
