package lists_test

import (
	"log/slog"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/lane/lists"
	"weir/internal/storage/memory"
	"weir/internal/weir"
)

func TestReader_OldestWaitingSince(t *testing.T) {
	t.Parallel()
	t.Run("NothingWaitsAndNothingIsRead", func(t *testing.T) {
		t.Parallel()
		at, err := lists.Reader{Store: &lane.Store{}}.OldestWaitingSince(t.Context(), 0,
			lane.Control{Head: lane.Head{Next: 1}, Tail: lane.Tail{Cursor: 1}})
		if err != nil || !at.IsZero() {
			t.Errorf("got %s, %v, want the zero time and no error", at, err)
		}
	})

	for name, c := range map[string]struct {
		dueIn time.Duration // time until the first message is due
		want  int           // index of the oldest message
	}{
		"TheFirst":           {0, 0},
		"NotTheScheduledOne": {time.Hour, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			account := memory.New(time.Now)
			store := &lane.Store{Table: account.Table(), Bodies: account.Blobs(), Lanes: 1,
				Now: time.Now}
			if err := store.Open(t.Context()); err != nil {
				t.Fatal(err)
			}

			appender := lane.NewAppender(store, slog.New(slog.DiscardHandler))
			var accepted []time.Time
			for n := range 3 {
				m := weir.Message{Key: "/a", Contract: "article", ContentType: "application/xml",
					Body: []byte("<a/>")}
				if n == 0 && c.dueIn > 0 {
					m.DueAt = time.Now().Add(c.dueIn)
				}

				r, err := appender.Append(t.Context(), m, "")
				if err != nil {
					t.Fatal(err)
				}

				accepted = append(accepted, r.Message.AcceptedAt)
			}

			control, err := store.ReadControl(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}

			at, err := lists.Reader{Store: store}.OldestWaitingSince(t.Context(), 0, control)
			if err != nil || !at.Equal(accepted[c.want]) {
				t.Errorf("got %s, %v, want %s and no error", at, err, accepted[c.want])
			}
		})
	}
}
