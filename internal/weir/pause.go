package weir

import "time"

// MaxReason limits the reason that an operator sends with a change, in characters.
const MaxReason = 500

// Pause is an operator's pause of a lane, or of one ordering key.
type Pause struct {
	Lane   int
	Key    string // "" = the whole lane
	Reason string
	By     string // the user who signed in, or the function key as "key" and an id ("key 3fa9c2d1"); "" = unknown
	Since  time.Time
	Until  time.Time // zero = until an operator resumes it
}

// Forever stands for a time that never comes. Storage can store it. Only due times in the year 9999 are later.
var Forever = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// Ends returns the time at which the pause ends; Forever if it ends when an operator resumes it.
func (p Pause) Ends() time.Time {
	if p.Until.IsZero() {
		return Forever
	}
	return p.Until
}
