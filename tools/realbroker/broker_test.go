package realbroker_test

import (
	"context"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"weir/tools/realbroker"
)

// Tests of consumers kill the broker and then count messages. So a kill must not lose messages that
// the broker has confirmed.
func TestBroker_KeepsConfirmedMessagesOverAKill(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	b, err := realbroker.Start(ctx, t.TempDir(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Stop()
	useChannel(t, b, func(ch *amqp.Channel) error {
		if _, err := ch.QueueDeclare("q", true, false, false, false, nil); err != nil {
			return err
		}

		if err := ch.Confirm(false); err != nil {
			return err
		}

		confirmed, err := ch.PublishWithDeferredConfirm("", "q", true, false,
			amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte("<a/>")})
		if err != nil {
			return err
		}

		_, err = confirmed.WaitContext(ctx)

		return err
	})

	if err := b.Kill(ctx); err != nil {
		t.Fatal(err)
	}

	if err := b.Restart(ctx); err != nil {
		t.Fatal(err)
	}

	useChannel(t, b, func(ch *amqp.Channel) error {
		d, found, err := ch.Get("q", true)
		if string(d.Body) != "<a/>" {
			t.Errorf("got %q (found: %v), want the message", d.Body, found)
		}
		return err
	})
}

// useChannel opens a channel on a new connection, and calls "use" with the channel.
func useChannel(t *testing.T, b *realbroker.Broker, use func(*amqp.Channel) error) {
	t.Helper()
	conn, err := amqp.Dial(b.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err == nil {
		err = use(ch)
	}

	if err != nil {
		t.Fatal(err)
	}
}
