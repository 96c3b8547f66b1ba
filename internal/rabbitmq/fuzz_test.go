package rabbitmq

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"weir/internal/filing"
)

// FuzzSubmission reads the properties and headers of a delivery. Each bad one is a refusal, so that
// the consumer does not stop at it.
func FuzzSubmission(f *testing.F) {
	f.Add("application/xml", "gzip", "m-1", "Weir-Deliver-At", "2030-01-31T08:00:00Z", int64(0), []byte(goodBody))
	f.Add("text/xml; charset=utf-16", "utf8", "m-1", "perform_job_at", "", int64(1893456000), []byte(goodBody))
	f.Add("", "", "", "weir_deliver_after", "P", int64(-1), []byte{})
	f.Fuzz(func(t *testing.T, kind, encoding, id, header, text string, number int64, body []byte) {
		d := newDelivery(amqp.Table{header: text})
		if number != 0 {
			d.Headers = amqp.Table{header: number, header + "x": text}
		}

		d.ContentType, d.ContentEncoding, d.MessageId, d.Body = kind, encoding, id, body
		c := newTestConsumer(t, nil)
		c.cfg.MaxBody = 1 << 16
		if _, err := c.validate(t.Context(), articles, d); err != nil && !filing.IsRefusal(err) {
			t.Fatalf("got %v, want a refusal", err)
		}
	})
}
