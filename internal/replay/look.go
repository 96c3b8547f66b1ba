package replay

import (
	"context"

	"weir/internal/lane"
	"weir/internal/weir"
)

// lookSoon has what is open looked at soon: something was replayed, or came to an end.
func (w *run) lookSoon() {
	w.every = minLook
	w.lookAt = w.Now().Add(w.every)
}

// look finds out what has become of those that were replayed.
func (w *run) look(ctx context.Context) error {
	if len(w.place.Open) == 0 || w.lookAt.After(w.Now()) {
		return nil
	}
	fates, err := w.fates(ctx)
	if err != nil {
		return err
	}
	before := len(w.place.Open)
	open := w.place.Open[:0:0]
	for n, i := range w.place.Open {
		if !w.settled(i, fates[n]) {
			open = append(open, i)
		}
	}
	w.place.Open, w.job.Waiting = open, int64(len(open))
	if len(open) < before {
		w.lookSoon()
		return w.save(ctx)
	}
	w.every = min(2*w.every, maxLook)
	w.lookAt = w.Now().Add(w.every)
	return nil
}

// fates reads how the open ones stand, lane by lane: they are sorted.
func (w *run) fates(ctx context.Context) ([]lane.Fate, error) {
	var all []lane.Fate
	for open := w.place.Open; len(open) > 0; {
		var seqs []int64
		for len(seqs) < len(open) && open[len(seqs)].lane == open[0].lane {
			seqs = append(seqs, open[len(seqs)].seq)
		}
		fates, err := w.Log.Fates(ctx, open[0].lane, seqs)
		if err != nil {
			return nil, err
		}
		all, open = append(all, fates...), open[len(seqs):]
	}
	return all, nil
}

// settled counts what has become of a message; false when that is not known yet.
func (w *run) settled(i item, f lane.Fate) bool {
	switch {
	case f.Stage == weir.Dead && f.FinishedAt.UnixMicro() == i.died:
		if !f.Refused {
			return false // its holder has not seen the wish yet
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
