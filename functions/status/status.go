// Package status is the function that tells where a message is: GET /api/messages/{id}.
package status

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"weir/internal/httpio"
	"weir/internal/weir"
)

// Reader reads a message's state; NotFound for what does not exist.
type Reader interface {
	Status(ctx context.Context, id weir.ID) (weir.Status, error)
}

// Function tells the state of messages. All fields are needed.
type Function struct {
	Log    Reader
	Logger *slog.Logger
}

// answer is a message's state as users see it.
type answer struct {
	ID            string     `json:"id"`
	Stage         weir.Stage `json:"stage"`
	Contract      string     `json:"contract"`
	Key           string     `json:"key"`
	Lane          int        `json:"lane"`
	Sequence      int64      `json:"sequence"`
	Version       string     `json:"version,omitempty"`
	Attempts      int        `json:"attempts"`
	AcceptedAt    time.Time  `json:"acceptedAt"`
	DeliveredAt   *time.Time `json:"deliveredAt,omitempty"`
	FinishedAt    *time.Time `json:"finishedAt,omitempty"`
	NextAttemptAt *time.Time `json:"nextAttemptAt,omitempty"`
	LastError     string     `json:"lastError,omitempty"`
	CMSStatus     int        `json:"cmsStatus,omitempty"`
	SupersededBy  string     `json:"supersededBy,omitempty"`
	AttemptLog    []attempt  `json:"attemptLog,omitempty"`
}

// attempt is one try as users see it.
type attempt struct {
	Number     int          `json:"number"`
	At         time.Time    `json:"at"`
	DurationMS int64        `json:"durationMs"`
	Outcome    weir.Outcome `json:"outcome"`
	Status     int          `json:"status,omitempty"`
	Reason     string       `json:"reason,omitempty"`
}

// ServeHTTP implements http.Handler. The id is the path value "id".
func (f *Function) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, err := weir.ParseID(r.PathValue("id"))
	if err != nil {
		err = &weir.Error{Kind: weir.NotFound, Op: "status", Message: "this is not a message's id", Err: err}
		httpio.WriteError(w, r, f.Logger, err)
		return
	}
	st, err := f.Log.Status(r.Context(), id)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}
	if httpio.NotModified(w, r, st.Version) {
		return
	}
	httpio.WriteJSON(w, http.StatusOK, describe(st))
}

func describe(st weir.Status) answer {
	m := st.Message
	a := answer{
		ID: m.ID.String(), Stage: st.Stage, Contract: m.Contract, Key: m.Key, Lane: m.ID.Lane, Sequence: m.ID.Seq, Version: m.Version,
		Attempts: st.AttemptCount, AcceptedAt: m.AcceptedAt, FinishedAt: moment(st.FinishedAt), NextAttemptAt: moment(st.NextAttemptAt),
		CMSStatus: st.CMSStatus, SupersededBy: st.SupersededBy, LastError: st.LastError,
	}
	if st.Stage == weir.Delivered {
		a.DeliveredAt = a.FinishedAt
	}
	for _, t := range st.Attempts {
		a.AttemptLog = append(a.AttemptLog, attempt{t.Number, t.At.UTC(), t.Duration.Milliseconds(), t.Outcome, t.Status, t.Reason})
	}
	return a
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
