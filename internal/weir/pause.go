package weir

import "time"

// MaxReason limits the characters of the reason that an operator sends with a change.
const MaxReason = 500

// Pause is an operator's pause of a lane, or of one ordering key.
type Pause struct {
	Lane   int
	Key    string // "" = the whole lane
	Reason string
	By     string // the person who signed in, or the name of the key, such as "key 3fa9c2d1"; "" = unknown
	Since  time.Time
	Until  time.Time // zero = until an operator resumes it
}

// Forever is later than every due time, and storage can store it.
var Forever = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// Ends returns the time at which the pause ends.
func (p Pause) Ends() time.Time {
	if p.Until.IsZero() {
		return Forever
	}
	return p.Until
}
