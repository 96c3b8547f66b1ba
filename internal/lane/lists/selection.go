package lists

import (
	"regexp"
	"strings"
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

// Selection selects the messages of a bulk change that match all of its fields. An empty field
// matches every message.
type Selection struct {
	Key         string
	KeyPrefix   string // of waiting messages alone
	Contract    string
	Stage       weir.Stage // of waiting messages alone: scheduled, queued or retrying
	Fingerprint string     // of dead messages alone: that of the error; see weir.Fingerprint
	Lane        *int
	From, To    time.Time // accepted at or after From, and before To; for dead messages: died
}

// LanesOf returns those of the store's lanes that can have selected messages.
func (s *Selection) LanesOf(store *lane.Store) []int {
	var lanes []int
	for i := range store.Lanes {
		if (s.Lane == nil || *s.Lane == i) && (s.Key == "" || store.LaneOf(s.Key) == i) {
			lanes = append(lanes, i)
		}
	}
	return lanes
}

// HasWaiting reports whether a waiting message is selected.
func (s *Selection) HasWaiting(e *lane.Entry) bool {
	m := &e.Message
	return !e.Stage.Final() && s.hasKey(m.Key, m.Contract) &&
		(s.Stage == "" || e.Stage == s.Stage) &&
		s.hasTime(m.AcceptedAt)
}

// HasDead reports whether a dead message is selected.
func (s *Selection) HasDead(d DeadRow) bool {
	if !s.hasKey(d.Key, d.Contract) || !s.hasTime(d.DiedAt) {
		return false
	}
	if s.Fingerprint == "" {
		return true
	}

	fingerprint, _ := weir.Fingerprint(d.Contract, d.CMSStatus, d.Reason)
	return fingerprint == s.Fingerprint
}

func (s *Selection) hasKey(key, contract string) bool {
	return (s.Key == "" || key == s.Key) && strings.HasPrefix(key, s.KeyPrefix) &&
		(s.Contract == "" || contract == s.Contract)
}

func (s *Selection) hasTime(at time.Time) bool {
	return !at.Before(s.From) && (s.To.IsZero() || at.Before(s.To))
}

var fingerprintPattern = regexp.MustCompile(`^[0-9a-f]{12}$`)

// IsFingerprint reports whether a text has the form of a fingerprint. A selection by another text
// would select nothing, without a word.
func IsFingerprint(text string) bool { return fingerprintPattern.MatchString(text) }
