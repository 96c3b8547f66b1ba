package history

import (
	"time"

	"weir/internal/weir"
)

// Minute is what happened in one minute, or in a longer step that begins with it.
type Minute struct {
	At           time.Time              `json:"t"`
	Lanes        map[int]*Lane          `json:"l,omitempty"`
	Attempts     map[weir.Outcome]int64 `json:"a,omitempty"`
	Attempt      Durations              `json:"d,omitempty"` // how long attempts took
	Lag          Durations              `json:"g,omitempty"` // from acceptance, or the due time, to delivery
	Transactions map[string]int64       `json:"x,omitempty"` // by service and operation: "table transact"
}

// Lane is what happened in one lane. Waiting and Oldest are as last seen, where Seen.
type Lane struct {
	Accepted   int64         `json:"a,omitempty"`
	Delivered  int64         `json:"d,omitempty"`
	Dead       int64         `json:"x,omitempty"`
	Cancelled  int64         `json:"c,omitempty"`
	Superseded int64         `json:"s,omitempty"`
	Seen       bool          `json:"v,omitempty"`
	Waiting    int64         `json:"w,omitempty"`
	Oldest     time.Duration `json:"o,omitempty"` // how long the oldest had waited
}

// final counts one message.
func (l *Lane) final(stage weir.Stage) {
	switch stage {
	case weir.Delivered:
		l.Delivered++
	case weir.Dead:
		l.Dead++
	case weir.Cancelled:
		l.Cancelled++
	case weir.Superseded:
		l.Superseded++
	}
}

func newMinute(at time.Time) *Minute {
	return &Minute{At: at, Lanes: map[int]*Lane{}, Attempts: map[weir.Outcome]int64{}, Attempt: Durations{}, Lag: Durations{}, Transactions: map[string]int64{}}
}

func (m *Minute) lane(number int) *Lane {
	l := m.Lanes[number]
	if l == nil {
		l = &Lane{}
		m.Lanes[number] = l
	}
	return l
}

// idle says that nothing was done.
func (m *Minute) idle() bool {
	for _, l := range m.Lanes {
		if *l != (Lane{Seen: l.Seen, Waiting: l.Waiting, Oldest: l.Oldest}) {
			return false
		}
	}
	return len(m.Attempts) == 0
}

// Total is all lanes together: Waiting is their sum, Oldest the oldest of all.
func (m *Minute) Total() Lane {
	var t Lane
	for _, l := range m.Lanes {
		t.plus(l)
		t.Seen = t.Seen || l.Seen
		t.Waiting += l.Waiting
		t.Oldest = max(t.Oldest, l.Oldest)
	}
	return t
}

// AllTransactions is the number of storage transactions.
func (m *Minute) AllTransactions() int64 {
	var n int64
	for _, c := range m.Transactions {
		n += c
	}
	return n
}

// plus adds what was counted.
func (l *Lane) plus(other *Lane) {
	l.Accepted += other.Accepted
	l.Delivered += other.Delivered
	l.Dead += other.Dead
	l.Cancelled += other.Cancelled
	l.Superseded += other.Superseded
}

// plus adds what another instance counted in the same minute, or the same in a later one.
// What waited was seen, not counted: the larger of two stands.
func (m *Minute) plus(other *Minute) {
	for number, l := range other.Lanes {
		mine := m.lane(number)
		mine.plus(l)
		mine.Waiting, mine.Oldest, mine.Seen = max(mine.Waiting, l.Waiting), max(mine.Oldest, l.Oldest), mine.Seen || l.Seen
	}
	for outcome, n := range other.Attempts {
		m.Attempts[outcome] += n
	}
	for name, n := range other.Transactions {
		m.Transactions[name] += n
	}
	m.Attempt.plus(other.Attempt)
	m.Lag.plus(other.Lag)
}
