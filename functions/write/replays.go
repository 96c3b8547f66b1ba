package write

import (
	"context"
	"log/slog"
	"net/http"
	"strings"

	"weir/internal/httpio"
	"weir/internal/replay"
	"weir/internal/wire"
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

// ServeHTTP implements http.Handler.
func (f *Replays) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := f.serveReplay(w, r); err != nil {
		httpio.WriteError(w, r, f.Logger, err)
	}
}

func (f *Replays) serveReplay(w http.ResponseWriter, r *http.Request) error {
	var in wire.ReplayRequest
	if err := httpio.ReadJSON(w, r, &in); err != nil {
		return err
	}

	spec, err := buildSpec(in)
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
func buildSpec(in wire.ReplayRequest) (replay.Spec, error) {
	s := replay.Spec{RatePerMinute: replay.DefaultRate, StopAtErrorRate: replay.DefaultErrorRate,
		Force: in.Force, Reason: strings.TrimSpace(in.Reason)}
	if in.Filter == nil {
		return s, invalidError("filter",
			"a filter is needed; an empty filter selects all dead messages")
	}

	n := in.Filter
	form := selectionForm{key: n.Key, contract: n.Contract, fingerprint: n.Fingerprint,
		lane: n.Lane, from: n.From, to: n.To}
	if _, err := form.checkTexts(); err != nil {
		return s, err
	}

	selected := form.selection()
	s.Filter = replay.Filter{Key: selected.Key, Lane: selected.Lane, Contract: selected.Contract,
		Fingerprint: selected.Fingerprint, From: selected.From, To: selected.To}
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
