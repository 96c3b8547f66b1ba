package weir

import "time"

// MaxReason is the size of a pause's reason in characters.
const MaxReason = 500

// Pause is what an operator has stopped for a while: a lane, or one ordering key.
type Pause struct {
	Lane   int
	Key    string // "" = the whole lane
	Reason string
	Since  time.Time
	Until  time.Time // zero = until it is resumed
}

// Forever is later than anything waits for; a row can still hold it.
var Forever = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// Ends is the moment from which it has no effect any more.
func (p Pause) Ends() time.Time {
	if p.Until.IsZero() {
		return Forever
	}
	return p.Until
}
