package httpio

import (
	"time"

	"weir/internal/weir"
)

// Pause is the JSON form of an operator's pause.
type Pause struct {
	Scope  string     `json:"scope"` // lane or key
	Lane   int        `json:"lane"`
	Key    string     `json:"key,omitempty"`
	Reason string     `json:"reason"`
	Since  time.Time  `json:"since"`
	Until  *time.Time `json:"until,omitempty"` // absent = until it is resumed
}

// DescribePauses returns the JSON form of pauses; never nil, so that it is never null.
func DescribePauses(pauses []weir.Pause) []Pause {
	out := []Pause{}
	for _, p := range pauses {
		one := Pause{Scope: "lane", Lane: p.Lane, Key: p.Key, Reason: p.Reason, Since: p.Since,
			Until: timeOrNil(p.Until)}
		if p.Key != "" {
			one.Scope = "key"
		}
		out = append(out, one)
	}
	return out
}

// Calendar knows the times in which nothing is sent; see package calendar.
type Calendar interface {
	At(t time.Time) (closed bool, reason string, until time.Time)
	Next(t time.Time) time.Time
}

// CalendarState is the JSON form of the calendar at one time.
type CalendarState struct {
	Closed     bool       `json:"closed"`
	Until      *time.Time `json:"until,omitempty"` // end of the closed time
	Reason     string     `json:"reason,omitempty"`
	NextChange *time.Time `json:"nextChange,omitempty"`
}

// DescribeCalendar returns the state of the calendar at a time.
func DescribeCalendar(c Calendar, now time.Time) CalendarState {
	closed, reason, until := c.At(now)
	return CalendarState{Closed: closed, Reason: reason, Until: timeOrNil(until), NextChange: timeOrNil(c.Next(now))}
}
