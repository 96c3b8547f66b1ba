package history

import (
	"errors"
	"math"
	"strings"
	"time"

	"weir/internal/clock"
	"weir/internal/weir"
)

// Minute has the counts of one minute, or of a longer step.
type Minute struct {
	At       time.Time              `json:"t"` // beginning of the minute or the step
	Lanes    map[int]*Lane          `json:"l,omitempty"`
	Attempts map[weir.Outcome]int64 `json:"a,omitempty"`
	Attempt  Durations              `json:"d,omitempty"` // durations of attempts
	// time to delivery, from acceptance, due time or replay
	Lag Durations `json:"g,omitempty"`
	// by service and operation, such as "table transact"
	Transactions map[string]int64 `json:"x,omitempty"`
	// time of the last attempt that was delivered or rejected
	AnsweredAt time.Time `json:"y,omitzero"`
	// time of the last retry or unavailable outcome
	FailedAt time.Time `json:"z,omitzero"`

	Refused   map[Refusal]int64 `json:"r,omitempty"` // refused submissions
	Senders   map[string]int64  `json:"s,omitempty"` // accepted posts, by sender; see Recorder.Sent
	Poisoned  int64             `json:"p,omitempty"` // tickets that the host gave up
	Throttled int64             `json:"h,omitempty"` // requests that storage throttled
}

// Refusal is the reason why a submission was refused.
type Refusal struct {
	Way      string // the way in: WayPost, WayBatch, WayFile or WayBroker
	Reason   string // the kind of the error, such as "invalid"
	Contract string // "" = the root element has no contract, or the document could not be read
	Rule     string // path and name of the first broken rule; "" = the error names no rule
}

// The ways in.
const (
	WayPost   = "post"
	WayBatch  = "batch"
	WayFile   = "file"
	WayBroker = "rabbitmq"
)

// MarshalText implements encoding.TextMarshaler, because a Refusal is a key of a map in JSON.
func (r Refusal) MarshalText() ([]byte, error) {
	return []byte(strings.Join([]string{r.Way, r.Reason, r.Contract, r.Rule}, "\n")), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Refusal) UnmarshalText(text []byte) error {
	parts := strings.SplitN(string(text), "\n", 4)
	if len(parts) != 4 {
		return errors.New("history: a refusal has four parts")
	}
	r.Way, r.Reason, r.Contract, r.Rule = parts[0], parts[1], parts[2], parts[3]
	return nil
}

// Lane has the counts of one lane. Seen is true if an instance recorded Waiting and Oldest. For
// each minute an instance keeps the last recorded values of these two. If the counts of several
// instances or minutes are added up, Waiting and Oldest are the largest values.
type Lane struct {
	Accepted   int64         `json:"a,omitempty"`
	Delivered  int64         `json:"d,omitempty"`
	Dead       int64         `json:"x,omitempty"`
	Cancelled  int64         `json:"c,omitempty"`
	Superseded int64         `json:"s,omitempty"`
	Discarded  int64         `json:"i,omitempty"`
	Seen       bool          `json:"v,omitempty"`
	Waiting    int64         `json:"w,omitempty"`
	Oldest     time.Duration `json:"o,omitempty"` // age of the oldest waiting message
	// Uncounted is the number of attempts that do not count for their message, because the CMS was
	// away or refused all. UncountedStatus is the last status that the CMS answered; 0 = no answer.
	Uncounted       int64 `json:"u,omitempty"`
	UncountedStatus int   `json:"h,omitempty"`
}

func (l *Lane) countFinal(stage weir.Stage) {
	switch stage {
	case weir.Delivered:
		l.Delivered++
	case weir.Dead:
		l.Dead++
	case weir.Cancelled:
		l.Cancelled++
	case weir.Superseded:
		l.Superseded++
	case weir.Discarded:
		l.Discarded++
	}
}

func newMinute(at time.Time) *Minute {
	return &Minute{At: at, Lanes: map[int]*Lane{}, Attempts: map[weir.Outcome]int64{},
		Attempt: Durations{},
		Lag:     Durations{}, Transactions: map[string]int64{}, Refused: map[Refusal]int64{},
		Senders: map[string]int64{}}
}

func (m *Minute) laneOf(number int) *Lane {
	l := m.Lanes[number]
	if l == nil {
		l = &Lane{}
		m.Lanes[number] = l
	}
	return l
}

// isIdle reports whether the minute has no activity. Waiting messages and storage transactions do
// not count as activity.
func (m *Minute) isIdle() bool {
	for _, l := range m.Lanes {
		if *l != (Lane{Seen: l.Seen, Waiting: l.Waiting, Oldest: l.Oldest}) {
			return false
		}
	}
	return len(m.Attempts) == 0 && len(m.Refused) == 0 && m.Poisoned == 0
}

// AllRefused returns the number of refused submissions.
func (m *Minute) AllRefused() int64 {
	var n int64
	for _, c := range m.Refused {
		n += c
	}
	return n
}

