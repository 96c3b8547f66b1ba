package rabbitmq

import (
	"context"
	"testing"

	"weir/internal/filing"
	"weir/internal/lane"
	"weir/internal/weir"
)

// articlesOnly is a filing.Limits. Each upstream is allowed to send only articles, and has used up
// its quota.
type articlesOnly struct{}

func (articlesOnly) CheckContract(_, contract string) error {
	if contract != "article" {
		return &weir.Error{Kind: weir.Forbidden, Message: "not allowed"}
	}
	return nil
}

func (articlesOnly) Admit(context.Context, string, string) (func(weir.AppendResult), error) {
	return func(weir.AppendResult) {}, &weir.Error{Kind: weir.Limited, Message: "used up"}
}

// A message from RabbitMQ is refused for good if the upstream is not allowed to send messages of
// this contract. A message over the upstream's quota is not refused, and stays in RabbitMQ's queue.
func TestConsumer_AppliesTheLimitsOfAQueuesUpstream(t *testing.T) {
	t.Parallel()
	c := newTestConsumer(t, &fakeLanes{func(context.Context, weir.Message, string) (lane.Receipt, error) {
		t.Error("a message over the quota was filed, want none")
		return lane.Receipt{}, nil
	}})

	c.cfg.Filer.Limits = articlesOnly{}
	q := Queue{Name: "feeds", Upstream: "feeds"}
	d := newDelivery(nil)
	m, err := c.validate(t.Context(), q, d)
	if err != nil || m.Upstream != "feeds" {
		t.Fatalf("got the upstream %q, %v; want feeds and no error", m.Upstream, err)
	}

	if _, err = c.cfg.Filer.FileValid(t.Context(), m, "k"); weir.KindOf(err) != weir.Limited ||
		filing.IsRefusal(err) {
		t.Errorf("got %v, want Limited, which is no refusal", err)
	}

	d.Body = []byte("<note/>")
	if _, err = c.validate(t.Context(), q, d); weir.KindOf(err) != weir.Forbidden ||
		!filing.IsRefusal(err) {
		t.Errorf("a note: got %v, want Forbidden, which is a refusal", err)
	}
}
