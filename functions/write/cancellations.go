package write

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"weir/internal/bulkcancel"
	"weir/internal/httpio"
	"weir/internal/weir"
)

// ManyCanceller cancels the waiting messages that a filter selects; see bulkcancel.Canceller.
type ManyCanceller interface {
	CancelWaiting(ctx context.Context, f bulkcancel.Filter, from bulkcancel.Position, limit int,
		dryRun bool) (bulkcancel.Counts, bulkcancel.Position, bool, error)
}

// Cancellations serves POST /api/cancellations. All fields are needed.
type Cancellations struct {
	Log    ManyCanceller
	Caller Caller
	Lanes  int
	Now    func() time.Time
	Logger *slog.Logger
}

const (
	// After maxRead messages, a bulk cancellation or discard reads no further page. If a storage operation takes 10
	// ms, a request reads and changes that many messages in less than maxWalkTime.
	maxRead = 20_000
	// maxWalkTime limits the time of a bulk cancellation or discard. The host waits 230 s for an answer.
	maxWalkTime = 20 * time.Second
)

// cancellationsRequest is the body of a request. The filter needs a condition or "all": true. Otherwise an
// empty object, or a script with an empty variable, would cancel every waiting message.
type cancellationsRequest struct {
	Filter struct {
		All       bool       `json:"all"`
		Key       *string    `json:"key"`
		KeyPrefix *string    `json:"keyPrefix"`
		Contract  *string    `json:"contract"`
		Stage     *string    `json:"stage"`
		Lane      *int       `json:"lane"`
		From      *time.Time `json:"from"`
		To        *time.Time `json:"to"`
	} `json:"filter"`
	DryRun   bool   `json:"dryRun"`
	Reason   string `json:"reason"`
	Continue string `json:"continue"`
}

// cancellationsAnswer says how many messages one request selected and changed.
type cancellationsAnswer struct {
	Selected  int64     `json:"selected"`
	Cancelled int64     `json:"cancelled"`
	Asked     int64     `json:"asked"`
	TooLate   int64     `json:"tooLate"`
	To        time.Time `json:"to"`
	Complete  bool      `json:"complete"`
	Continue  string    `json:"continue,omitempty"`
}

// continuation is the content of the field "continue" of an answer.
type continuation struct {
	bulkcancel.Position
	To time.Time `json:"t"`
}

// ServeHTTP implements http.Handler. It answers a dry run with 200. It answers a cancellation with 202, because the
// holders cancel some of the messages later. The stages of the messages show the result.
func (f *Cancellations) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := f.serveCancellations(w, r); err != nil {
		httpio.WriteError(w, r, f.Logger, err)
	}
}

func (f *Cancellations) serveCancellations(w http.ResponseWriter, r *http.Request) error {
	var in cancellationsRequest
	if err := httpio.ReadJSON(w, r, &in); err != nil {
		return err
	}
	filter, from, err := in.parseRequest(f.Lanes, f.Now())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), maxWalkTime)
	defer cancel()
	counts, at, complete, err := f.Log.CancelWaiting(ctx, filter, from, maxRead, in.DryRun)
	if err != nil && ctx.Err() != nil && r.Context().Err() == nil {
		err = nil // maxWalkTime is over: the client sends another request, with the answer's field "continue"
	}
	for _, number := range counts.Lanes {
		f.Caller.Call(number)
	}
	f.Logger.Info("write: bulk cancel", "invocation_id", httpio.InvocationID(r), "lane", counts.Lanes, "key",
		filter.Key+filter.KeyPrefix,
		"outcome", fmt.Sprintf("%d selected, %d cancelled, %d asked, %d too late", counts.Selected, counts.Cancelled,
			counts.Asked, counts.TooLate),
		"reason", strings.TrimSpace(in.Reason), "err", err)
	if err != nil {
		return err
	}
	out := cancellationsAnswer{counts.Selected, counts.Cancelled, counts.Asked, counts.TooLate, filter.To, complete, ""}
	if !complete {
		out.Continue = writeContinuation(continuation{at, filter.To})
	}
	status := http.StatusAccepted
	if in.DryRun {
		status = http.StatusOK
	}
	httpio.WriteJSON(w, status, out)
	return nil
}

