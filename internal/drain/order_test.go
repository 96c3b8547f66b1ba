package drain_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/weir"
)

func TestDrainer_Order_KeysInOrderOneAtATime(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start()
		var want []string
		for i := range 50 {
			for _, key := range []string{"a", "b", "c"} {
				w.post(key, fmt.Sprint(i))
			}
			want = append(want, fmt.Sprint(i))
		}

		p.Wake(0)
		c := w.waitUntilEmpty(time.Minute)

		for _, key := range []string{"a", "b", "c"} {
			if got := w.listDelivered(key); !slices.Equal(got, want) {
				t.Errorf("key %s delivered as %v, want %v", key, got, want)
			}
		}

		w.checkNoOverlap()
		if c.Tail.Counts.Delivered != 150 || c.Head.Next != 151 {
			t.Errorf("books: %+v, want Delivered 150 and Next 151", c)
		}
	})
}

func TestDrainer_Order_AFailedMessageHoldsBackItsKeyOnly(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		failures := 2
		w.cms.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
			if string(d.Message.Body) == "a0" && d.Attempt <= failures {
				return newAnswer(500)
			}
			return answerAfter(20*time.Millisecond, 200)(ctx, d)
		})

		for i := range 3 {
			w.post("a", fmt.Sprintf("a%d", i))
			w.post("b", fmt.Sprintf("b%d", i))
		}

		w.start().Wake(0)
		w.waitUntilEmpty(time.Minute)
		if got := w.listDelivered("a"); !slices.Equal(got, []string{"a0", "a1", "a2"}) {
			t.Errorf("a delivered as %v, want [a0 a1 a2]", got)
		}

		log := w.cms.listRequests()
		other := slices.IndexFunc(log, func(s sent) bool { return s.body == "b0" })
		passed := slices.IndexFunc(
			log,
			func(s sent) bool {
				return s.body == "a0" &&
					s.result.Outcome == weir.OutcomeDelivered
			},
		)
		if other > passed {
			t.Errorf("the first attempt of b0 is request %d and the delivery of a0 is request %d, want b0 first: %v",
				other, passed, log)
		}
	})
}

func TestDrainer_Order_SkipLetsLaterOnesGoAhead(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
			if string(d.Message.Body) == "0" && d.Attempt == 1 {
				return newAnswer(500)
			}
			return answerAfter(time.Millisecond, 200)(ctx, d)
		})

		for i := range 3 {
			w.post("", fmt.Sprint(i), func(m *weir.Message) { m.Skip = true })
		}

		w.start().Wake(0)
		w.waitUntilEmpty(time.Minute)
		if got := w.listDelivered(""); len(got) != 3 || got[0] != "1" {
			t.Errorf("delivered as %v, want 1 first", got)
		}
	})
}

func TestDrainer_Order_MessageDiesAtItsFifthFailure(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
			if d.Message.Key == "bad" {
				r := newAnswer(500)
				r.Reason = "500: the title is haunted"
				return r
			}
			return answerAfter(time.Millisecond, 200)(ctx, d)
		})

		bad := w.post("bad", "x")
		behind := w.post("bad", "y")
		w.post("good", "z")
		w.start().Wake(0)
		c := w.waitUntilEmpty(10 * time.Minute)
		st := w.status(bad)
		if st.Stage != weir.Dead || st.AttemptCount != 5 ||
			!strings.Contains(st.LastError, "haunted") ||
			len(st.Attempts) != 5 {
			t.Errorf("status: %+v, want Stage dead, AttemptCount 5, \"haunted\" in LastError and 5 Attempts", st)
		}

		if got := w.status(behind).Stage; got != weir.Dead {
			t.Errorf("the message behind it is %s, want dead", got)
		}

		if c.Tail.Counts.Dead != 2 || c.Tail.Counts.Delivered != 1 || !c.Tail.NextDueAt.IsZero() {
			t.Errorf("tail: %+v, want Dead 2, Delivered 1 and no NextDueAt", c.Tail)
		}
	})
}

func TestDrainer_Order_RejectedIsDeadAtOnce(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(answerAfter(time.Millisecond, 400))
		id := w.post("a", "x")
		w.start().Wake(0)
		w.waitUntilEmpty(time.Minute)

		if st := w.status(id); st.Stage != weir.Dead || st.AttemptCount != 1 ||
			st.CMSStatus != 400 {
			t.Errorf("status: %+v, want Stage dead, AttemptCount 1 and CMSStatus 400", st)
		}
	})
}

func TestDrainer_Order_ManyHeldBehindOneComeInOrder(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
			if string(d.Message.Body) == "000" && d.Attempt < 4 {
				return newAnswer(500)
			}
			return answerAfter(time.Millisecond, 200)(ctx, d)
		})

		var want []string
		for i := range 200 {
			want = append(want, fmt.Sprintf("%03d", i))
			w.post("a", want[i])
		}

		w.start().Wake(0)
		w.waitUntilEmpty(10 * time.Minute)
		if got := w.listDelivered("a"); !slices.Equal(got, want) {
			t.Errorf("delivered as %v, want %v", got, want)
		}
	})
}

