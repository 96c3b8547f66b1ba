package poll_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/poll"
	"weir/internal/weir"
)

// joins is a Joiner and a Reader. Each call of Join moves to the next step, or stays at the last
// one. The first step has no report: it has the control rows that ReadControl returns before the
// first call of Join.
type joins struct {
	steps []joined
	n     int
}

type joined struct {
	report  drain.Report
	control lane.Control
}

func (j *joins) Join(context.Context, int) drain.Report {
	j.n = min(j.n+1, len(j.steps)-1)
	return j.steps[j.n].report
}
func (j *joins) ReadControl(context.Context, int) (lane.Control, error) {
	return j.steps[j.n].control, nil
}

// newControl returns the control rows of a lane with three messages. The first messages are
// delivered; the argument "delivered" is their number.
func newControl(delivered int64) lane.Control {
	return lane.Control{Head: lane.Head{Next: 4},
		Tail: lane.Tail{Cursor: delivered + 1, Counts: lane.Counts{Delivered: delivered}}}
}

func TestDrainLane(t *testing.T) {
	t.Parallel()

	// virtual time begins at 2000-01-01T00:00:00Z
	soon := time.Date(2000, 1, 1, 0, 0, 5, 0, time.UTC)
	due := newControl(3)
	due.Head.Next, due.Tail.Cursor, due.Tail.NextDueAt = 5, 5, soon
	for name, c := range map[string]struct {
		steps []joined
		left  bool
		says  string
		takes time.Duration
	}{
		"Emptied": {[]joined{{control: newControl(1)},
			{drain.Report{State: drain.Idle}, newControl(3)}}, false,
			"lane 7: empty, 2 delivered", 0},
		"Nothing": {[]joined{{control: newControl(3)},
			{drain.Report{State: drain.Idle}, newControl(3)}}, false, "lane 7: empty", 0},
		"CameSince": {[]joined{{control: newControl(2)},
			{drain.Report{State: drain.Idle}, newControl(2)}}, false,
			"lane 7: emptied, 1 came since", 0},
		"Held": {[]joined{{control: newControl(1)},
			{drain.Report{State: drain.Busy}, newControl(1)}}, true,
			"lane 7: held by another process, 2 waiting", 0},
		"HeldIdle": {[]joined{{control: newControl(1)},
			{drain.Report{State: drain.Busy}, newControl(3)}}, false,
			"lane 7: empty, 2 delivered", 0},
		"Later": {[]joined{{control: newControl(2)},
			{drain.Report{State: drain.Waiting, Until: soon}, due}}, false,
			"lane 7: the next is due at 2000-01-01T00:00:05Z, 1 waiting, 1 delivered", 0},
		"Paused": {[]joined{{control: newControl(1)},
			{drain.Report{State: drain.Waiting, Until: soon, Paused: true,
				Reason: "the CMS is unavailable"}, newControl(1)}},
			false,
			"lane 7: paused until 2000-01-01T00:00:05Z because the CMS is unavailable, 2 waiting",
			0},
		"Stopped": {[]joined{{control: newControl(1)},
			{drain.Report{State: drain.Waiting, Until: weir.Forever, Paused: true,
				Reason: "an operator has paused it: fire"}, newControl(1)}}, false,
			"lane 7: paused until it is resumed because an operator has paused it: fire, 2 waiting",
			0},
		"KeysStopped": {[]joined{{control: newControl(2)},
			{drain.Report{State: drain.Waiting, Until: weir.Forever.Add(-lane.DueLead)}, due}},
			false,
			"lane 7: the rest is paused until it is resumed, 1 waiting, 1 delivered", 0},
		"Settling": {[]joined{{control: newControl(1)},
			{drain.Report{State: drain.Waiting, Until: soon}, newControl(2)},
			{drain.Report{State: drain.Idle}, newControl(3)}}, false,
			"lane 7: empty, 2 delivered", 5 * time.Second},
		"ToldToEnd": {[]joined{{control: newControl(1)},
			{drain.Report{State: drain.Working}, newControl(2)}}, true,
			"lane 7: told to end before it was empty, 1 waiting, 1 delivered", 0},
		"ShortTrouble": {[]joined{{control: newControl(1)},
			{drain.Report{Err: errors.New("away")}, newControl(1)},
			{drain.Report{Err: errors.New("away")}, newControl(1)},
			{drain.Report{State: drain.Idle}, newControl(3)}},
			false,
			"lane 7: empty, 2 delivered", 0},
		"Trouble": {[]joined{{control: newControl(1)},
			{drain.Report{State: drain.Waiting, Err: errors.New("away")}, newControl(1)}},
			true, "lane 7: storage cannot be reached: away", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start, j := time.Now(), &joins{steps: c.steps}
				e := poll.DrainLane(t.Context(), j, j, 7, time.Now)
				if e.HasWorkLeft() != c.left || e.String() != c.says ||
					time.Since(start) != c.takes {
					t.Errorf("got %q after %s with HasWorkLeft %v; want %q after %s with %v",
						e.String(), time.Since(start), e.HasWorkLeft(), c.says, c.takes, c.left)
				}
			})
		})
	}
}
