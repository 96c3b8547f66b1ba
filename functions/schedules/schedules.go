// Package schedules is the function for schedules, below /api/schedules:
//
//   - GET lists the schedules.
//   - PUT, GET and DELETE of /{name} store, read and remove a schedule.
//   - POST of /{name}/run accepts a message of the schedule now.
//   - POST of /{name}/pause pauses a schedule, and POST of /{name}/resume resumes it.
//   - GET of /{name}/preview lists the next runs of the stored schedule.
//   - POST of /{name}/preview lists the next runs of the definition in the body, and does not store
//     the definition.
package schedules

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"weir/internal/filing"
	"weir/internal/httpio"
	"weir/internal/lane"
	"weir/internal/recur"
	"weir/internal/redact"
	"weir/internal/weir"
	"weir/internal/wire"
)

// Schedules stores and runs schedules. All methods except Put, List and Try return NotFound if
// there is no such schedule. Put and Delete return Stale if the stored schedule does not meet cond.
type Schedules interface {
	Reader
	Put(ctx context.Context, name string, d recur.Definition, cond recur.Condition) (
		s recur.Schedule, created bool, err error)
	Delete(ctx context.Context, name string, cond recur.Condition) error
	Run(ctx context.Context, name string) (receipt lane.Receipt, run int64, err error)
	SetPaused(ctx context.Context, name string, isPaused bool) (recur.Schedule, error)
}

// Reader reads and previews schedules. Preview returns the next n runs of a stored schedule. Try
// returns the next n runs of a definition that is not stored.
type Reader interface {
	Get(ctx context.Context, name string) (recur.Schedule, error)
	List(ctx context.Context) ([]recur.Schedule, error)
	Preview(ctx context.Context, name string, n int) (recur.Preview, error)
	Try(ctx context.Context, d recur.Definition, n int) (recur.Preview, error)
}

// Stored reads an accepted message with its body. LoadMessage returns NotFound if there is no such
// message.
type Stored interface {
	LoadMessage(ctx context.Context, id weir.ID) (weir.Message, error)
}

// Turns limits the previews at the same time; see httpio.Turns.
type Turns interface {
	Take(ctx context.Context, size int64) (done func(), err error)
}

// Function serves schedules. All fields are needed.
type Function struct {
	Schedules Schedules
	Stored    Stored
	Contracts redact.Contracts
	Intake    *httpio.Intake
	Turns     Turns
	MaxBody   int64 // the largest size of a message's body, in bytes
	Now       func() time.Time
	Logger    *slog.Logger
}

// Routes returns the handlers by their path below /api/schedules.
func (f *Function) Routes() map[string]http.Handler {
	only := func(h func(http.ResponseWriter, *http.Request) error, methods ...string) http.Handler {
		return httpio.AllowMethods(f.handleNamed(h), methods...)
	}
	return map[string]http.Handler{
		"":                only(f.serveList, http.MethodGet),
		"/{name}":         only(f.serveOne, http.MethodGet, http.MethodPut, http.MethodDelete),
		"/{name}/run":     only(f.runNow, http.MethodPost),
		"/{name}/pause":   only(f.pauseSchedule, http.MethodPost),
		"/{name}/resume":  only(f.resumeSchedule, http.MethodPost),
		"/{name}/preview": only(f.servePreview, http.MethodGet, http.MethodPost),
	}
}

// handleNamed checks the name in the path, if there is one, and then calls h. An error of the check
// or of h becomes the answer.
func (f *Function) handleNamed(h func(http.ResponseWriter, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var err error
		if strings.Contains(r.Pattern, "{name}") {
			err = recur.CheckName(r.PathValue("name"))
		}

		if err == nil {
			err = h(w, r)
		}

		if err != nil {
			httpio.WriteError(w, r, f.Logger, err)
		}
	})
}

func (f *Function) serveList(w http.ResponseWriter, r *http.Request) error {
	isAsked, err := f.newExport().WriteIfAsked(w, r)
	if err != nil {
		return malformedError("format " + err.Error())
	}
	if isAsked {
		return nil
	}

	all, err := f.listSchedules(r.Context())
	if err != nil {
		return err
	}

	httpio.WriteJSON(w, http.StatusOK, wire.ScheduleList{Schedules: all})

	return nil
}

func (f *Function) listSchedules(ctx context.Context) ([]wire.Schedule, error) {
	all, err := f.Schedules.List(ctx)
	out := []wire.Schedule{}
	for _, s := range all {
		s.Message = nil // only the answer about a single schedule shows the message
		out = append(out, describeSchedule(s))
	}
	return out, err
}

func (f *Function) serveOne(w http.ResponseWriter, r *http.Request) error {
	switch r.Method {
	case http.MethodPut:
		return f.putSchedule(w, r)
	case http.MethodDelete:
		return f.deleteSchedule(w, r)
	}

	s, err := f.Schedules.Get(r.Context(), r.PathValue("name"))
	if err != nil {
		return err
	}

	f.writeSchedule(w, r, http.StatusOK, s)

	return nil
}

