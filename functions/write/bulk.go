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

	"weir/internal/bulk"
	"weir/internal/httpio"
	"weir/internal/lane/lists"
	"weir/internal/wake"
	"weir/internal/weir"
	"weir/internal/wire"
)

// ManyCanceller cancels the waiting messages that a selection selects; see bulk.Changer.
type ManyCanceller interface {
	CancelWaiting(ctx context.Context, s bulk.Selection, from bulk.Position, limit int,
		dryRun bool) (bulk.Counts, bulk.Position, bool, error)
}

// ManyDiscarder asks the holders to discard the dead messages that a selection selects; see
// bulk.Changer.
type ManyDiscarder interface {
	DiscardDead(ctx context.Context, s bulk.Selection, from bulk.Position, limit int, reason string,
		dryRun bool) (bulk.Counts, bulk.Position, bool, error)
}

const (
	// maxRead is the number of messages after which a request for a bulk change reads no further
	// page.
	maxRead = 20_000
	// maxWalkTime limits the time of a request for a bulk change. It is far below the 230 s for
	// which the host waits for an answer.
	maxWalkTime = 20 * time.Second
)

// Cancellations serves POST /api/cancellations. All fields are needed.
type Cancellations struct {
	Log    ManyCanceller
	Waker  wake.Ringer
	Lanes  int
	Now    func() time.Time
	Logger *slog.Logger
}

// ServeHTTP implements http.Handler. The status is 200 for a dry run, and 202 for a cancellation,
// because the holders cancel some of the messages later. The stages of the messages show the
// result.
func (f *Cancellations) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in wire.BulkRequest[wire.WaitingFilter]
	err := httpio.ReadJSON(w, r, &in)
	if err == nil {
		n := in.Filter
		c := bulkCall{all: `needs a condition, or "all": true to cancel everything that waits`,
			dryRun: in.DryRun, reason: in.Reason, token: in.Continue,
			form: selectionForm{all: n.All, key: n.Key, keyPrefix: n.KeyPrefix,
				contract: n.Contract, stage: n.Stage, lane: n.Lane, from: n.From, to: n.To},
			walk: func(ctx context.Context, s bulk.Selection, from bulk.Position) (bulk.Counts,
				bulk.Position, bool, error) {
				return f.Log.CancelWaiting(ctx, s, from, maxRead, in.DryRun)
			}}

		c.hasCancelled = true
		err = c.serve(w, r, bulkServer{f.Waker, f.Lanes, f.Now, f.Logger})
	}

	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
	}
}

// Discards serves POST /api/discards. All fields are needed.
type Discards struct {
	Log    ManyDiscarder
	Waker  wake.Ringer
	Lanes  int
	Now    func() time.Time
	Logger *slog.Logger
}

// ServeHTTP implements http.Handler. The status is 200 for a dry run, and 202 for a discard,
// because the holders discard the messages later. The stages of the messages show the result.
func (f *Discards) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in wire.BulkRequest[wire.DiscardFilter]
	err := httpio.ReadJSON(w, r, &in)
	if err == nil {
		n := in.Filter
		c := bulkCall{all: `needs a condition, or "all": true to discard every dead message`,
			dryRun: in.DryRun, reason: in.Reason, token: in.Continue,
			form: selectionForm{all: n.All, key: n.Key, contract: n.Contract,
				fingerprint: n.Fingerprint, lane: n.Lane, from: n.From, to: n.To},
			walk: func(ctx context.Context, s bulk.Selection, from bulk.Position) (bulk.Counts,
				bulk.Position, bool, error) {
				return f.Log.DiscardDead(ctx, s, from, maxRead,
					strings.TrimSpace(in.Reason), in.DryRun)
			}}

		err = c.serve(w, r, bulkServer{f.Waker, f.Lanes, f.Now, f.Logger})
	}

	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
	}
}

// bulkServer has the fields that Cancellations and Discards share.
type bulkServer struct {
	waker  wake.Ringer
	lanes  int
	now    func() time.Time
	logger *slog.Logger
}

// bulkCall is one request for a bulk change.
type bulkCall struct {
	all          string // the problem of a request without a condition
	hasCancelled bool   // it is a cancellation: the answer has the field "cancelled"
	dryRun       bool
	reason       string
	token        string // the field "continue"
	form         selectionForm
	walk         func(context.Context, bulk.Selection, bulk.Position) (bulk.Counts, bulk.Position,
		bool, error)
}

// continuation is the decoded field "continue" of an answer. It has the position from which the
// next request reads messages, and the filter's field "to".
type continuation struct {
	bulk.Position
	To time.Time `json:"t"`
}

func (c *bulkCall) serve(w http.ResponseWriter, r *http.Request, s bulkServer) error {
	selected, from, err := c.readPosition(s.lanes, s.now())
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(r.Context(), maxWalkTime)
	defer cancel()
	counts, at, complete, err := c.walk(ctx, selected, from)
	if err != nil && ctx.Err() != nil && r.Context().Err() == nil {
		// maxWalkTime is over; the client can send the answer's field "continue" in another request
		err = nil
	}

	for _, number := range counts.Lanes {
		s.waker.Ring(number)
	}

	c.logResult(r, s.logger, selected, counts, err)
	if err != nil {
		return err
	}

	out := wire.BulkAnswer{Selected: counts.Selected, Asked: counts.Asked, TooLate: counts.TooLate,
		To: selected.To, Complete: complete}
	if c.hasCancelled {
		out.Cancelled = &counts.Cancelled
	}

	if !complete {
		out.Continue = writeContinuation(continuation{at, selected.To})
	}

	status := http.StatusAccepted
	if c.dryRun {
		status = http.StatusOK
	}

	httpio.WriteJSON(w, status, out)

	return nil
}