// Total returns the sum over all lanes. Oldest is the largest value of all lanes.
func (m *Minute) Total() Lane {
	var t Lane
	for _, l := range m.Lanes {
		t.addCounts(l)
		t.Seen = t.Seen || l.Seen
		t.Waiting += l.Waiting
		t.Oldest = max(t.Oldest, l.Oldest)
	}

	return t
}

// AllTransactions returns the number of storage transactions.
func (m *Minute) AllTransactions() int64 {
	var n int64
	for _, c := range m.Transactions {
		n += c
	}
	return n
}

// addCounts adds all fields of another Lane except Seen, Waiting and Oldest, which are not
// counters.
func (l *Lane) addCounts(other *Lane) {
	l.Accepted += other.Accepted
	l.Delivered += other.Delivered
	l.Dead += other.Dead
	l.Cancelled += other.Cancelled
	l.Superseded += other.Superseded
	l.Discarded += other.Discarded
	if l.Uncounted += other.Uncounted; other.Uncounted > 0 {
		l.UncountedStatus = other.UncountedStatus
	}
}

func (m *Minute) noteAttempt(outcome weir.Outcome, at time.Time) {
	switch outcome {
	case weir.OutcomeDelivered, weir.OutcomeRejected:
		m.AnsweredAt = at
	case weir.OutcomeRetry, weir.OutcomeUnavailable:
		m.FailedAt = at
	}
}

// addMinute adds the counts of another minute. Waiting and Oldest are not counters, so addMinute
// keeps the larger values.
func (m *Minute) addMinute(other *Minute) {
	for number, l := range other.Lanes {
		mine := m.laneOf(number)
		mine.addCounts(l)
		mine.Waiting, mine.Oldest, mine.Seen = max(mine.Waiting, l.Waiting),
			max(mine.Oldest, l.Oldest), mine.Seen ||
				l.Seen
	}

	for outcome, n := range other.Attempts {
		m.Attempts[outcome] += n
	}

	for name, n := range other.Transactions {
		m.Transactions[name] += n
	}

	for refusal, n := range other.Refused {
		m.Refused[refusal] += n
	}

	for sender, n := range other.Senders {
		m.Senders[sender] += n
	}

	m.Poisoned += other.Poisoned
	m.Throttled += other.Throttled
	m.Attempt.addAll(other.Attempt)
	m.Lag.addAll(other.Lag)
	m.AnsweredAt, m.FailedAt = clock.Later(m.AnsweredAt, other.AnsweredAt),
		clock.Later(m.FailedAt, other.FailedAt)
}

// Durations is a histogram: it maps the number of a bucket to the number of durations in the
// bucket. The upper bound of a bucket is the upper bound of the previous bucket, multiplied by the
// fourth root of two. So a quantile above 250 µs is right to within a tenth. All instances have the
// same buckets, so their counts can be added. A nil Durations is empty and can only be read.
type Durations map[int]int64

// bucketsPerDoubling is the number of buckets between a duration and twice that duration.
const bucketsPerDoubling = 4

// bucketUnit is the upper bound of the first bucket.
const bucketUnit = 250 * time.Microsecond

func bucketOf(d time.Duration) int {
	if d <= bucketUnit {
		return 0
	}
	return int(math.Ceil(bucketsPerDoubling * math.Log2(float64(d)/float64(bucketUnit))))
}

// Add counts one duration.
func (h Durations) Add(d time.Duration) { h[bucketOf(d)]++ }

func (h Durations) addAll(other Durations) {
	for b, n := range other {
		h[b] += n
	}
}

// Count returns the number of durations.
func (h Durations) Count() int64 {
	var n int64
	for _, c := range h {
		n += c
	}
	return n
}

// meanOf returns the approximate mean; 0 if there are no durations.
func (h Durations) meanOf() time.Duration {
	var sum float64
	for b, n := range h {
		sum += float64(n) * float64(bucketMiddle(b))
	}
	return time.Duration(sum / float64(max(h.Count(), 1)))
}

// Quantile returns the approximate q-quantile; q is from 0 to 1. The result is the middle of a
// bucket, or 0 if there are no durations.
func (h Durations) Quantile(q float64) time.Duration {
	total := h.Count()
	if total == 0 {
		return 0
	}

	rank, last := int64(math.Ceil(q*float64(total))), 0
	for b := range h {
		last = max(last, b)
	}

	var seen int64
	for b := 0; b < last; b++ {
		if seen += h[b]; seen >= max(rank, 1) {
			return bucketMiddle(b)
		}
	}

	return bucketMiddle(last)
}

func bucketMiddle(b int) time.Duration {
	if b == 0 {
		return bucketUnit / 2
	}
	return time.Duration(float64(bucketUnit) * math.Exp2((float64(b)-0.5)/bucketsPerDoubling))
}
