package weir

import "time"

// MaxReason is the largest length of an operator's reason for a change, in characters.
const MaxReason = 500

// Pause is an operator's pause of a lane, or of one ordering key.
type Pause struct {
	Lane   int
	Key    string // "" = the whole lane
	Reason string
	By     string // signed-in user, or id of the function key ("key 3fa9c2d1"); "" = unknown
	Since  time.Time
	Until  time.Time // zero = until an operator ends the pause
}

// Forever stands for a time that never comes. It is the beginning of the year 9999, the last year
// that storage can store.
var Forever = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// Ends returns the time at which the pause ends, or Forever if an operator must end it.
func (p Pause) Ends() time.Time {
	if p.Until.IsZero() {
		return Forever
	}
	return p.Until
}
