package write

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"weir/internal/bulkdiscard"
	"weir/internal/httpio"
	"weir/internal/wake"
	"weir/internal/weir"
)

// ManyDiscarder asks the holders to discard the dead messages that a filter selects; see bulkdiscard.Discarder.
type ManyDiscarder interface {
	DiscardDead(ctx context.Context, f bulkdiscard.Filter, from bulkdiscard.Position, limit int, reason string,
		dryRun bool) (bulkdiscard.Counts, bulkdiscard.Position, bool, error)
}

// Discards serves POST /api/discards. All fields are needed.
type Discards struct {
	Log    ManyDiscarder
	Waker  wake.Ringer
	Lanes  int
	Now    func() time.Time
	Logger *slog.Logger
}

// discardsRequest is the body of a request. The filter needs a condition or "all": true. Otherwise a filter that a
// script left empty by mistake would discard every dead message.
type discardsRequest struct {
	Filter struct {
		All         bool       `json:"all"`
		Key         *string    `json:"key"`
		Contract    *string    `json:"contract"`
		Fingerprint *string    `json:"fingerprint"`
		Lane        *int       `json:"lane"`
		From        *time.Time `json:"from"`
		To          *time.Time `json:"to"`
	} `json:"filter"`
	DryRun   bool   `json:"dryRun"`
	Reason   string `json:"reason"`
	Continue string `json:"continue"`
}

// discardsAnswer has the numbers of messages that one request handled; see bulkdiscard.Counts.
type discardsAnswer struct {
	Selected int64     `json:"selected"`
	Asked    int64     `json:"asked"`
	TooLate  int64     `json:"tooLate"`
	To       time.Time `json:"to"`
	Complete bool      `json:"complete"`
	Continue string    `json:"continue,omitempty"`
}

// discardContinuation is the decoded field "continue" of an answer: the next position, and the end of the filter.
type discardContinuation struct {
	bulkdiscard.Position
	To time.Time `json:"t"`
}

// ServeHTTP implements http.Handler. The status is 200 for a dry run, and 202 for a discard, because the holders
// discard the messages later. The stages of the messages show the result.
func (f *Discards) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := f.serveDiscards(w, r); err != nil {
		httpio.WriteError(w, r, f.Logger, err)
	}
}

func (f *Discards) serveDiscards(w http.ResponseWriter, r *http.Request) error {
	var in discardsRequest
	if err := httpio.ReadJSON(w, r, &in); err != nil {
		return err
	}
	filter, from, err := in.parseRequest(f.Lanes, f.Now())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), maxWalkTime)
	defer cancel()
	counts, at, complete, err := f.Log.DiscardDead(ctx, filter, from, maxRead, strings.TrimSpace(in.Reason), in.DryRun)
	if err != nil && ctx.Err() != nil && r.Context().Err() == nil {
		err = nil // maxWalkTime is over; the client can send the answer's field "continue" in another request
	}
	for _, number := range counts.Lanes {
		f.Waker.Ring(number)
	}
	f.Logger.Info("write: bulk discard", "invocation_id", httpio.InvocationID(r), "lane", counts.Lanes,
		"key", filter.Key, "outcome",
		fmt.Sprintf("%d selected, %d asked, %d too late", counts.Selected, counts.Asked, counts.TooLate),
		"reason", strings.TrimSpace(in.Reason), "err", err)
	if err != nil {
		return err
	}
	out := discardsAnswer{Selected: counts.Selected, Asked: counts.Asked, TooLate: counts.TooLate, To: filter.To,
		Complete: complete}
	if !complete {
		out.Continue = discardContinuation{at, filter.To}.encode()
	}
	status := http.StatusAccepted
	if in.DryRun {
		status = http.StatusOK
	}
	httpio.WriteJSON(w, status, out)
	return nil
}

// parseRequest checks a request, and returns the filter and the position from which to read messages. If the filter has
// no end, parseRequest sets one. In the first request, the end is the parameter "now". In a later request, the end is
// from the field "continue". Without an end, the discard would also take messages that become dead meanwhile.
func (in *discardsRequest) parseRequest(lanes int, now time.Time) (bulkdiscard.Filter, bulkdiscard.Position, error) {
	var c discardContinuation
	f := bulkdiscard.Filter{Key: derefOrZero(in.Filter.Key), Contract: derefOrZero(in.Filter.Contract),
		Fingerprint: derefOrZero(in.Filter.Fingerprint), Lane: in.Filter.Lane,
		From: derefOrZero(in.Filter.From).UTC(), To: derefOrZero(in.Filter.To).UTC()}
	if err := in.checkFilter(f, lanes); err != nil {
		return f, c.Position, err
	}
	if in.Continue != "" {
		var err error
		if c, err = parseDiscardContinuation(in.Continue); err != nil {
			return f, c.Position, err
		}
		if f.To.IsZero() {
			f.To = c.To
		}
	}
	if f.To.IsZero() {
		f.To = now.UTC()
	}
	return f, c.Position, nil
}

func (in *discardsRequest) checkFilter(f bulkdiscard.Filter, lanes int) error {
	conditions := 0
	for path, text := range map[string]*string{"filter.key": in.Filter.Key, "filter.contract": in.Filter.Contract,
		"filter.fingerprint": in.Filter.Fingerprint} {
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
		return invalidError("filter", `needs a condition, or "all": true to discard every dead message`)
	case conditions > 0 && in.Filter.All:
		return invalidError("filter.all", "cannot be combined with another condition")
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

func (c discardContinuation) encode() string {
	data, _ := json.Marshal(c) // cannot fail: checkFilter has checked the year of the time
	return base64.RawURLEncoding.EncodeToString(data)
}

func parseDiscardContinuation(token string) (c discardContinuation, err error) {
	data, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err != nil || !c.IsValid() || c.To.IsZero() {
		return c, invalidError("continue", "is not from an earlier answer")
	}
	return c, nil
}
