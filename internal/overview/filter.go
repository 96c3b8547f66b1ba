package overview

import (
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

// Filter selects messages. A zero field matches every message.
type Filter struct {
	Stage       weir.Stage
	Key         string
	Contract    string
	Fingerprint string // of the failure; only dead messages have one
	Lane        *int
	From, To    time.Time // accepted at or after, accepted before
	Text        string    // part of key, version, last error, contract or body; case does not matter
}

// clockMargin bounds how much the times of acceptance in a log can be out of order, because the
// receivers' clocks differ, and an append is tried for seconds.
const clockMargin = time.Minute

// matchesOnlyUnfinished reports whether the filter matches only waiting or dead messages. Those are copied
// into the next epoch, so a search skips earlier epochs.
func (f *Filter) matchesOnlyUnfinished() bool {
	return f.Fingerprint != "" || f.Stage != "" && f.Stage != weir.Delivered && f.Stage != weir.Cancelled &&
		f.Stage != weir.Superseded
}

// matchingLanes returns the lanes of an epoch that can have matching messages.
func (f *Filter) matchingLanes(e lane.Epoch) []int {
	var lanes []int
	for n := range e.Lanes {
		if (f.Lane == nil || *f.Lane == n) && (f.Key == "" || lane.Of(f.Key, e.Lanes) == n) {
			lanes = append(lanes, n)
		}
	}
	return lanes
}

// matches reports whether a message matches, except for the text.
func (f *Filter) matches(e *lane.Entry) bool {
	m, st := &e.Message, e.Status()
	switch {
	case f.Stage != "" && st.Stage != f.Stage,
		f.Key != "" && m.Key != f.Key,
		f.Contract != "" && m.Contract != f.Contract,
		!f.From.IsZero() && m.AcceptedAt.Before(f.From),
		!f.To.IsZero() && !m.AcceptedAt.Before(f.To):
		return false
	}
	return f.Fingerprint == "" || st.Stage == weir.Dead && f.matchesFingerprint(m.Contract, st.CMSStatus, st.LastError)
}

// matchesDead is matches for a row of the list of dead messages.
func (f *Filter) matchesDead(d lane.DeadRow) bool {
	return (f.Key == "" || d.Key == f.Key) && (f.Contract == "" || d.Contract == f.Contract) &&
		f.matchesFingerprint(d.Contract, d.CMSStatus, d.Reason)
}

func (f *Filter) matchesFingerprint(contract string, cmsStatus int, reason string) bool {
	if f.Fingerprint == "" {
		return true
	}
	fingerprint, _ := weir.Fingerprint(contract, cmsStatus, reason)
	return fingerprint == f.Fingerprint
}

// isBeforeSpan reports whether all earlier messages of the log were accepted before the wanted span.
func (f *Filter) isBeforeSpan(e *lane.Entry) bool {
	return !f.From.IsZero() && e.Message.Origin.IsZero() && e.Message.AcceptedAt.Before(f.From.Add(-clockMargin))
}
