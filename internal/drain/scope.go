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

// reportFinal reports to the observer that the holder has decided that a message is final.
func (s laneScope) reportFinal(e *lane.Entry, stage weir.Stage, at time.Time) {
	s.observer.Finished(s.lane, Final{Stage: stage, Contract: e.Message.Contract,
		AcceptedAt: e.Message.AcceptedAt, Since: e.WaitingSince(), At: at})
}

// journal hands the decisions of a session to its committer.
type journal struct {
	*committer
	saveProgress func(*lane.Change) // see session.saveProgress
}

// record hands over a change together with the progress of the session.
func (j *journal) record(ch *lane.Change, urgent bool) {
	j.saveProgress(ch)
	j.addChange(ch, urgent)
}

// isFull reports whether the committer has to catch up before more messages are parked without an attempt. Parked
// messages are in memory until their commit, and requests wait for that commit, too.
func (j *journal) isFull() bool { return j.countPending() >= maxParked }
