package overview_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"weir/internal/overview"
	"weir/internal/weir"
)

// followScheduled reads all pages of a list of scheduled messages.
func (w *world) followScheduled(f overview.DueFilter, limit int) []weir.Status {
	w.t.Helper()
	var all []weir.Status
	for token := ""; ; {
		found, err := w.all.Scheduled(w.t.Context(), f, limit, token)
		if err != nil {
			w.t.Fatal(err)
		}

		if len(found.Messages) > limit || found.Complete != (found.Continue == "") {
			w.t.Fatalf("got %d messages, Complete %v, Continue %q, want at most %v messages, and either Complete or a "+
				"Continue", len(found.Messages), found.Complete, found.Continue, limit)
		}

		all = append(all, found.Messages...)
		if token = found.Continue; token == "" {
			return all
		}
	}
}

func TestScheduled(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *world) {
		dice := rand.New(rand.NewPCG(5, 6))
		base := time.Now().Add(time.Hour).Truncate(time.Minute)
		wanted := map[string]time.Time{}
		for i := range 150 {
			key := fmt.Sprint("ok/", i)

			// many messages have equal due times
			at := base.Add(time.Duration(dice.IntN(40)) * time.Minute)
			id := w.appendMessage(key, func(m *weir.Message) { m.DueAt = at })
			switch i % 10 {
			case 3:
				if _, err := w.store.Requests().Cancel(t.Context(), id); err != nil {
					t.Fatal(err)
				}
				continue

			case 4:
				at = base.Add(50 * time.Minute)
				if _, err := w.store.Requests().Reschedule(t.Context(), id, at, ""); err != nil {
					t.Fatal(err)
				}

			case 5:
				w.appendMessage(key)
			}

			wanted[key] = at
		}

		for _, limit := range []int{1, 7, 50, 200} {
			all := w.followScheduled(overview.DueFilter{}, limit)
			if len(all) != len(wanted) {
				t.Errorf("limit %d: got %d messages, want %d", limit, len(all), len(wanted))
			}

			seen := map[string]bool{}
			for i, st := range all {
				key := st.Message.Key
				if seen[key] || !st.Message.DueAt.Equal(wanted[key]) || st.Stage != weir.Scheduled {
					t.Errorf("limit %d: %s: got stage %s, due at %v, found before: %t; want it once, scheduled, due "+
						"at %v",
						limit, key, st.Stage, st.Message.DueAt, seen[key], wanted[key])
				}

				if seen[key] = true; i > 0 && st.Message.DueAt.Before(all[i-1].Message.DueAt) {
					t.Errorf("limit %d: got a message due at %v behind one due at %v, want them in order of due times",
						limit, st.Message.DueAt, all[i-1].Message.DueAt)
				}
			}
		}

		from, to, number := base.Add(10*time.Minute), base.Add(20*time.Minute), 1
		count := 0
		for _, at := range wanted {
			if !at.Before(from) && at.Before(to) {
				count++
			}
		}

		if got := w.followScheduled(overview.DueFilter{From: from, To: to}, 9); len(got) != count ||
			count == 0 {
			t.Errorf("got %d messages of the span, want %d", len(got), count)
		}

		for _, st := range w.followScheduled(overview.DueFilter{Lane: &number}, 20) {
			if st.Message.ID.Lane != number {
				t.Errorf("got a message of lane %d, want lane %d", st.Message.ID.Lane, number)
			}
		}

		found, err := w.all.Scheduled(t.Context(), overview.DueFilter{}, 1, "")
		if err != nil {
			t.Fatal(err)
		}

		for _, token := range []string{"x", found.Continue + "A"} {
			if _, err := w.all.Scheduled(t.Context(), overview.DueFilter{}, 1, token); weir.KindOf(err) != weir.Malformed {
				t.Errorf("token %q: got %v, want Malformed", token, err)
			}
		}

		if _, err := w.all.Scheduled(t.Context(), overview.DueFilter{To: to}, 1, found.Continue); err == nil {
			t.Error("Scheduled with a token of another filter = nil, want an error")
		}
	})
}

func TestScheduled_IsBounded(t *testing.T) {
	simulate(t, 4, func(t *testing.T, w *world) {
		w.appendMany(2000, func(i int, m *weir.Message) { m.DueAt = time.Now().Add(time.Hour + time.Duration(i)*time.Second) })
		queries := w.countRequests(func() {
			if _, err := w.all.Scheduled(t.Context(), overview.DueFilter{}, 50, ""); err != nil {
				t.Error(err)
			}
		})
		if queries > 4+50 {
			t.Errorf("the first page of 2000 messages made %d queries, want at most one for each lane and message", queries)
		}
	})
}
