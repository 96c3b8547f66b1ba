package httpio

import (
	"time"

	"weir/internal/weir"
)

// Message is a message's state as users see it.
type Message struct {
	ID            string     `json:"id"`
	Stage         weir.Stage `json:"stage"`
	Contract      string     `json:"contract"`
	Key           string     `json:"key"`
	Lane          int        `json:"lane"`
	Sequence      int64      `json:"sequence"`
	Version       string     `json:"version,omitempty"`
	Attempts      int        `json:"attempts"`
	AcceptedAt    time.Time  `json:"acceptedAt"`
	DeliverAt     *time.Time `json:"deliverAt,omitempty"`
	DeliveredAt   *time.Time `json:"deliveredAt,omitempty"`
	FinishedAt    *time.Time `json:"finishedAt,omitempty"`
	NextAttemptAt *time.Time `json:"nextAttemptAt,omitempty"`
	LastError     string     `json:"lastError,omitempty"`
	CMSStatus     int        `json:"cmsStatus,omitempty"`
	SupersededBy  string     `json:"supersededBy,omitempty"`
	Edited        *edited    `json:"edited,omitempty"`
	Replays       int        `json:"replays,omitempty"`
	ReplayAskedAt *time.Time `json:"replayAskedAt,omitempty"`
	ReplayForced  bool       `json:"replayForced,omitempty"`
	ReplayRefused string     `json:"replayRefused,omitempty"`
	Position      int        `json:"position,omitempty"`   // in the line of its key, from 1
	ExpectedAt    *time.Time `json:"expectedAt,omitempty"` // about when it is sent
	WaitsFor      string     `json:"waitsFor,omitempty"`
	AttemptLog    []Attempt  `json:"attemptLog,omitempty"`
}

// edited tells of the body that is sent in place of the one that was accepted.
type edited struct {
	At   time.Time `json:"at"`
	Note string    `json:"note,omitempty"`
}

// Attempt is one try as users see it.
type Attempt struct {
	Number     int          `json:"number"`
	At         time.Time    `json:"at"`
	DurationMS int64        `json:"durationMs"`
	Outcome    weir.Outcome `json:"outcome"`
	Status     int          `json:"status,omitempty"`
	Reason     string       `json:"reason,omitempty"`
	Answer     string       `json:"answer,omitempty"` // the first 2 KB of the CMS's
}

// DescribeStatus gives a message's state as users see it.
func DescribeStatus(st weir.Status) Message {
	m := st.Message
	a := Message{
		ID: m.Public().String(), Stage: st.Stage, Contract: m.Contract, Key: m.Key, Lane: m.ID.Lane, Sequence: m.ID.Seq, Version: m.Version,
		Attempts: st.AttemptCount, AcceptedAt: m.AcceptedAt, DeliverAt: moment(m.DueAt), FinishedAt: moment(st.FinishedAt), NextAttemptAt: moment(st.NextAttemptAt),
		CMSStatus: st.CMSStatus, SupersededBy: st.SupersededBy, LastError: st.LastError,
		Replays: st.Replays, ReplayAskedAt: moment(st.ReplayAskedAt), ReplayForced: st.ReplayForced, ReplayRefused: st.ReplayRefused,
	}
	if !st.EditedAt.IsZero() {
		a.Edited = &edited{st.EditedAt, st.EditNote}
	}
	if st.Stage == weir.Delivered {
		a.DeliveredAt = a.FinishedAt
	}
	for _, t := range st.Attempts {
		a.AttemptLog = append(a.AttemptLog, Attempt{t.Number, t.At.UTC(), t.Duration.Milliseconds(), t.Outcome, t.Status, t.Reason, t.Body})
	}
	return a
}

// Expect adds what a waiting message can expect; zero = not known.
func (m *Message) Expect(position int, at time.Time, waitsFor string) {
	m.Position, m.ExpectedAt, m.WaitsFor = position, moment(at), waitsFor
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
