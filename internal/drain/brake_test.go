package drain_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/weir"
)

// withBrake sets Config.Brake.
func withBrake(n int) func(*drain.Config) { return func(c *drain.Config) { c.Brake = n } }

// rejectsArticles makes the CMS reject the messages of a contract, with a reason that names the
// key. It takes all other messages, and these, too, once isBack is set.
func (w *world) rejectsArticles(isBack *atomic.Bool, contract string) {
	w.cms.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
		if d.Message.Contract == contract && !isBack.Load() {
			r := newAnswer(422)
			r.Reason = fmt.Sprintf("create: 422: %q must have a teaser", d.Message.Key)
			return r
		}
		return answerAfter(10*time.Millisecond, 200)(ctx, d)
	})
}

// countStage returns how many messages have a stage.
func (w *world) countStage(ids []weir.ID, stage weir.Stage) (n int) {
	for _, id := range ids {
		if w.status(id).Stage == stage {
			n++
		}
	}
	return n
}

func withDefaultBackoff(c *drain.Config) {
	c.Backoff = drain.Backoff{Min: time.Second, Max: 5 * time.Minute}
}

func numberKeys(prefix string) func(int) string {
	return func(i int) string { return fmt.Sprint(prefix, i) }
}

// A changed content type rejects all messages of a contract. Five are dead, all others wait, and
// the messages of another contract are delivered. When the CMS takes the contract again, all are
// delivered.
func TestBrake_KillsFiveOfANight(t *testing.T) {
	for name, isResumed := range map[string]bool{"Probed": false, "Resumed": true} {
		t.Run(name, func(t *testing.T) {
			simulateLanes(t, func(t *testing.T, w *world) {
				var isBack atomic.Bool
				w.rejectsArticles(&isBack, "article")
				p := w.start(withBrake(5), withDefaultBackoff)
				var ids []weir.ID
				for i := range 100 {
					ids = append(ids, w.post(fmt.Sprint("article", i), "x"))
				}

				for number := range 4 {
					p.Wake(number)
				}

				time.Sleep(time.Minute)
				others := w.postToLanes(3, ofContract("product"))
				for number := range 4 {
					p.Wake(number)
				}

				time.Sleep(5 * time.Second)
				if n := w.countStage(others, weir.Delivered); n != len(others) {
					t.Errorf("%d of %d messages of another contract are delivered", n, len(others))
				}

				time.Sleep(7 * time.Hour)

				if dead, waiting := w.countStage(ids,
					weir.Dead), w.countStage(ids, weir.Retrying); dead != 5 ||
					waiting != 95 {
					t.Fatalf("%d messages are dead and %d wait, want 5 and 95", dead, waiting)
				}

				if b := w.lanes.Control(1).Tail.Brakes; len(b) != 1 || b[0].Contract != "article" ||
					b[0].CMSStatus != 422 || !strings.Contains(b[0].Reason, "must have a teaser") ||
					b[0].Messages == 0 {
					t.Errorf("tail has the brakes %+v, want that of the contract article", b)
				}

				isBack.Store(true)
				limit := 6 * time.Minute // the next probe of a lane comes within backoff.max
				if isResumed {
					limit = 10 * time.Second
					if err := w.store.Pauses().Resume(t.Context(), 2, ""); err != nil {
						t.Fatal(err)
					}
					p.Wake(2)
				}

				time.Sleep(limit)
				if n := w.countStage(ids, weir.Delivered); n != 95 {
					t.Errorf("%d messages are delivered %s later, want 95", n, limit)
				}

				if b := w.lanes.Control(1).Tail.Brakes; len(b) != 0 {
					t.Errorf("tail has the brakes %+v, want none", b)
				}
			})
		})
	}
}

// A delivery between, another reason, and the same key do not close the brake; nor does a limit of
// 0.
func TestBrake_StaysOpen(t *testing.T) {
	for name, c := range map[string]struct {
		limit  int
		key    func(int) string
		reason func(int) string
		good   bool // a message of the contract is delivered between
	}{
		"Off":    {0, numberKeys("k"), nil, false},
		"OneKey": {5, func(int) string { return "k" }, nil, false},
		"Reasons": {5, numberKeys("k"),
			func(i int) string { return strings.Repeat("a", i+1) }, false},
		"Deliveries": {5, numberKeys("k"), nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				w.cms.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
					if d.Message.Key == "good" {
						return answerAfter(10*time.Millisecond, 200)(ctx, d)
					}

					r := newAnswer(422)
					if r.Reason = "422 no"; c.reason != nil {
						r.Reason += c.reason(int(d.Message.ID.Seq))
					}

					return r
				})

				p := w.start(withBrake(c.limit))
				var ids []weir.ID
				for i := range 12 {
					ids = append(ids, w.post(c.key(i), "x"))
					if c.good {
						w.post("good", "x")
					}
				}

				p.Wake(0)
				w.waitUntilEmpty(time.Minute)
				if n := w.countStage(ids, weir.Dead); n != len(ids) {
					t.Errorf("%d of %d messages are dead, want all", n, len(ids))
				}
			})
		})
	}
}

// A closed brake outlasts its holder: the next process kills no message more. After
// delivery.patience the waiting messages are dead, too.
func TestBrake_OutlastsItsHolder(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		var isBack atomic.Bool
		w.rejectsArticles(&isBack, "article")
		patience := func(c *drain.Config) { c.Patience = 4 * time.Hour }
		p := w.start(withBrake(3), patience)
		var ids []weir.ID
		for i := range 10 {
			ids = append(ids, w.post(fmt.Sprint("a", i), "x"))
		}

		p.Wake(0)
		time.Sleep(time.Hour)
		p.close(t)
		next := w.start(withBrake(3), patience)
		for i := range 10 {
			ids = append(ids, w.post(fmt.Sprint("b", i), "x"))
		}

		next.Wake(0)
		time.Sleep(time.Hour)
		if n := w.countStage(ids, weir.Dead); n != 3 {
			t.Errorf("%d messages are dead, want 3", n)
		}

		w.waitUntilEmpty(6 * time.Hour)
		if n := w.countStage(ids, weir.Dead); n != len(ids) {
			t.Errorf("%d messages are dead in the end, want all %d", n, len(ids))
		}
	})
}
