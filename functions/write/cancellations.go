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
	"weir/internal/wake"
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
	Waker  wake.Ringer
	Lanes  int
	Now    func() time.Time
	Logger *slog.Logger
}

const (
	// maxRead is the number of messages after which a request for a bulk cancellation or discard reads no further page.
	maxRead = 20_000
	// maxWalkTime limits the time of a request for a bulk cancellation or discard. It is far below the 230 s for which
	// the host waits for an answer.
	maxWalkTime = 20 * time.Second
)

// cancellationsRequest is the body of a request. The filter needs a condition or "all": true. Otherwise a filter that a
// script left empty by mistake would cancel every waiting message.
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

// cancellationsAnswer has the numbers of messages that one request handled; see bulkcancel.Counts.
type cancellationsAnswer struct {
	Selected  int64     `json:"selected"`
	Cancelled int64     `json:"cancelled"`
	Asked     int64     `json:"asked"`
	TooLate   int64     `json:"tooLate"`
	To        time.Time `json:"to"`
	Complete  bool      `json:"complete"`
	Continue  string    `json:"continue,omitempty"`
}

// continuation is the decoded field "continue" of an answer. It has the position from which the next request reads
// messages, and the filter's field "to".
type continuation struct {
	bulkcancel.Position
	To time.Time `json:"t"`
}

// ServeHTTP implements http.Handler. The status is 200 for a dry run, and 202 for a cancellation, because the holders
// cancel some of the messages later. The stages of the messages show the result.
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
		err = nil // maxWalkTime is over; the client can send the answer's field "continue" in another request
	}
	for _, number := range counts.Lanes {
		f.Waker.Ring(number)
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

// parseRequest checks a request, and returns the filter and the position from which to read messages.
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
		// If the filter had no "to", each request would also cancel newly accepted messages. If messages arrived all
		// the time, the client would never reach the last page.
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
		return invalidError("filter.stage", "must be one of scheduled, queued, retrying: other messages do not wait")
	case f.Lane != nil && (*f.Lane < 0 || *f.Lane >= lanes):
		return invalidError("filter.lane", fmt.Sprintf("is a number from 0 to %d", lanes-1))
	case !weir.HasJSONYear(f.From):
		return invalidError("filter.from", "lies outside the years 0 to 9999")
	case !weir.HasJSONYear(f.To):
		return invalidError("filter.to", "lies outside the years 0 to 9999")
	case !f.From.IsZero() && !f.To.IsZero() && !f.From.Before(f.To):
		return invalidError("filter.to", "is not later than filter.from")
	case utf8.RuneCountInString(in.Reason) > weir.MaxReason:
		return invalidError("reason", fmt.Sprintf("has more than %d characters", weir.MaxReason))
	}
	return nil
}

func writeContinuation(c continuation) string {
	data, _ := json.Marshal(c) // cannot fail: checkFilter has checked the year of the time
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
