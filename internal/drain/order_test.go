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
		c := w.settled(time.Minute)
		for _, key := range []string{"a", "b", "c"} {
			if got := w.delivered(key); !slices.Equal(got, want) {
				t.Errorf("key %s delivered as %v", key, got)
			}
		}
		w.noOverlap()
		if c.Tail.Counts.Delivered != 150 || c.Head.Next != 151 {
			t.Errorf("books: %+v", c)
		}
	})
}

func TestDrainer_Order_AFailedOneHoldsBackItsKeyOnly(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		failures := 2
		w.cms.set(func(ctx context.Context, d weir.Delivery) weir.Result {
			if string(d.Message.Body) == "a0" && d.Attempt <= failures {
				return answer(500)
			}
			return takes(20*time.Millisecond, 200)(ctx, d)
		})
		for i := range 3 {
			w.post("a", fmt.Sprintf("a%d", i))
			w.post("b", fmt.Sprintf("b%d", i))
		}
		w.start().Wake(0)
		w.settled(time.Minute)
		if got := w.delivered("a"); !slices.Equal(got, []string{"a0", "a1", "a2"}) {
			t.Errorf("a delivered as %v", got)
		}
		log := w.cms.requests()
		other := slices.IndexFunc(log, func(s sent) bool { return s.body == "b0" })
		passed := slices.IndexFunc(
			log,
			func(s sent) bool { return s.body == "a0" && s.result.Outcome == weir.OutcomeDelivered },
		)
		if other > passed {
			t.Errorf("b waited for a: %v", log)
		}
	})
}

func TestDrainer_Order_SkipLetsLaterOnesGoAhead(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.set(func(ctx context.Context, d weir.Delivery) weir.Result {
			if string(d.Message.Body) == "0" && d.Attempt == 1 {
				return answer(500)
			}
			return takes(time.Millisecond, 200)(ctx, d)
		})
		for i := range 3 {
			w.post("", fmt.Sprint(i), func(m *weir.Message) { m.Skip = true })
		}
		w.start().Wake(0)
		w.settled(time.Minute)
		if got := w.delivered(""); len(got) != 3 || got[0] != "1" {
			t.Errorf("delivered as %v, want 1 first", got)
		}
	})
}

func TestDrainer_Order_FifthFailureIsDeadWithTheCMSsWordsAndOthersGoOn(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.set(func(ctx context.Context, d weir.Delivery) weir.Result {
			if d.Message.Key == "bad" {
				r := answer(500)
				r.Reason = "500: the title is haunted"
				return r
			}
			return takes(time.Millisecond, 200)(ctx, d)
		})
		bad := w.post("bad", "x")
		behind := w.post("bad", "y")
		w.post("good", "z")
		w.start().Wake(0)
		c := w.settled(10 * time.Minute)
		st := w.status(bad)
		if st.Stage != weir.Dead || st.AttemptCount != 5 || !strings.Contains(st.LastError, "haunted") ||
			len(st.Attempts) != 5 {
			t.Errorf("status: %+v", st)
		}
		if got := w.status(behind).Stage; got != weir.Dead {
			t.Errorf("the one behind: %s", got)
		}
		if c.Tail.Counts.Dead != 2 || c.Tail.Counts.Delivered != 1 || !c.Tail.NextDueAt.IsZero() {
			t.Errorf("tail: %+v", c.Tail)
		}
	})
}

func TestDrainer_Order_RejectedIsDeadAtOnce(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.set(takes(time.Millisecond, 400))
		id := w.post("a", "x")
		w.start().Wake(0)
		w.settled(time.Minute)
		if st := w.status(id); st.Stage != weir.Dead || st.AttemptCount != 1 || st.CMSStatus != 400 {
			t.Errorf("status: %+v", st)
		}
	})
}

func TestDrainer_Order_ManyHeldBehindOneComeInOrder(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.set(func(ctx context.Context, d weir.Delivery) weir.Result {
			if string(d.Message.Body) == "000" && d.Attempt < 4 {
				return answer(500)
			}
			return takes(time.Millisecond, 200)(ctx, d)
		})
		var want []string
		for i := range 200 {
			want = append(want, fmt.Sprintf("%03d", i))
			w.post("a", want[i])
		}
		w.start().Wake(0)
		w.settled(10 * time.Minute)
		if got := w.delivered("a"); !slices.Equal(got, want) {
			t.Errorf("delivered as %v", got)
		}
	})
}

