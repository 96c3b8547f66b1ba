package replay

import (
	"context"

	"weir/internal/lane/lists"
	"weir/internal/weir"
)

// pollSoon resets the poll interval to minPoll. It is called when a message was replayed or became
// final, because other messages are then likely to become final soon.
func (w *jobRun) pollSoon() {
	w.pollInterval = minPoll
	w.pollAt = w.Now().Add(w.pollInterval)
}

// pollOutcomes reads the messages in checkpoint.Open if a poll is due. It counts the outcomes of
// the messages that have become final.
func (w *jobRun) pollOutcomes(ctx context.Context) error {
	if len(w.checkpoint.Open) == 0 || w.pollAt.After(w.Now()) {
		return nil
	}

	states, err := w.readStages(ctx)
	if err != nil {
		return err
	}

	before := len(w.checkpoint.Open)
	open := w.checkpoint.Open[:0:0]
	for n, i := range w.checkpoint.Open {
		if !w.countOutcome(i, states[n]) {
			open = append(open, i)
		}
	}

	w.checkpoint.Open, w.job.Waiting = open, int64(len(open))
	if len(open) < before {
		w.pollSoon()
		return w.saveCheckpoint(ctx)
	}

	w.pollInterval = min(2*w.pollInterval, maxPoll)
	w.pollAt = w.Now().Add(w.pollInterval)

	return nil
}

// readStages returns the states of the messages in checkpoint.Open, in the same order.
func (w *jobRun) readStages(ctx context.Context) ([]lists.MessageState, error) {
	var all []lists.MessageState
	for open := w.checkpoint.Open; len(open) > 0; {
		var seqs []int64
		for len(seqs) < len(open) && open[len(seqs)].lane == open[0].lane {
			seqs = append(seqs, open[len(seqs)].seq)
		}

		states, err := w.Log.ReadStates(ctx, open[0].lane, seqs)
		if err != nil {
			return nil, err
		}

		all, open = append(all, states...), open[len(seqs):]
	}

	return all, nil
}

// countOutcome counts a message's outcome. It returns false if the message is not final yet.
func (w *jobRun) countOutcome(i deadMessage, f lists.MessageState) bool {
	switch {
	case f.Stage == weir.Dead && f.FinishedAt.UnixMicro() == i.diedAt:
		if !f.Refused {
			return false // the holder has not read the request yet
		}
		w.job.Replayed--
		w.job.Refused++

	case f.Stage == weir.Dead:
		w.job.DeadAgain++
	case f.Stage == weir.Delivered:
		w.job.Delivered++
	case f.Stage == "" || f.Stage.Final():
		w.job.Otherwise++
	default:
		return false
	}

	return true
}
