package httpio

import (
	"time"

	"weir/internal/weir"
)

// Pause is an operator's pause as users see it.
type Pause struct {
	Scope  string     `json:"scope"` // lane or key
	Lane   int        `json:"lane"`
	Key    string     `json:"key,omitempty"`
	Reason string     `json:"reason"`
	Since  time.Time  `json:"since"`
	Until  *time.Time `json:"until,omitempty"` // absent = until it is resumed
}

// Pauses is the list of pauses as users see it; never null.
func Pauses(pauses []weir.Pause) []Pause {
	out := []Pause{}
	for _, p := range pauses {
		one := Pause{Scope: "lane", Lane: p.Lane, Key: p.Key, Reason: p.Reason, Since: p.Since, Until: moment(p.Until)}
		if p.Key != "" {
			one.Scope = "key"
		}
		out = append(out, one)
	}
	return out
}

// Hours say when nothing is sent; see package calendar.
type Hours interface {
	At(t time.Time) (closed bool, reason string, until time.Time)
	Next(t time.Time) time.Time
}

// Calendar is how the calendar stands, as users see it.
type Calendar struct {
	Closed     bool       `json:"closed"`
	Until      *time.Time `json:"until,omitempty"` // it opens
	Reason     string     `json:"reason,omitempty"`
	NextChange *time.Time `json:"nextChange,omitempty"`
}

// CalendarAt tells how the calendar stands at a moment.
func CalendarAt(h Hours, now time.Time) Calendar {
	closed, reason, until := h.At(now)
	return Calendar{Closed: closed, Reason: reason, Until: moment(until), NextChange: moment(h.Next(now))}
}
