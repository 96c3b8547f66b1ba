package e2e_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/tools/realbroker"
)

// The broker requires a client certificate. A consumer without a certificate takes no message. A
// consumer that cannot verify the broker's certificate takes no message, either.
func TestRabbitMQ_Encrypted(t *testing.T) {
	s := newSystem(t, 1)
	b, err := realbroker.StartEncrypted(t.Context(), t.TempDir(), s.output)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { b.Stop() })
	q := declareQueue(t, b.Broker, "")
	q.publish(newArticles([]string{"/a", "/b"}, 1, 10)...)
	ca := fmt.Sprintf("ca: %q", b.CA)
	client := fmt.Sprintf("cert: %q, key: %q", b.ClientCert, b.ClientKey)
	for _, c := range []struct{ name, url, tls, want string }{
		{"no authority", b.EncryptedURL(), client, "certificate signed by unknown authority"},
		{"no client certificate", b.EncryptedURL(), ca, "certificate required"},
		{"another name", strings.Replace(b.EncryptedURL(), "127.0.0.1", "localhost", 1),
			ca + ", " + client,
			"certificate is not valid for any names, but wanted to match localhost"},
	} {
		p := s.startConsumer(s.stageConsumerAt(c.url, "    tls: { "+c.tls+" }\n", q))

		// If a client certificate is missing, the broker sends an alert and closes the connection.
		// The consumer can see the close before the alert. So the consumer can need several tries
		// until it logs the reason.
		s.awaitCondition(fmt.Sprintf("a consumer with %s logs %q", c.name, c.want), time.Minute,
			func() bool {
				log := p.output.String()
				return strings.Contains(log, `"consume: not consuming"`) &&
					strings.Contains(log, c.want)
			})

		if code := p.endProcess(syscall.SIGTERM); code != 0 {
			t.Errorf("%s: got exit code %d, want 0", c.name, code)
		}
	}

	if n := q.countReady(); n != 20 {
		t.Errorf("%d messages are in the queue, want 20", n)
	}

	p := s.startConsumer(s.stageConsumerAt(b.EncryptedURL(),
		"    tls: { "+ca+", "+client+" }\n", q))
	s.awaitWrites(20, 2*time.Minute)

	if code := p.endProcess(syscall.SIGTERM); code != 0 || q.countReady() != 0 {
		t.Errorf("got exit code %d and %d messages in the queue, want 0 and 0", code,
			q.countReady())
	}
}
