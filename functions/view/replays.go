package view

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"weir/internal/export"
	"weir/internal/httpio"
	"weir/internal/replay"
	"weir/internal/weir"
)

// Jobs reads bulk replays. If the job does not exist, Get returns the error NotFound.
type Jobs interface {
	List(ctx context.Context) ([]replay.Job, error)
	Get(ctx context.Context, id string) (replay.Job, error)
}

// Replays serves GET /api/replays and GET /api/replays/{id}. All fields are needed.
type Replays struct {
	Jobs   Jobs
	Now    func() time.Time
	Logger *slog.Logger
}

// ServeHTTP implements http.Handler. If the path value "id" is empty, the answer is the list of all
// jobs.
func (f *Replays) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("id") == "" && writeExport(w, r, f.newExport()) {
		return
	}

	answer, err := f.readAnswer(r)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}

	httpio.WriteJSON(w, http.StatusOK, answer)
}

func (f *Replays) readAnswer(r *http.Request) (any, error) {
	if id := r.PathValue("id"); id != "" {
		return f.Jobs.Get(r.Context(), id)
	}

	jobs, err := f.Jobs.List(r.Context())
	if jobs == nil {
		jobs = []replay.Job{}
	}

	return struct {
		Replays []replay.Job `json:"replays"`
	}{jobs}, err
}

// writeExport answers a request for an export with the list as a file, and a request for an unknown
// format with an error. It reports whether it has answered.
func writeExport[T any](w http.ResponseWriter, r *http.Request, list *export.List[T]) bool {
	isAsked, err := list.WriteIfAsked(w, r)
	if err != nil {
		httpio.WriteError(w, r, list.Log,
			&weir.Error{Kind: weir.Malformed, Op: "view", Message: "format " + err.Error()})
	}
	return isAsked || err != nil
}

func (f *Replays) newExport() *export.List[replay.Job] {
	return &export.List[replay.Job]{File: "replays", Name: "replays", Now: f.Now, Log: f.Logger,
		Columns: []string{"id", "state", "reason", "filter.key", "filter.lane", "filter.contract",
			"filter.fingerprint",
			"filter.from", "filter.to", "ratePerMinute", "force", "matched", "replayed",
			"refused", "skipped",
			"delivered",
			"deadAgain", "otherwise", "waiting", "startedAt", "updatedAt", "finishedAt",
			"stopReason"},
		NewRecord: newJobRecord,
		ReadPage: func(ctx context.Context, _ int, _ string) (export.Page[replay.Job], error) {
			jobs, err := f.Jobs.List(ctx)
			return export.Page[replay.Job]{Lines: jobs, End: struct{}{}}, err
		}}
}

// newJobRecord returns the cells of a bulk replay, in the order of the export's columns.
func newJobRecord(j replay.Job) []string {
	laneNumber := ""
	if j.Filter.Lane != nil {
		laneNumber = strconv.Itoa(*j.Filter.Lane)
	}

	cells := []string{j.ID, string(j.State), j.Reason, j.Filter.Key, laneNumber, j.Filter.Contract,
		j.Filter.Fingerprint, export.FormatTime(j.Filter.From), export.FormatTime(j.Filter.To),
		strconv.Itoa(j.RatePerMinute), strconv.FormatBool(j.Force)}

	for _, n := range []int64{j.Matched, j.Replayed, j.Refused, j.Skipped, j.Delivered, j.DeadAgain,
		j.Otherwise, j.Waiting} {
		cells = append(cells, strconv.FormatInt(n, 10))
	}

	return append(cells, export.FormatTime(j.StartedAt), export.FormatTime(j.UpdatedAt),
		export.FormatTime(j.FinishedAt),
		j.StopReason)
}