func TestDrainer_CMS_DownBurnsNoAttempts(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.set(takes(time.Millisecond, 503))
		var ids []weir.ID
		for i := range 10 {
			ids = append(ids, w.post(fmt.Sprint("k", i%3), fmt.Sprint(i)))
		}
		w.start().Wake(0)
		time.Sleep(5 * time.Minute)
		if n := len(w.cms.requests()); n < 5 || n > 30 {
			t.Errorf("%d probes in 5 minutes", n)
		}
		w.cms.set(takes(time.Millisecond, 200))
		w.settled(2 * time.Minute)
		for _, id := range ids {
			if st := w.status(id); st.Stage != weir.Delivered || st.AttemptCount != 1 {
				t.Errorf("status: %+v", st)
			}
		}
	})
}

func TestDrainer_CMS_UnansweredSettlesBeforeAnythingIsSent(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.set(func(ctx context.Context, d weir.Delivery) weir.Result {
			if string(d.Message.Body) == "slow" && d.Attempt == 1 {
				r := answer(500)
				r.Unanswered = true
				return r
			}
			return takes(time.Millisecond, 200)(ctx, d)
		})
		w.post("a", "slow")
		w.post("b", "next")
		w.start().Wake(0)
		w.settled(time.Minute)
		log := w.cms.requests()
		if gap := log[1].at.Sub(log[0].end); gap < 2*time.Second {
			t.Errorf("next request %s after the unanswered one, want the settle time of 2s", gap)
		}
	})
}

func TestDrainer_CMS_OnePoisonousMessageDoesNotStopTheLane(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.set(func(ctx context.Context, d weir.Delivery) weir.Result {
			if d.Message.Key == "poison" {
				return answer(503)
			}
			return takes(time.Millisecond, 200)(ctx, d)
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
		c := w.settled(time.Hour)
		if st := w.status(id); st.Stage != weir.Dead || c.Tail.Counts.Delivered != 120 {
			t.Errorf("poison: %+v, books: %+v", st, c)
		}
	})
}

func TestDrainer_CMS_APanicIsThatMessagesRejection(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.set(func(ctx context.Context, d weir.Delivery) weir.Result {
			if d.Message.Key == "bad" {
				panic("boom")
			}
			return takes(time.Millisecond, 200)(ctx, d)
		})
		id := w.post("bad", "x")
		w.post("good", "y")
		w.start().Wake(0)
		w.settled(time.Minute)
		if st := w.status(id); st.Stage != weir.Dead || strings.Contains(st.LastError, "boom") {
			t.Errorf("status: %+v", st)
		}
	})
}

func TestDrainer_CMS_APausedLaneRungAHundredTimesStaysAlone(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.set(func(context.Context, weir.Delivery) weir.Result {
			r := answer(503)
			r.RetryAfter = 10 * time.Minute
			return r
		})
		w.post("a", "x")
		p := w.start()
		p.Join(t.Context(), 0)
		before := w.control().Tail
		for range 100 {
			if r := p.Join(t.Context(), 0); r.State != drain.Waiting || r.Until.IsZero() {
				t.Fatalf("join: %+v", r)
			}
		}
		if after := w.control().Tail; after.Fence != before.Fence || len(w.cms.requests()) != 1 {
			t.Errorf("fence %d → %d, %d requests", before.Fence, after.Fence, len(w.cms.requests()))
		}
	})
}

func TestDrainer_CMS_WaitingForARetryDoesNotHideANewMessage(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.set(func(ctx context.Context, d weir.Delivery) weir.Result {
			if d.Message.Key == "a" && d.Attempt == 1 {
				r := answer(500)
				r.RetryAfter = 5 * time.Minute
				return r
			}
			return takes(time.Millisecond, 200)(ctx, d)
		})
		w.post("a", "x")
		p := w.start()
		if r := p.Join(t.Context(), 0); r.State != drain.Waiting || r.Paused {
			t.Fatalf("join: %+v", r)
		}
		w.post("b", "y")
		p.Join(t.Context(), 0) // a ticket put by another instance's receiver
		if got := w.delivered("b"); len(got) != 1 {
			t.Errorf("b was not delivered: %+v", w.control())
		}
	})
}
