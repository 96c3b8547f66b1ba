package drain

import (
	"context"

	"weir/internal/lane"
)

// A message that falls due goes behind what was filed before its moment, and before what was
// filed after it. At the moment itself the end of the log is that place. Where nobody was at
// the lane then (it was paused or closed, the CMS away, no process there) or the log was not
// read up to the message, it is looked for afterwards, by the time at which the log's messages
// were accepted: else a newer message of its key, filed meanwhile, would be sent before it.
// But never is a place given in front of something that may have been sent already.

// places gives the places in the log before which messages go that fall due, in order of
// their moments. end is the end of the log.
func (r *run) places(ctx context.Context, entries []*lane.Entry, end int64) (map[*lane.Entry]int64, error) {
	places, now := make(map[*lane.Entry]int64, len(entries)), r.Now()
	for i := len(entries) - 1; i >= 0; i-- {
		e := entries[i]
		if e.Message.DueAt.Before(now) {
			var err error
			if end, err = r.filedBy(ctx, e, max(r.taken, e.Seq()+1), end); err != nil {
				return nil, err
			}
		}
		places[e] = end
	}
	return places, nil
}

// filedBy finds the first place from low up to end of what was filed after an entry's moment.
// It is near the end mostly: so it looks from there backwards, in growing steps.
func (r *run) filedBy(ctx context.Context, e *lane.Entry, low, end int64) (int64, error) {
	for step, found := int64(1), false; low < end; step *= 2 {
		at := max(low, end-step)
		if found {
			at = (low + end) / 2
		}
		before, err := r.filedBefore(ctx, at, e)
		if err != nil {
			return 0, err
		}
		if before {
			low, found = at+1, true
		} else {
			end = at
		}
	}
	return end, nil
}

// filedBefore says whether the message of a number was accepted before an entry's moment.
func (r *run) filedBefore(ctx context.Context, seq int64, e *lane.Entry) (bool, error) {
	found, err := r.Store.ScanLog(ctx, r.lane, seq, 1)
	if err != nil {
		return false, err
	}
	// What is gone was final for long.
	return len(found) == 0 || found[0].Message.AcceptedAt.Before(e.Message.DueAt), nil
}

// bound takes in, where it is not known how far the log was sent, how far that can be at most.
// control was read under this fence.
func (r *run) bound(control lane.Control) {
	if r.taken == 0 {
		r.taken = control.Head.Next
	}
}

// taking notes that a message is about to be sent.
func (r *run) taking(e *lane.Entry) {
	if r.taken != 0 {
		r.taken = max(r.taken, e.Behind())
	}
}