func (c *bulkCall) logResult(r *http.Request, logger *slog.Logger, s bulk.Selection, n bulk.Counts,
	err error) {
	outcome := fmt.Sprintf("%d selected, %d asked, %d too late", n.Selected, n.Asked, n.TooLate)
	if c.hasCancelled {
		outcome = fmt.Sprintf("%d selected, %d cancelled, %d asked, %d too late", n.Selected,
			n.Cancelled, n.Asked, n.TooLate)
	}

	logger = logger.With("invocation_id", httpio.InvocationID(r), "lane", n.Lanes, "key",
		s.Key+s.KeyPrefix, "outcome", outcome, "reason", strings.TrimSpace(c.reason), "err", err)

	if c.hasCancelled {
		logger.Info("write: bulk cancel")
		return
	}

	logger.Info("write: bulk discard")
}

// readPosition checks the request, and returns its selection and the position from which to read
// messages. If the filter has no end, readPosition sets one: the parameter "now" in the first
// request, and that of the field "continue" in a later one. Without an end, the change would also
// take messages that come meanwhile, and the client might never reach the last page.
func (c *bulkCall) readPosition(lanes int, now time.Time) (bulk.Selection, bulk.Position, error) {
	var place continuation
	s := c.form.selection()
	err := c.form.check(lanes, c.all)
	if err == nil && utf8.RuneCountInString(c.reason) > weir.MaxReason {
		err = invalidError("reason", fmt.Sprintf("has more than %d characters", weir.MaxReason))
	}

	if err == nil && c.token != "" {
		place, err = readContinuation(c.token)
	}

	if err != nil {
		return s, place.Position, err
	}

	if s.To.IsZero() {
		s.To = place.To
	}

	if s.To.IsZero() {
		s.To = now.UTC()
	}

	return s, place.Position, nil
}

// selectionForm is the filter of a bulk change as a client has sent it; nil = the field is not set.
type selectionForm struct {
	all                                          bool
	key, keyPrefix, contract, stage, fingerprint *string
	lane                                         *int
	from, to                                     *time.Time
}

func (f *selectionForm) selection() bulk.Selection {
	return bulk.Selection{Key: derefOrZero(f.key), KeyPrefix: derefOrZero(f.keyPrefix),
		Contract: derefOrZero(f.contract), Stage: weir.Stage(derefOrZero(f.stage)),
		Fingerprint: derefOrZero(f.fingerprint), Lane: f.lane,
		From: derefOrZero(f.from).UTC(), To: derefOrZero(f.to).UTC()}
}

// check returns the first problem of the filter. The parameter all is the problem of a filter
// without a condition: a filter that a script left empty by mistake would change every message.
func (f *selectionForm) check(lanes int, all string) error {
	conditions, err := f.checkTexts()
	if err != nil {
		return err
	}

	if f.lane != nil || f.from != nil || f.to != nil {
		conditions++
	}

	s := f.selection()
	switch {
	case conditions == 0 && !f.all:
		return invalidError("filter", all)
	case conditions > 0 && f.all:
		return invalidError("filter.all", "cannot be combined with another condition")
	case s.Key != "" && s.KeyPrefix != "":
		return invalidError("filter.keyPrefix", "cannot be combined with filter.key")
	case s.Stage != "" && !slices.Contains(bulk.WaitingStages, s.Stage):
		return invalidError("filter.stage",
			"must be one of scheduled, queued, retrying: other messages do not wait")
	case s.Fingerprint != "" && !lists.IsFingerprint(s.Fingerprint):
		return invalidError("filter.fingerprint",
			"is twelve hexadecimal digits, as the list of errors has it")
	case s.Lane != nil && (*s.Lane < 0 || *s.Lane >= lanes):
		return invalidError("filter.lane", fmt.Sprintf("is a number from 0 to %d", lanes-1))
	case !weir.HasJSONYear(s.From):
		return invalidError("filter.from", "lies outside the years 0 to 9999")
	case !weir.HasJSONYear(s.To):
		return invalidError("filter.to", "lies outside the years 0 to 9999")
	case !s.From.IsZero() && !s.To.IsZero() && !s.From.Before(s.To):
		return invalidError("filter.to", "is not later than filter.from")
	}

	return nil
}

// checkTexts returns the number of the texts that are set, and a problem of one of them.
func (f *selectionForm) checkTexts() (set int, err error) {
	for path, text := range map[string]*string{"filter.key": f.key, "filter.keyPrefix": f.keyPrefix,
		"filter.contract": f.contract, "filter.stage": f.stage,
		"filter.fingerprint": f.fingerprint} {
		switch {
		case text == nil:
			continue
		case *text == "":
			return 0, invalidError(path, "is empty: leave it out to select messages with any value")
		case len(*text) > maxKey:
			return 0, invalidError(path, fmt.Sprintf("has more than %d bytes", maxKey))
		}

		set++
	}

	return set, nil
}

func writeContinuation(c continuation) string {
	data, _ := json.Marshal(c) // cannot fail: check has checked the year of the time
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
