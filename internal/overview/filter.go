package overview

import (
	"strings"
	"time"

	"weir/internal/lane"
	"weir/internal/lane/epochs"
	"weir/internal/lane/lists"
	"weir/internal/weir"
)

// Filter selects messages. A zero field matches every message.
type Filter struct {
	Stage       weir.Stage
	Key         string
	Contract    string
	Upstream    string
	Fingerprint string // see weir.Fingerprint; matches only dead messages
	Lane        *int
	From, To    time.Time // accepted at or after From, and before To
	// part of the key, version, contract, last error, id, body or a shown value; case is ignored
	Text string

	KeyPrefix                string
	Version                  string      // exact version
	CMSStatus                StatusRange // HTTP status of the CMS's last answer
	MinAttempts, MaxAttempts int         // bounds of Status.AttemptCount; 0 = no bound
	// became final at or after FinishedFrom, and before FinishedTo
	FinishedFrom, FinishedTo time.Time
	IdempotencyKey           string // idempotency key of the message's post
	Shown                    ShownFilter
}

// ShownFilter selects messages whose shown value Name (see weir.Message.Shown) contains Text. Case
// does not matter. If Name is empty, the ShownFilter matches every message.
type ShownFilter struct{ Name, Text string }

func (f ShownFilter) matches(m *weir.Message) bool {
	value, isShown := m.Shown[f.Name]
	return f.Name == "" || isShown &&
		strings.Contains(strings.ToLower(value), strings.ToLower(f.Text))
}

// StatusRange is a range of HTTP statuses that includes Low and High. The zero StatusRange matches
// every message, including messages without a status.
type StatusRange struct{ Low, High int }

func (r StatusRange) includes(status int) bool {
	return r == StatusRange{} || r.Low <= status && status <= r.High
}

// clockMargin bounds how far the times of acceptance in a log can be out of order. There are two
// causes: the clocks of receivers differ, and a receiver can repeat a failed append for some
// seconds.
const clockMargin = time.Minute

// namesSubmission reports whether the filter has both a key and an idempotency key. At most one
// message matches such a filter.
func (f *Filter) namesSubmission() bool { return f.Key != "" && f.IdempotencyKey != "" }

// matchesOnlyUnfinished reports whether the filter matches only waiting or dead messages. A search
// with such a filter skips earlier epochs, because a change of the number of lanes delivers these
// messages or copies them to the next epoch.
func (f *Filter) matchesOnlyUnfinished() bool {
	return f.Fingerprint != "" || f.Stage != "" && f.Stage != weir.Delivered &&
		f.Stage != weir.Cancelled &&
		f.Stage != weir.Superseded && f.Stage != weir.Discarded
}

// matchingLanes returns the lanes of an epoch that can have matching messages.
func (f *Filter) matchingLanes(e epochs.Epoch) []int {
	var lanes []int
	for n := range e.Lanes {
		if (f.Lane == nil || *f.Lane == n) && (f.Key == "" || lane.OfKey(f.Key, e) == n) {
			lanes = append(lanes, n)
		}
	}
	return lanes
}

// matches reports whether a message matches the filter. It does not check the fields Lane and Text.
func (f *Filter) matches(e *lane.Entry) bool {
	m, st := &e.Message, e.Status()
	switch {
	case f.Stage != "" && st.Stage != f.Stage,
		f.Key != "" && m.Key != f.Key,
		f.Contract != "" && m.Contract != f.Contract,
		f.Upstream != "" && m.Upstream != f.Upstream,
		!f.From.IsZero() && m.AcceptedAt.Before(f.From),
		!f.To.IsZero() && !m.AcceptedAt.Before(f.To),
		!strings.HasPrefix(m.Key, f.KeyPrefix),
		f.Version != "" && m.Version != f.Version,
		!f.CMSStatus.includes(st.CMSStatus),
		st.AttemptCount < f.MinAttempts,
		f.MaxAttempts > 0 && st.AttemptCount > f.MaxAttempts,
		!f.matchesEnd(&st), !f.Shown.matches(m),
		f.IdempotencyKey != "" && !e.HasIdempotencyKey(f.IdempotencyKey):
		return false
	}

	return f.Fingerprint == "" ||
		st.Stage == weir.Dead && f.matchesFingerprint(m.Contract, st.CMSStatus, st.LastError)
}

// matchesEnd reports whether a message matches FinishedFrom and FinishedTo.
func (f *Filter) matchesEnd(st *weir.Status) bool {
	if f.FinishedFrom.IsZero() && f.FinishedTo.IsZero() {
		return true
	}
	return st.Stage.Final() && !st.FinishedAt.Before(f.FinishedFrom) &&
		(f.FinishedTo.IsZero() || st.FinishedAt.Before(f.FinishedTo))
}

// latestAcceptance returns the earlier one of the times To and FinishedTo; zero = neither is set.
// Each matching message was accepted before the returned time, because a message becomes final only
// after its acceptance.
func (f *Filter) latestAcceptance() time.Time {
	if f.To.IsZero() || !f.FinishedTo.IsZero() && f.FinishedTo.Before(f.To) {
		return f.FinishedTo
	}
	return f.To
}

// matchesDead reports whether a row of the list of dead messages matches Key, KeyPrefix, CMSStatus,
// Contract and Fingerprint.
func (f *Filter) matchesDead(d lists.DeadRow) bool {
	return (f.Key == "" || d.Key == f.Key) && strings.HasPrefix(d.Key, f.KeyPrefix) &&
		f.CMSStatus.includes(d.CMSStatus) && (f.Contract == "" || d.Contract == f.Contract) &&
		f.matchesFingerprint(d.Contract, d.CMSStatus, d.Reason)
}

func (f *Filter) matchesFingerprint(contract string, cmsStatus int, reason string) bool {
	if f.Fingerprint == "" {
		return true
	}
	fingerprint, _ := weir.Fingerprint(contract, cmsStatus, reason)
	return fingerprint == f.Fingerprint
}

// isBeforeSpan reports whether a message was accepted more than clockMargin before From. If so, all
// messages with lower sequence numbers in the lane were also accepted before From. For a copy from
// an earlier epoch, isBeforeSpan returns false, because copies are not sorted by their times of
// acceptance.
func (f *Filter) isBeforeSpan(e *lane.Entry) bool {
	return !f.From.IsZero() && e.Message.Origin.IsZero() &&
		e.Message.AcceptedAt.Before(f.From.Add(-clockMargin))
}
