package overview

import (
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

// Filter says which messages are looked for. What is zero does not matter.
type Filter struct {
	Stage       weir.Stage
	Key         string
	Contract    string
	Fingerprint string // of the failure; dead ones alone have one
	Lane        *int
	From, To    time.Time // accepted at or after, accepted before
	Text        string    // part of key, version, last error, contract or body, in any case
}

// clockMargin is how much later a message may say it was accepted than one behind it in the
// log: the receivers' clocks differ a little, and an append is sent for seconds before it is
// given up.
const clockMargin = time.Minute

// waits says whether only messages are looked for that wait or are dead: those are copied
// into the epoch that follows when one ends, so earlier ones need not be looked at.
func (f *Filter) waits() bool {
	return f.Fingerprint != "" || f.Stage != "" && f.Stage != weir.Delivered && f.Stage != weir.Cancelled && f.Stage != weir.Superseded
}

// lanes are those of an epoch that can hold what is looked for.
func (f *Filter) lanes(e lane.Epoch) []int {
	var lanes []int
	for n := range e.Lanes {
		if (f.Lane == nil || *f.Lane == n) && (f.Key == "" || lane.Of(f.Key, e.Lanes) == n) {
			lanes = append(lanes, n)
		}
	}
	return lanes
}

// takes says whether a message is one of those, as far as its row tells without the body.
func (f *Filter) takes(e *lane.Entry) bool {
	m, st := &e.Message, e.Status()
	switch {
	case f.Stage != "" && st.Stage != f.Stage,
		f.Key != "" && m.Key != f.Key,
		f.Contract != "" && m.Contract != f.Contract,
		!f.From.IsZero() && m.AcceptedAt.Before(f.From),
		!f.To.IsZero() && !m.AcceptedAt.Before(f.To):
		return false
	}
	return f.Fingerprint == "" || st.Stage == weir.Dead && f.died(m.Contract, st.CMSStatus, st.LastError)
}

// takesDead is takes for a line of the list of dead messages.
func (f *Filter) takesDead(d lane.DeadRow) bool {
	return (f.Key == "" || d.Key == f.Key) && (f.Contract == "" || d.Contract == f.Contract) && f.died(d.Contract, d.CMSStatus, d.Reason)
}

func (f *Filter) died(contract string, cmsStatus int, reason string) bool {
	if f.Fingerprint == "" {
		return true
	}
	fingerprint, _ := weir.Fingerprint(contract, cmsStatus, reason)
	return fingerprint == f.Fingerprint
}

// past says whether everything that stands before this message in its log was accepted
// before the span.
func (f *Filter) past(e *lane.Entry) bool {
	return !f.From.IsZero() && e.Message.Origin.IsZero() && e.Message.AcceptedAt.Before(f.From.Add(-clockMargin))
}
