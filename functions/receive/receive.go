// Package receive is the function that takes a message: POST /api/messages. It answers
// 202 once the message is durable, and never before.
package receive

import (
	"context"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"weir/internal/httpio"
	"weir/internal/lane"
	"weir/internal/weir"
)

// Accepter turns a body into a message, or says every problem.
type Accepter interface {
	Accept(ctx context.Context, contentType string, body []byte) (weir.Message, error)
}

// Appender files a message, and offers it to the drain of this process.
type Appender interface {
	File(ctx context.Context, m weir.Message, idempotencyKey string) (lane.Receipt, error)
}

// Drain is woken for what was filed once it is answered: before, it would take a core from the
// answer.
type Drain interface{ WakeOffered(lane int) }

// Bell rings a lane through the queue, without keeping the caller waiting: the message is
// durable, and a ring that fails is made up for by the sweep.
type Bell interface{ RingSoon(lane int) }

// Observer is told of posts that are refused.
type Observer interface{ Refused(err error) }

// Callbacks says whether an address may be called back; Invalid, with the reason, if not.
type Callbacks interface{ Check(address string) error }

// Intake reads bodies while there is room for them; see httpio.Intake.
type Intake interface {
	ReadBody(w http.ResponseWriter, r *http.Request, limit int64) (body []byte, release func(), err error)
}

// Waiter holds an answer until a message is final; see Waits.
type Waiter interface {
	Await(ctx context.Context, filed lane.Receipt, wait time.Duration) (st weir.Status, held, final bool)
}

// Function takes messages. All fields are needed.
type Function struct {
	Contracts Accepter
	Callbacks Callbacks
	Log       Appender
	Drain     Drain
	Bell      Bell
	Waits     Waiter
	Observer  Observer
	Intake    Intake
	MaxBody   int64
	Now       func() time.Time
	Logger    *slog.Logger
}

// receipt is the answer.
type receipt struct {
	ID         string     `json:"id"`
	Stage      weir.Stage `json:"stage"`
	Key        string     `json:"key"`
	Lane       int        `json:"lane"`
	Sequence   int64      `json:"sequence"`
	AcceptedAt time.Time  `json:"acceptedAt"`
	Duplicate  bool       `json:"duplicate"`
	DeliverAt  *time.Time `json:"deliverAt,omitempty"`
	From       string     `json:"deliverAtFrom,omitempty"` // header, query or message
}

// ServeHTTP implements http.Handler.
func (f *Function) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	asked, err := readOptions(r, f.Now())
	if err != nil {
		f.refuse(w, r, err)
		return
	}
	filed, err := f.receive(w, r, &asked)
	if err != nil {
		f.refuse(w, r, err)
		return
	}
	m := filed.Message
	w.Header().Set("Location", location(r, m.Public().String()))
	if asked.wait > 0 {
		f.call(filed)
		st, held, final := f.Waits.Await(r.Context(), filed, asked.wait)
		if held {
			w.Header().Set("Preference-Applied", "wait="+strconv.Itoa(int(asked.wait.Seconds())))
		}
		if final {
			httpio.SetVersion(w, st.Version)
			httpio.WriteJSON(w, http.StatusOK, httpio.DescribeStatus(st))
			f.accepted(r, filed)
			return
		}
	}
	if asked.wait == 0 {
		defer f.call(filed) // also if the answer cannot be written
	}
	httpio.WriteJSON(w, http.StatusAccepted, describe(filed, asked))
	f.accepted(r, filed)
}

func (f *Function) refuse(w http.ResponseWriter, r *http.Request, err error) {
	f.Observer.Refused(err)
	httpio.WriteError(w, r, f.Logger, err)
}

// call has the message's lane looked at, here and through the queue. That of a repeat which is
// final may be one of an earlier epoch.
func (f *Function) call(filed lane.Receipt) {
	if !filed.Duplicate {
		f.Drain.WakeOffered(filed.Message.ID.Lane)
	}
	if !filed.Stage.Final() {
		f.Bell.RingSoon(filed.Message.ID.Lane)
	}
}

func describe(filed lane.Receipt, asked options) receipt {
	m := filed.Message
	a := receipt{ID: m.Public().String(), Stage: filed.Stage, Key: m.Key, Lane: m.ID.Lane, Sequence: m.ID.Seq, AcceptedAt: m.AcceptedAt, Duplicate: filed.Duplicate}
	if !m.DueAt.IsZero() {
		a.DeliverAt = &m.DueAt
		if !filed.Duplicate {
			a.From = asked.from
		}
	}
	return a
}

func (f *Function) accepted(r *http.Request, filed lane.Receipt) {
	if !f.Logger.Enabled(r.Context(), slog.LevelDebug) {
		return
	}
	m := filed.Message
	f.Logger.DebugContext(r.Context(), "receive: accepted", "invocation_id", httpio.InvocationID(r), "message_id", m.Public().String(),
		"lane", m.ID.Lane, "seq", m.ID.Seq, "stage", string(filed.Stage), "trace_id", m.TraceID())
}

// fileLimit bounds the time of a post once its body is here: to check it, store it, and file it
// behind the posts that wait already. So a post is answered 503 within ten seconds if storage
// hangs.
const fileLimit = 9 * time.Second

func (f *Function) receive(w http.ResponseWriter, r *http.Request, asked *options) (lane.Receipt, error) {
	idempotencyKey, err := idempotency(r)
	if err != nil {
		return lane.Receipt{}, err
	}
	callback, err := f.callback(r)
	if err != nil {
		return lane.Receipt{}, err
	}
	body, release, err := f.Intake.ReadBody(w, r, f.MaxBody)
	defer release()
	if err != nil {
		return lane.Receipt{}, err
	}
	// From here on it is filed even if the client goes away: an append that is cut off may be
	// durable, and then nothing wakes its lane before the sweep.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), fileLimit)
	defer cancel()
	m, err := f.Contracts.Accept(ctx, r.Header.Get("Content-Type"), body)
	if err != nil {
		return lane.Receipt{}, err
	}
	if !asked.due.IsZero() {
		m.DueAt = asked.due
	} else if !m.DueAt.IsZero() {
		asked.from = "message"
	}
	m.Callback = callback
	m.TraceParent, m.TraceState = traceContext(r.Header)
	return f.Log.File(ctx, m, idempotencyKey)
}

// visible is what an idempotency key may be: RFC 9110's visible characters.
var visible = regexp.MustCompile(`^[\x21-\x7e]{1,255}$`)

// idempotency reads the Idempotency-Key header; empty when there is none.
func idempotency(r *http.Request) (string, error) {
	values := r.Header.Values("Idempotency-Key")
	if len(values) == 0 {
		return "", nil
	}
	if len(values) > 1 || !visible.MatchString(values[0]) {
		return "", &weir.Error{Kind: weir.Malformed, Op: "receive", Message: "Idempotency-Key must stand once and have 1 to 255 visible ASCII characters"}
	}
	return values[0], nil
}

// callback reads the Weir-Callback header; empty when there is none.
func (f *Function) callback(r *http.Request) (string, error) {
	values := r.Header.Values("Weir-Callback")
	if len(values) == 0 {
		return "", nil
	}
	if len(values) > 1 {
		return "", malformed("Weir-Callback must stand once")
	}
	return values[0], f.Callbacks.Check(values[0])
}

// location is the absolute address of a message's status, as the caller reached us.
func location(r *http.Request, id string) string {
	return httpio.BaseURL(r) + r.URL.EscapedPath() + "/" + id
}
