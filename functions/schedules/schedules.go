// Package schedules is the function for recurring messages: PUT, GET and DELETE
// /api/schedules/{name}, GET /api/schedules, POST …/{name}/run, and GET …/{name}/preview,
// or POST for a definition that is not stored.
package schedules

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"weir/internal/httpio"
	"weir/internal/lane"
	"weir/internal/recur"
	"weir/internal/weir"
)

// Schedules keeps and runs schedules. A schedule that is not there is NotFound, a
// condition that does not hold Precondition.
type Schedules interface {
	Reader
	Put(ctx context.Context, name string, d recur.Definition, cond recur.Condition) (s recur.Schedule, created bool, err error)
	Delete(ctx context.Context, name string, cond recur.Condition) error
	Run(ctx context.Context, name string) (receipt lane.Receipt, run int64, err error)
}

// Reader tells about schedules.
type Reader interface {
	Get(ctx context.Context, name string) (recur.Schedule, error)
	List(ctx context.Context) ([]recur.Schedule, error)
	Preview(ctx context.Context, name string, n int) (recur.Preview, error)
	Try(ctx context.Context, d recur.Definition, n int) (recur.Preview, error)
}

// Stored reads a message that was filed, with its body; NotFound when there is none.
type Stored interface {
	Load(ctx context.Context, id weir.ID) (weir.Message, error)
}

// Function serves schedules. All fields are needed.
type Function struct {
	Schedules Schedules
	Stored    Stored
	MaxBody   int64 // of a message
	Logger    *slog.Logger
}

// Routes are the function's addresses below /api/schedules, each with its methods.
func (f *Function) Routes() map[string]http.Handler {
	only := func(h func(http.ResponseWriter, *http.Request) error, methods ...string) http.Handler {
		return httpio.AllowMethods(f.handle(h), methods...)
	}
	return map[string]http.Handler{
		"":                only(f.list, http.MethodGet),
		"/{name}":         only(f.one, http.MethodGet, http.MethodPut, http.MethodDelete),
		"/{name}/run":     only(f.run, http.MethodPost),
		"/{name}/preview": only(f.preview, http.MethodGet, http.MethodPost),
	}
}

// handle checks the name, where there is one, and answers with the error, if there is one.
func (f *Function) handle(h func(http.ResponseWriter, *http.Request) error) http.Handler {
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

func (f *Function) list(w http.ResponseWriter, r *http.Request) error {
	all, err := f.Schedules.List(r.Context())
	if err != nil {
		return err
	}
	out := struct {
		Schedules []schedule `json:"schedules"`
	}{[]schedule{}}
	for _, s := range all {
		out.Schedules = append(out.Schedules, describe(s))
	}
	httpio.WriteJSON(w, http.StatusOK, out)
	return nil
}

func (f *Function) one(w http.ResponseWriter, r *http.Request) error {
	switch r.Method {
	case http.MethodPut:
		return f.put(w, r)
	case http.MethodDelete:
		return f.delete(w, r)
	}
	s, err := f.Schedules.Get(r.Context(), r.PathValue("name"))
	if err != nil {
		return err
	}
	f.answer(w, http.StatusOK, s)
	return nil
}

// answer tells about a schedule. The ETag names its definition, which is what If-Match
// guards: it does not change as the schedule runs.
func (f *Function) answer(w http.ResponseWriter, status int, s recur.Schedule) {
	w.Header().Set("ETag", strconv.Quote(s.Version))
	httpio.WriteJSON(w, status, describe(s))
}

func (f *Function) put(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	cond, err := condition(r)
	if err != nil {
		return err
	}
	d, err := f.definition(w, r)
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
	f.answer(w, status, s)
	return nil
}

func (f *Function) delete(w http.ResponseWriter, r *http.Request) error {
	cond, err := condition(r)
	if err != nil {
		return err
	}
	name := r.PathValue("name")
	if err := f.Schedules.Delete(r.Context(), name, cond); err != nil {
		return err
	}
	// Not 204: after one, a host that forwards closes the client's connection.
	httpio.WriteJSON(w, http.StatusOK, deleted{Name: name, Deleted: true})
	return nil
}

func (f *Function) run(w http.ResponseWriter, r *http.Request) error {
	receipt, run, err := f.Schedules.Run(r.Context(), r.PathValue("name"))
	if err != nil {
		return err
	}
	m := receipt.Message
	w.Header().Set("Location", httpio.BaseURL(r)+"/api/messages/"+m.ID.String())
	httpio.WriteJSON(w, http.StatusAccepted, ran{
		ID: m.ID.String(), Stage: receipt.Stage, Key: m.Key, Lane: m.ID.Lane, Sequence: m.ID.Seq, AcceptedAt: m.AcceptedAt, Run: run,
	})
	return nil
}

const defaultPreview = 20

func (f *Function) preview(w http.ResponseWriter, r *http.Request) error {
	n := defaultPreview
	if text := r.URL.Query().Get("count"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 || n > recur.MaxPreview {
			return &weir.Error{Kind: weir.Malformed, Op: "schedules", Message: "count is a number from 1 to " + strconv.Itoa(recur.MaxPreview)}
		}
	}
	p, err := f.runs(w, r, n)
	if err != nil {
		return err
	}
	httpio.WriteJSON(w, http.StatusOK, describePreview(p))
	return nil
}

// runs gives the next runs of the schedule there is, or of the definition sent.
func (f *Function) runs(w http.ResponseWriter, r *http.Request, n int) (recur.Preview, error) {
	if r.Method == http.MethodGet {
		return f.Schedules.Preview(r.Context(), r.PathValue("name"), n)
	}
	d, err := f.definition(w, r)
	if err != nil {
		return recur.Preview{}, err
	}
	return f.Schedules.Try(r.Context(), d, n)
}

// condition reads If-Match and If-None-Match.
func condition(r *http.Request) (recur.Condition, error) {
	var c recur.Condition
	for _, header := range r.Header.Values("If-Match") {
		for tag := range strings.SplitSeq(header, ",") {
			tag = strings.TrimPrefix(strings.TrimSpace(tag), "W/") // a proxy that compresses weakens tags
			if tag != "*" && (len(tag) < 2 || tag[0] != '"' || tag[len(tag)-1] != '"') {
				return c, &weir.Error{Kind: weir.Malformed, Op: "schedules", Message: "If-Match holds ETags in quotation marks, or *"}
			}
			c.Versions = append(c.Versions, strings.Trim(tag, `"`))
		}
	}
	switch strings.TrimSpace(r.Header.Get("If-None-Match")) {
	case "":
	case "*":
		c.NotExists = true
	default:
		return c, &weir.Error{Kind: weir.Malformed, Op: "schedules", Message: "If-None-Match may only be *, for a schedule that is not there yet"}
	}
	return c, nil
}
