package limiter

import "time"

// appetite decides how many slots a process reserves beyond the requests that wait. A lane that
// sends one message after the other has never more than one request that waits; without slots
// ahead, it would send one message for each write of the row. Slots that are lost could have been
// another process's, so the appetite grows only while at most a tenth is lost.
type appetite struct {
	most int // slots of two seconds; 0 = the rate is too low to reserve ahead

	ahead      int // slots to have ahead
	used, lost int // since the last reservation
	usedAt     time.Time
}

// newAppetite returns the appetite for a rate. Below two requests in a second a process does not
// reserve ahead: the slots come more slowly than the process can reserve.
func newAppetite(r Rate) appetite {
	perSecond := int(time.Duration(r.Count) * time.Second / r.Per)
	if perSecond < 2 {
		return appetite{}
	}

	return appetite{most: 2 * perSecond}
}

func (a *appetite) recordUsed(now time.Time) { a.used, a.usedAt = a.used+1, now }

// adjust is called at each reservation. The appetite grows while at most a tenth of the slots is
// lost.
func (a *appetite) adjust() {
	switch {
	case 10*a.lost > a.used:
		a.ahead = min(a.used, a.most)
	case a.used > 0:
		a.ahead = min(max(2*a.ahead, a.most/4, 1), a.most)
	}

	a.used, a.lost = 0, 0
}

// missing returns how many slots to reserve, if so many requests wait and so many slots are left. It
// reserves ahead when half of the slots ahead are used.
func (a *appetite) missing(waiting, left int, now time.Time) int {
	ahead := a.ahead
	if a.usedAt.IsZero() || now.Sub(a.usedAt) > time.Second {
		ahead = 0
	}

	if left >= waiting && 2*left > ahead {
		return 0
	}

	return max(0, max(waiting, ahead)-left)
}
