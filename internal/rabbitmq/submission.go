package rabbitmq

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/textproto"
	"reflect"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"weir/internal/filing"
	"weir/internal/unpack"
	"weir/internal/weir"
)

// dueHeader is the header with the due time: a number of seconds since 1970-01-01T00:00:00Z.
const dueHeader = "perform_job_at"

// newSubmission returns a delivery as a submission. The delivery's message_id becomes the
// idempotency key. The headers of a post have the same meaning in a delivery; in addition,
// perform_job_at is a due time. The error is a *weir.Error, and means that the delivery is refused
// for good.
func (c *Consumer) newSubmission(d *amqp.Delivery) (filing.Submission, error) {
	s := filing.Submission{ContentType: d.ContentType, Body: d.Body}
	isGzip, err := readEncoding(d.ContentEncoding)
	if err == nil && isGzip {
		s.Body, err = unpack.All(d.Body, c.cfg.MaxBody)
	}

	if err != nil {
		return s, err
	}

	if err := c.checkMessageID(d.MessageId); err != nil {
		return s, err
	}

	headers, dueAt, err := readHeaders(d.Headers)
	if err != nil {
		return s, err
	}

	if s.Options, err = c.cfg.Filer.ReadOptions(headers, c.cfg.Now()); err != nil {
		return s, err
	}

	if !dueAt.IsZero() {
		if !s.Options.DueAt.IsZero() {
			return s, filing.MalformedError("send only one of " + dueHeader +
				", Weir-Deliver-At and Weir-Deliver-After")
		}
		s.Options.DueAt = dueAt
	}

	if key := s.Options.IdempotencyKey; key != "" && key != d.MessageId {
		return s, filing.MalformedError(
			"the header Idempotency-Key differs from the property message_id, " +
				"which takes its place: leave the header out")
	}

	s.Options.IdempotencyKey = d.MessageId

	return s, nil
}

// readEncoding reads the content_encoding of a delivery like the Content-Encoding of a post. It
// also accepts the names of some character sets: clients such as Celery write these names into each
// delivery.
func readEncoding(encoding string) (isGzip bool, err error) {
	switch strings.ToLower(encoding) {
	case "utf-8", "utf8", "us-ascii", "binary":
		return false, nil
	}
	return weir.ReadContentEncoding(encoding)
}

func (c *Consumer) checkMessageID(id string) error {
	switch {
	case id == "" && c.cfg.RequiresMessageID:
		return filing.MalformedError(
			"the property message_id is missing: it is the Idempotency-Key, by which a " +
				"delivery that the broker repeats stays one message")

	case id != "" && !filing.IsIdempotencyKey(id):
		return filing.MalformedError(
			"message_id must have 1 to 255 visible ASCII characters (no spaces)")
	}

	return nil
}

// readHeaders returns the headers for filing.Filer.ReadOptions, and the due time from
// perform_job_at; zero = there is none. It refuses other spellings of perform_job_at. Of a header
// that is not meant for Weir, it returns only the name, because ReadOptions finds misspelt names.
func readHeaders(table amqp.Table) (headers http.Header, dueAt time.Time, err error) {
	headers = http.Header{}
	for name, value := range table {
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		switch {
		case name == dueHeader:
			if dueAt, err = readSeconds(value); err != nil {
				return nil, dueAt, err
			}

		case foldName(name) == foldName(dueHeader):
			// If readHeaders ignored this header, the message would have no due time and be
			// delivered at once.
			return nil, dueAt,
				filing.MalformedError(fmt.Sprintf("there is no header %.60q; did you mean %s?",
					name, dueHeader))

		case strings.HasPrefix(canonical, "Weir-") || strings.HasPrefix(canonical, "Weir_") ||
			canonical == "Idempotency-Key":
			text, isText := value.(string)
			if !isText {
				return nil, dueAt,
					filing.MalformedError(fmt.Sprintf("the header %.60q must be a text, and is %s",
						name, describeType(value)))
			}

			headers.Add(canonical, text)

		case canonical == "Traceparent" || canonical == "Tracestate":
			if text, isText := value.(string); isText {
				headers.Add(canonical, text)
			}

		default:
			headers[canonical] = nil
		}
	}

	return headers, dueAt, nil
}

// foldName returns the same name for performJobAt, perform-job-at and perform_job_at.
func foldName(name string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(name))
}

// readSeconds returns the due time for a number of seconds since 1970. It rounds to microseconds,
// because a 64-bit float is not more exact. A negative number means the beginning of 1970.
func readSeconds(value any) (time.Time, error) {
	var seconds float64
	switch v := reflect.ValueOf(value); {
	case !v.IsValid():
		return time.Time{}, wrongSecondsError(value)
	case v.CanInt():
		seconds = float64(v.Int())
	case v.CanUint():
		seconds = float64(v.Uint())
	case v.CanFloat():
		seconds = v.Float()
	default:
		decimal, isDecimal := value.(amqp.Decimal)
		if !isDecimal {
			return time.Time{}, wrongSecondsError(value)
		}
		seconds = float64(decimal.Value) / math.Pow10(int(decimal.Scale))
	}

	dueAt, err := weir.MomentOfSeconds(seconds)
	if err != nil {
		return time.Time{}, filing.MalformedError(dueHeader + ": " + err.Error())
	}

	return dueAt, nil
}

func wrongSecondsError(value any) error {
	return filing.MalformedError(
		fmt.Sprintf("%s must be a number of seconds since 1970, such as 1893456000.25, and is %s",
			dueHeader, describeType(value)))
}

// describeType names the type of a header's value for a problem that the publisher reads.
func describeType(value any) string {
	switch value.(type) {
	case nil:
		return "void"
	case string, []byte:
		return "a text"
	case bool:
		return "a boolean"
	case time.Time:
		return "a timestamp"
	case amqp.Table:
		return "a table"
	case []any:
		return "a list"
	}

	return "a number"
}

// validate returns the message of a delivery. An error of the kind Unavailable means that ctx has
// ended. Any other error means that the delivery is refused for good.
func (c *Consumer) validate(ctx context.Context, q Queue, d *amqp.Delivery) (weir.Message, error) {
	s, err := c.newSubmission(d)
	if err != nil {
		return weir.Message{}, err
	}

	s.Options.Upstream = q.Upstream
	m, err := c.cfg.Filer.Validate(ctx, s)
	if err != nil {
		return weir.Message{}, err
	}

	if q.Contract != "" && m.Contract != q.Contract {
		message := fmt.Sprintf(
			"the queue %s takes messages of the contract %s, and this one is of %s", q.Name,
			q.Contract,
			m.Contract)
		return weir.Message{}, &weir.Error{Kind: weir.Invalid, Op: "consume", Message: message,
			Problems: []weir.Problem{{Path: "/", Rule: "contract", Message: message}}}
	}

	return m, nil
}
