package e2e_test

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// With deliver: true, a message of RabbitMQ does not wait until the idle app polls the queue of
// tickets, which takes up to a minute. Each message finds the lane without a holder. Run with
// -count for more samples.
func TestRabbitMQ_DeliversForAnIdleApp(t *testing.T) {
	const samples = 12
	s := newSystem(t, 1)
	b := useSharedBroker(t)
	q := declareQueue(t, b, "")
	consumer := s.startConsumer(s.stageConsumer(b, "    deliver: true\n", q))
	s.awaitConsumer(consumer)

	var took []time.Duration
	for n := range samples {
		s.awaitCondition("the lane has no holder", time.Minute,
			func() bool { return !s.isLaneHeld() })
		path := fmt.Sprint("/idle/", n)
		publishedAt := time.Now()
		q.publish(newArticles([]string{path}, 1, 1)...)
		s.awaitCondition(path+" is written", 2*time.Minute,
			func() bool { return !s.firstRequestTime(path).IsZero() })
		took = append(took, s.firstRequestTime(path).Sub(publishedAt))
	}

	slices.Sort(took)
	t.Logf("from publish to the CMS: %v", took)
	if median := took[len(took)/2]; median > 5*time.Second {
		t.Errorf("got a median of %s from publish to the CMS, want 5s at most: %v", median, took)
	}
}

func (s *system) isLaneHeld() bool {
	s.t.Helper()
	lanes := getJSON[struct{ Lanes []struct{ Held bool } }](s, s.weir+"/api/lanes").Lanes
	return lanes[0].Held
}
