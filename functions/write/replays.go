package write

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"weir/internal/httpio"
	"weir/internal/replay"
)

// Jobs starts, plans and cancels bulk replays; see replay.Runner.
type Jobs interface {
	Start(ctx context.Context, s replay.Spec) (replay.Job, error)
	Plan(ctx context.Context, s replay.Spec) (replay.Plan, error)
	Cancel(ctx context.Context, id string) (replay.Job, error)
}

// Replays serves POST /api/replays. All fields are needed.
type Replays struct {
	Jobs   Jobs
	Logger *slog.Logger
}

// replaysRequest is the body of a request. The filter must be present; an empty filter selects all dead messages.
type replaysRequest struct {
	Filter *struct {
		Key         *string    `json:"key"`
		Lane        *int       `json:"lane"`
		Contract    *string    `json:"contract"`
		Fingerprint *string    `json:"fingerprint"`
		From        *time.Time `json:"from"`
		To          *time.Time `json:"to"`
	} `json:"filter"`
	DryRun          bool     `json:"dryRun"`
	RatePerMinute   *int     `json:"ratePerMinute"`
	StopAtErrorRate *float64 `json:"stopAtErrorRate"`
	Force           bool     `json:"force"`
	Reason          string   `json:"reason"`
}

// ServeHTTP implements http.Handler.
func (f *Replays) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := f.serveReplay(w, r); err != nil {
		httpio.WriteError(w, r, f.Logger, err)
	}
}

func (f *Replays) serveReplay(w http.ResponseWriter, r *http.Request) error {
	var in replaysRequest
	if err := httpio.ReadJSON(w, r, &in); err != nil {
		return err
	}
	spec, err := in.buildSpec()
	if err != nil {
		return err
	}
	if in.DryRun {
		plan, err := f.Jobs.Plan(r.Context(), spec)
		if err == nil {
			httpio.WriteJSON(w, http.StatusOK, plan)
		}
		return err
	}
	job, err := f.Jobs.Start(r.Context(), spec)
	if err != nil {
		return err
	}
	w.Header().Set("Location", httpio.BaseURL(r)+"/api/replays/"+job.ID)
	httpio.WriteJSON(w, http.StatusAccepted, job)
	f.Logger.Info("write: bulk replay begun", "invocation_id", httpio.InvocationID(r))
	return nil
}

// buildSpec returns the requested job, with defaults for missing fields.
func (in *replaysRequest) buildSpec() (replay.Spec, error) {
	s := replay.Spec{RatePerMinute: replay.DefaultRate, StopAtErrorRate: replay.DefaultErrorRate, Force: in.Force,
		Reason: strings.TrimSpace(in.Reason)}
	if in.Filter == nil {
		return s, invalidError("filter", "a filter is needed; an empty filter selects all dead messages")
	}
	for path, text := range map[string]*string{"filter.key": in.Filter.Key, "filter.contract": in.Filter.Contract,
		"filter.fingerprint": in.Filter.Fingerprint} {
		if text != nil && *text == "" {
			return s, invalidError(path, "is empty: leave it out to select messages with any value")
		}
	}
	s.Filter = replay.Filter{Key: derefOrZero(in.Filter.Key), Lane: in.Filter.Lane,
		Contract: derefOrZero(in.Filter.Contract), Fingerprint: derefOrZero(in.Filter.Fingerprint),
		From: derefOrZero(in.Filter.From).UTC(), To: derefOrZero(in.Filter.To).UTC()}
	if in.RatePerMinute != nil {
		s.RatePerMinute = *in.RatePerMinute
	}
	if in.StopAtErrorRate != nil {
		s.StopAtErrorRate = *in.StopAtErrorRate
	}
	return s, nil
}

func derefOrZero[T any](v *T) (zero T) {
	if v == nil {
		return zero
	}
	return *v
}

// CancelReplays serves DELETE /api/replays/{id}. All fields are needed.
type CancelReplays struct {
	Jobs   Jobs
	Logger *slog.Logger
}

// ServeHTTP implements http.Handler. The id is the path value "id".
func (f *CancelReplays) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	job, err := f.Jobs.Cancel(r.Context(), r.PathValue("id"))
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}
	httpio.WriteJSON(w, http.StatusOK, job)
	f.Logger.Info("write: bulk replay cancelled", "invocation_id", httpio.InvocationID(r))
}
