package httpio

import (
	"time"

	"weir/internal/weir"
)

// Message is the JSON form of a message's state.
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
	Position      int        `json:"position,omitempty"`   // in the queue of its key, from 1
	ExpectedAt    *time.Time `json:"expectedAt,omitempty"` // estimated time of sending
	WaitsFor      string     `json:"waitsFor,omitempty"`
	AttemptLog    []Attempt  `json:"attemptLog,omitempty"`
}

// edited describes the body that is sent in place of the accepted one.
type edited struct {
	At   time.Time `json:"at"`
	Note string    `json:"note,omitempty"`
}

// Attempt is the JSON form of an attempt.
type Attempt struct {
	Number     int          `json:"number"`
	At         time.Time    `json:"at"`
	DurationMS int64        `json:"durationMs"`
	Outcome    weir.Outcome `json:"outcome"`
	Status     int          `json:"status,omitempty"`
	Reason     string       `json:"reason,omitempty"`
	Answer     string       `json:"answer,omitempty"` // the first 2 KB of the CMS's answer
}

// DescribeStatus returns the JSON form of a message's state.
func DescribeStatus(st weir.Status) Message {
	m := st.Message
	a := Message{
		ID: m.Public().String(), Stage: st.Stage, Contract: m.Contract, Key: m.Key, Lane: m.ID.Lane, Sequence: m.ID.Seq,
		Version:  m.Version,
		Attempts: st.AttemptCount, AcceptedAt: m.AcceptedAt, DeliverAt: timeOrNil(m.DueAt),
		FinishedAt: timeOrNil(st.FinishedAt), NextAttemptAt: timeOrNil(st.NextAttemptAt),
		CMSStatus: st.CMSStatus, SupersededBy: st.SupersededBy, LastError: st.LastError,
		Replays: st.Replays, ReplayAskedAt: timeOrNil(st.ReplayAskedAt), ReplayForced: st.ReplayForced,
		ReplayRefused: st.ReplayRefused,
	}
	if !st.EditedAt.IsZero() {
		a.Edited = &edited{st.EditedAt, st.EditNote}
	}
	if st.Stage == weir.Delivered {
		a.DeliveredAt = a.FinishedAt
	}
	for _, t := range st.Attempts {
		a.AttemptLog = append(a.AttemptLog,
			Attempt{t.Number, t.At.UTC(), t.Duration.Milliseconds(), t.Outcome, t.Status, t.Reason, t.Body})
	}
	return a
}

// AddForecast adds the forecast of a waiting message; zero = not known.
func (m *Message) AddForecast(position int, at time.Time, waitsFor string) {
	m.Position, m.ExpectedAt, m.WaitsFor = position, timeOrNil(at), waitsFor
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