func TestDrainer_CMS_UnavailableCountsNoAttempts(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(answerAfter(time.Millisecond, 503))
		var ids []weir.ID
		for i := range 10 {
			ids = append(ids, w.post(fmt.Sprint("k", i%3), fmt.Sprint(i)))
		}

		w.start().Wake(0)
		time.Sleep(5 * time.Minute)
		if n := len(w.cms.listRequests()); n < 5 || n > 100 {
			t.Errorf("%d probes in 5 minutes, want 5 to 100", n)
		}

		w.cms.setAnswer(answerAfter(time.Millisecond, 200))
		w.waitUntilEmpty(2 * time.Minute)

		for _, id := range ids {
			if st := w.status(id); st.Stage != weir.Delivered || st.AttemptCount != 1 {
				t.Errorf("status: %+v, want Stage delivered and AttemptCount 1", st)
			}
		}
	})
}

func TestDrainer_CMS_UnansweredSettlesBeforeAnythingIsSent(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
			if string(d.Message.Body) == "slow" && d.Attempt == 1 {
				r := newAnswer(500)
				r.Unanswered = true
				return r
			}
			return answerAfter(time.Millisecond, 200)(ctx, d)
		})

		w.post("a", "slow")
		w.post("b", "next")
		w.start().Wake(0)
		w.waitUntilEmpty(time.Minute)
		log := w.cms.listRequests()
		if gap := log[1].at.Sub(log[0].end); gap < 2*time.Second {
			t.Errorf("next request %s after the unanswered one, want the settle time of 2s", gap)
		}
	})
}

func TestDrainer_CMS_OneFailingMessageDoesNotStopTheLane(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
			if d.Message.Key == "poison" {
				return newAnswer(503)
			}
			return answerAfter(time.Millisecond, 200)(ctx, d)
		})

		id := w.post("poison", "x")
		for i := range 100 {
			w.post(fmt.Sprint("k", i), "y")
		}

		p := w.start()
		p.Wake(0)

		for i := range 20 {
			time.Sleep(2 * time.Minute)
			w.post(fmt.Sprint("more", i), "y")
			p.Wake(0)
		}

		c := w.waitUntilEmpty(time.Hour)
		if st := w.status(id); st.Stage != weir.Dead || c.Tail.Counts.Delivered != 120 {
			t.Errorf("poison: %+v, books: %+v, want Stage dead and Delivered 120", st, c)
		}
	})
}

func TestDrainer_CMS_PanicRejectsTheMessage(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
			if d.Message.Key == "bad" {
				panic("boom")
			}
			return answerAfter(time.Millisecond, 200)(ctx, d)
		})

		id := w.post("bad", "x")
		w.post("good", "y")
		w.start().Wake(0)
		w.waitUntilEmpty(time.Minute)
		if st := w.status(id); st.Stage != weir.Dead || strings.Contains(st.LastError, "boom") {
			t.Errorf("status: %+v, want Stage dead and no \"boom\" in LastError", st)
		}
	})
}

func TestDrainer_CMS_HundredJoinsOfAPausedLaneCostNothing(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(func(context.Context, weir.Delivery) weir.Result {
			r := newAnswer(503)
			r.RetryAfter = 10 * time.Minute
			return r
		})

		w.post("a", "x")
		p := w.start()
		p.Join(t.Context(), 0)
		before := w.control().Tail

		for range 100 {
			if r := p.Join(t.Context(), 0); r.State != drain.Waiting || r.Until.IsZero() {
				t.Fatalf("join: %+v, want State %v and an Until", r, drain.Waiting)
			}
		}

		if after := w.control().Tail; after.Fence != before.Fence ||
			len(w.cms.listRequests()) != 1 {
			t.Errorf("fence %d → %d, %d requests, want Fence %v and 1 request", before.Fence,
				after.Fence, len(w.cms.listRequests()), before.Fence)
		}
	})
}

func TestDrainer_CMS_WaitingForARetryDoesNotHideANewMessage(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
			if d.Message.Key == "a" && d.Attempt == 1 {
				r := newAnswer(500)
				r.RetryAfter = 5 * time.Minute
				return r
			}
			return answerAfter(time.Millisecond, 200)(ctx, d)
		})

		w.post("a", "x")
		p := w.start()
		if r := p.Join(t.Context(), 0); r.State != drain.Waiting || r.Paused {
			t.Fatalf("join: %+v, want State %v and Paused false", r, drain.Waiting)
		}

		w.post("b", "y")
		p.Join(t.Context(), 0) // makes the process look at the lane, as a ticket does
		if got := w.listDelivered("b"); len(got) != 1 {
			t.Errorf("delivered %v of b, want one: %+v", got, w.control())
		}
	})
}
