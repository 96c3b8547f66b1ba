package wire

import (
	"time"

	"weir/internal/weir"
)

// Pause is an operator's pause of a lane or of an ordering key.
type Pause struct {
	Scope  string    `json:"scope"` // "lane" or "key"
	Lane   int       `json:"lane"`
	Key    string    `json:"key,omitempty"`
	Reason string    `json:"reason"`
	By     string    `json:"by,omitempty"` // the user or function key that paused; see weir.Pause
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until,omitzero"` // zero = until an operator ends the pause
}

// NewPauses returns the JSON form of pauses. It never returns nil, because nil would be null in
// JSON.
func NewPauses(pauses []weir.Pause) []Pause {
	out := []Pause{}
	for _, p := range pauses {
		one := Pause{Scope: "lane", Lane: p.Lane, Key: p.Key, Reason: p.Reason, By: p.By,
			Since: p.Since, Until: p.Until}
		if p.Key != "" {
			one.Scope = "key"
		}
		out = append(out, one)
	}

	return out
}

// PauseList has the operators' pauses, and the calendar if the client asked for it.
type PauseList struct {
	Pauses   []Pause   `json:"pauses"`
	Calendar *Calendar `json:"calendar,omitempty"`
}

// Calendar is the state of the calendar at one time.
type Calendar struct {
	// the calendar is closed, so Weir sends nothing
	Closed bool `json:"closed"`
	// end of the closed time; zero if Closed is false
	Until  time.Time `json:"until,omitzero"`
	Reason string    `json:"reason,omitempty"` // reason of the closed time
	// next time at which the calendar closes or opens; zero = none
	NextChange time.Time `json:"nextChange,omitzero"`
}

// CalendarReader knows the times in which Weir sends nothing; see package calendar.
type CalendarReader interface {
	At(t time.Time) (closed bool, reason string, until time.Time)
	Next(t time.Time) time.Time
}

// NewCalendar returns the state of the calendar at a time.
func NewCalendar(c CalendarReader, now time.Time) Calendar {
	closed, reason, until := c.At(now)
	return Calendar{Closed: closed, Until: until, Reason: reason, NextChange: c.Next(now)}
}