// writeSchedule answers with a schedule. The ETag is the version of the definition, so a run does
// not change the ETag. The answer hides the message's redacted values. If Weir cannot find these
// values, the answer has no message.
func (f *Function) writeSchedule(w http.ResponseWriter, r *http.Request, status int,
	s recur.Schedule) {
	w.Header().Set("ETag", strconv.Quote(s.Version))
	s.Message = redact.HideTemplate(r.Context(), f.Contracts, s.ContentType, s.Message)
	httpio.WriteJSON(w, status, describeSchedule(s))
}

func (f *Function) putSchedule(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	cond, err := readCondition(r)
	if err != nil {
		return err
	}

	d, release, err := f.readDefinition(w, r)
	defer release()
	if err != nil {
		return err
	}

	s, created, err := f.Schedules.Put(r.Context(), name, d, cond)
	if err != nil {
		return err
	}

	status := http.StatusOK
	if created {
		status = http.StatusCreated
		w.Header().Set("Location", httpio.BaseURL(r)+"/api/schedules/"+name)
	}

	f.writeSchedule(w, r, status, s)

	return nil
}

func (f *Function) deleteSchedule(w http.ResponseWriter, r *http.Request) error {
	cond, err := readCondition(r)
	if err != nil {
		return err
	}

	name := r.PathValue("name")
	if err := f.Schedules.Delete(r.Context(), name, cond); err != nil {
		return err
	}

	// The status is not 204, because a host that forwards requests closes the client's connection
	// after a 204.
	httpio.WriteJSON(w, http.StatusOK, deletedJSON{Name: name, Deleted: true})

	return nil
}

func (f *Function) pauseSchedule(w http.ResponseWriter, r *http.Request) error {
	return f.setPaused(w, r, true)
}

func (f *Function) resumeSchedule(w http.ResponseWriter, r *http.Request) error {
	return f.setPaused(w, r, false)
}

func (f *Function) setPaused(w http.ResponseWriter, r *http.Request, isPaused bool) error {
	s, err := f.Schedules.SetPaused(r.Context(), r.PathValue("name"), isPaused)
	if err == nil {
		f.writeSchedule(w, r, http.StatusOK, s)
	}
	return err
}

func (f *Function) runNow(w http.ResponseWriter, r *http.Request) error {
	key, err := filing.ReadIdempotencyKey(r.Header["Idempotency-Key"])
	if err != nil {
		return err
	}

	ctx := r.Context()
	if key != "" {
		ctx = weir.WithCall(ctx, "key "+key)
	}

	receipt, run, err := f.Schedules.Run(ctx, r.PathValue("name"))
	if err != nil {
		return err
	}

	m := receipt.Message
	w.Header().Set("Location", httpio.BaseURL(r)+"/api/messages/"+m.ID.String())
	httpio.WriteJSON(w, http.StatusAccepted, wire.RunReceipt{
		ID: m.ID.String(), Stage: receipt.Stage, Key: m.Key, Lane: m.ID.Lane, Sequence: m.ID.Seq,
		AcceptedAt: m.AcceptedAt, Run: run,
	})

	return nil
}

const defaultPreview = 20

func (f *Function) servePreview(w http.ResponseWriter, r *http.Request) error {
	n := defaultPreview
	if text := r.URL.Query().Get("count"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 || n > recur.MaxPreview {
			return &weir.Error{Kind: weir.Malformed, Op: "schedules",
				Message: "count is a number from 1 to " + strconv.Itoa(recur.MaxPreview)}
		}
	}

	p, err := f.previewRuns(w, r, n)
	if err != nil {
		return err
	}

	httpio.WriteJSON(w, http.StatusOK, describePreview(p))

	return nil
}

// previewRuns returns the next runs of the stored schedule, or of the definition in the request.
func (f *Function) previewRuns(w http.ResponseWriter, r *http.Request,
	n int) (recur.Preview, error) {
	if r.Method == http.MethodGet {
		done, err := f.Turns.Take(r.Context(), f.MaxBody) // for the message of the stored schedule
		defer done()
		if err != nil {
			return recur.Preview{}, err
		}
		return f.Schedules.Preview(r.Context(), r.PathValue("name"), n)
	}

	d, release, err := f.readDefinition(w, r)
	defer release()
	if err != nil {
		return recur.Preview{}, err
	}

	done, err := f.Turns.Take(r.Context(), 0) // release already holds the memory
	defer done()
	if err != nil {
		return recur.Preview{}, err
	}

	return f.Schedules.Try(r.Context(), d, n)
}

// readCondition parses If-Match and If-None-Match.
func readCondition(r *http.Request) (recur.Condition, error) {
	var c recur.Condition
	for _, header := range r.Header.Values("If-Match") {
		for tag := range strings.SplitSeq(header, ",") {
			tag = strings.TrimPrefix(strings.TrimSpace(tag), "W/") // a compressing proxy adds W/
			if tag != "*" && (len(tag) < 2 || tag[0] != '"' || tag[len(tag)-1] != '"') {
				return c, &weir.Error{Kind: weir.Malformed, Op: "schedules",
					Message: "If-Match must have ETags in quotation marks, or *"}
			}
			c.Versions = append(c.Versions, strings.Trim(tag, `"`))
		}
	}

	switch strings.TrimSpace(r.Header.Get("If-None-Match")) {
	case "":
	case "*":
		c.NotExists = true
	default:
		return c, &weir.Error{Kind: weir.Malformed, Op: "schedules",
			Message: "If-None-Match may only be *, for a schedule that is not there yet"}
	}

	return c, nil
}