// parseRequest checks a request, and returns its filter and the position at which it begins or continues.
func (in *cancellationsRequest) parseRequest(lanes int, now time.Time) (bulkcancel.Filter, bulkcancel.Position, error) {
	var c continuation
	f := bulkcancel.Filter{Key: derefOrZero(in.Filter.Key), KeyPrefix: derefOrZero(in.Filter.KeyPrefix),
		Contract: derefOrZero(in.Filter.Contract),
		Stage:    weir.Stage(derefOrZero(in.Filter.Stage)), Lane: in.Filter.Lane,
		From: derefOrZero(in.Filter.From).UTC(),
		To:   derefOrZero(in.Filter.To).UTC()}
	if err := in.checkFilter(f, lanes); err != nil {
		return f, c.Position, err
	}
	if in.Continue != "" {
		var err error
		if c, err = readContinuation(in.Continue); err != nil {
			return f, c.Position, err
		}
		if f.To.IsZero() {
			f.To = c.To
		}
	}
	if f.To.IsZero() {
		// Without an end, the request would also cancel messages that arrive while it runs, and might never end.
		f.To = now.UTC()
	}
	return f, c.Position, nil
}

var waitingStages = []weir.Stage{weir.Scheduled, weir.Queued, weir.Retrying}

func (in *cancellationsRequest) checkFilter(f bulkcancel.Filter, lanes int) error {
	conditions := 0
	for path, text := range map[string]*string{"filter.key": in.Filter.Key, "filter.keyPrefix": in.Filter.KeyPrefix,
		"filter.contract": in.Filter.Contract, "filter.stage": in.Filter.Stage} {
		switch {
		case text == nil:
			continue
		case *text == "":
			return invalidError(path, "is empty: leave it out to select messages with any value")
		case len(*text) > maxKey:
			return invalidError(path, fmt.Sprintf("has more than %d bytes", maxKey))
		}
		conditions++
	}
	if in.Filter.Lane != nil || in.Filter.From != nil || in.Filter.To != nil {
		conditions++
	}
	switch {
	case conditions == 0 && !in.Filter.All:
		return invalidError("filter", `needs a condition, or "all": true to cancel everything that waits`)
	case conditions > 0 && in.Filter.All:
		return invalidError("filter.all", "cannot be combined with another condition")
	case f.Key != "" && f.KeyPrefix != "":
		return invalidError("filter.keyPrefix", "cannot be combined with filter.key")
	case f.Stage != "" && !slices.Contains(waitingStages, f.Stage):
		return invalidError("filter.stage", fmt.Sprintf("is one of %v: other messages do not wait", waitingStages))
	case f.Lane != nil && (*f.Lane < 0 || *f.Lane >= lanes):
		return invalidError("filter.lane", fmt.Sprintf("is a number from 0 to %d", lanes-1))
	case !f.From.IsZero() && !f.To.IsZero() && !f.From.Before(f.To):
		return invalidError("filter.to", "is not later than filter.from")
	case utf8.RuneCountInString(in.Reason) > weir.MaxReason:
		return invalidError("reason", fmt.Sprintf("has more than %d characters", weir.MaxReason))
	}
	return nil
}

func writeContinuation(c continuation) string {
	data, _ := json.Marshal(c) // cannot fail: c has only numbers, a row's key, and a time whose year JSON allows
	return base64.RawURLEncoding.EncodeToString(data)
}

func readContinuation(token string) (c continuation, err error) {
	data, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err != nil || !c.IsValid() || c.To.IsZero() {
		return c, invalidError("continue", "is not from an earlier answer")
	}
	return c, nil
}
