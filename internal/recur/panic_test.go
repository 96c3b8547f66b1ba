package recur_test

import (
	"context"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/recur"
	"weir/internal/weir"
)

// panickingContracts panics in its first calls for an occurrence.
type panickingContracts struct {
	contracts
	left *int
}

func (c panickingContracts) Accept(ctx context.Context, contentType string,
	body []byte) (weir.Message, error) {
	if *c.left > 0 {
		*c.left--
		panic("boom")
	}
	return c.contracts.Accept(ctx, contentType, body)
}

// A panic in the work on an occurrence counts as a failure: the schedule's timer tries again.
func TestRunner_TriesAgainAfterAPanic(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		user := w.newRunner("", 0)
		w.putSchedule(user, "s", newDefinition("@every 1h"))
		user.Close(t.Context())
		store, left := w.newStore("a"), 3
		r := recur.New(recur.Config{
			Store:     &recur.Store{Table: store.Table, Bodies: store.Bodies, Now: time.Now},
			Log:       &log{lane.NewAppender(store, quiet), store, w, "a"},
			Contracts: panickingContracts{left: &left}, Waker: noRinger{}, Now: time.Now,
			Logger: quiet,
		})
		defer r.Close(t.Context())
		if err := r.Load(t.Context()); err != nil {
			t.Fatal(err)
		}

		passTime(time.Hour + 30*time.Second)
		if got := w.listDueTimes(); got != "01:00:00Z" || left != 0 {
			t.Errorf("filed %q with %d panics to come, want 01:00:00Z and 0", got, left)
		}
	})
}
