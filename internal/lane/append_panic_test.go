package lane_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/lane"
	"weir/internal/storage/memory"
	"weir/internal/weir"
)

// A post whose append panics is answered, and the lane takes the next posts.
func TestAppender_AnswersAfterAPanic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		account := memory.New(time.Now)
		store := &lane.Store{Table: account.Table(), Bodies: account.Blobs(), Lanes: 1,
			Now: time.Now}
		if err := store.Open(t.Context()); err != nil {
			t.Fatal(err)
		}

		a, panics := lane.NewAppender(store, quiet), 1
		a.OnFiled = func(int, []weir.Message) {
			if panics > 0 {
				panics--
				panic("boom")
			}
		}

		post := func(ctx context.Context) error {
			_, err := a.Append(ctx,
				weir.Message{Contract: "a", Key: "k", Body: []byte("<a/>")}, "key")
			return err
		}

		if err := post(t.Context()); weir.KindOf(err) != weir.Unavailable {
			t.Errorf("got %v, want an error of kind Unavailable", err)
		}

		if err := post(t.Context()); err != nil {
			t.Errorf("the repeat after the panic: got %v, want no error", err)
		}

		if entries, err := store.ReadLog(t.Context(), 0, 1, 10); err != nil || len(entries) != 1 {
			t.Errorf("got %d messages, %v; want 1", len(entries), err)
		}
	})
}
