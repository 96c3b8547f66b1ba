package drain

import (
	"log/slog"
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

// laneScope has the values that the parts of a session share.
type laneScope struct {
	store    *lane.Store
	lane     int
	fence    int64
	now      func() time.Time
	log      *slog.Logger
	observer Observer
}

// reportFinal notifies the observer that the holder has decided to make a message final.
func (s laneScope) reportFinal(e *lane.Entry, stage weir.Stage, at time.Time) {
	s.observer.Finished(s.lane, Final{Stage: stage, Contract: e.Message.Contract,
		AcceptedAt: e.Message.AcceptedAt, Since: e.WaitingSince(), At: at})
}

// journal hands the decisions of a session to its committer.
type journal struct {
	*committer
	saveProgress func(*lane.Change) // see session.saveProgress
}

// record adds the session's progress to a change, and hands the change to the committer. An urgent change is committed
// at once.
func (j *journal) record(ch *lane.Change, urgent bool) {
	j.saveProgress(ch)
	j.addChange(ch, urgent)
}

// isFull reports whether so many changes are uncommitted that no further message may be parked. More parked messages
// would take more memory, and would delay requests, because requests wait for these commits.
func (j *journal) isFull() bool { return j.countPending() >= maxParked }
