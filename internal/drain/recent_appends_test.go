package drain

import (
	"testing"
	"time"

	"weir/internal/weir"
)

// The holder can read a message of its own process before the append has its answer. Then it is not
// taken for that of another process for longer than this moment.
func TestRecentAppends_ForeignSeenAt(t *testing.T) {
	t.Parallel()
	own := func(seq int64) []weir.Message { return []weir.Message{{ID: weir.ID{Seq: seq}}} }
	now := time.Now()
	for name, c := range map[string]struct {
		act  func(r *recentAppends)
		want time.Time
	}{
		"None": {func(*recentAppends) {}, time.Time{}},
		"Own": {func(r *recentAppends) { r.addMessages(own(7)); r.noteRead(7, now) },
			time.Time{}},
		"OwnIsSeen": {func(r *recentAppends) { r.noteRead(7, now); r.addMessages(own(7)) },
			time.Time{}},
		"Foreign":  {func(r *recentAppends) { r.addMessages(own(6)); r.noteRead(7, now) }, now},
		"OwnLater": {func(r *recentAppends) { r.noteRead(7, now); r.addMessages(own(8)) }, now},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &recentAppends{room: newLaneMemory(0).appends}
			c.act(r)
			if got := r.foreignSeenAt(); !got.Equal(c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
