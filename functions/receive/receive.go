// Package receive is the function that accepts a message: POST /api/messages. It answers 202 when the
// message is durable, and never before.
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
	"weir/internal/wire"
)

// Accepter parses a body into a message, or returns an error with every problem.
type Accepter interface {
	Accept(ctx context.Context, contentType string, body []byte) (weir.Message, error)
}

// Appender appends a message to its lane, and offers it to the drainer of this process.
type Appender interface {
	AppendWithoutWake(ctx context.Context, m weir.Message, idempotencyKey string) (lane.Receipt, error)
}

// Drain is the drainer of this process. It is woken after the answer, because it would compete with the
// answer for the CPU.
type Drain interface{ WakeOffered(lane int) }

// Tickets enqueues a ticket for a lane without blocking the caller. It returns no error: the message is
// durable, and if the ticket cannot be enqueued, the next sweep wakes the lane.
type Tickets interface{ EnqueueAsync(lane int) }

// Observer is called for each refused post.
type Observer interface{ Refused(err error) }

// Callbacks checks the address of a callback. It returns Invalid with the reason if the address is not allowed.
type Callbacks interface{ Check(address string) error }

// Intake reads bodies within a limit of memory; see httpio.Intake.
type Intake interface {
	ReadBody(w http.ResponseWriter, r *http.Request, limit int64) (body []byte, release func(), err error)
}

// Waiter holds an answer until a message is final; see Waits.
type Waiter interface {
	AwaitFinal(ctx context.Context, filed lane.Receipt, wait time.Duration) (st weir.Status, held, final bool)
}

// Function accepts messages. All fields are needed.
type Function struct {
	Contracts Accepter
	Callbacks Callbacks
	Log       Appender
	Drain     Drain
	Tickets   Tickets
	Waits     Waiter
	Observer  Observer
	Intake    Intake
	MaxBody   int64
	Now       func() time.Time
	Logger    *slog.Logger
}

// ServeHTTP implements http.Handler.
func (f *Function) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	asked, err := readOptions(r, f.Now())
	if err != nil {
		f.writeRefusal(w, r, err)
		return
	}
	filed, err := f.fileMessage(w, r, &asked)
	if err != nil {
		f.writeRefusal(w, r, err)
		return
	}
	m := filed.Message
	w.Header().Set("Location", messageURL(r, m.Public().String()))
	if asked.wait > 0 {
		f.wakeLane(filed)
		st, held, final := f.Waits.AwaitFinal(r.Context(), filed, asked.wait)
		if held {
			w.Header().Set("Preference-Applied", "wait="+strconv.Itoa(int(asked.wait.Seconds())))
		}
		if final {
			httpio.SetVersion(w, st.Version)
			httpio.WriteJSON(w, http.StatusOK, wire.NewMessage(st))
			f.logAccepted(r, filed)
			return
		}
	}
	if asked.wait == 0 {
		defer f.wakeLane(filed) // also if the answer cannot be written
	}
	httpio.WriteJSON(w, http.StatusAccepted, describeReceipt(filed, asked))
	f.logAccepted(r, filed)
}

func (f *Function) writeRefusal(w http.ResponseWriter, r *http.Request, err error) {
	f.Observer.Refused(err)
	httpio.WriteError(w, r, f.Logger, err)
}

// wakeLane wakes the drainer of this process, and enqueues a ticket. A repeated message that is final
// needs no ticket; its lane may belong to an earlier epoch.
func (f *Function) wakeLane(filed lane.Receipt) {
	if !filed.Duplicate {
		f.Drain.WakeOffered(filed.Message.ID.Lane)
	}
	if !filed.Stage.Final() {
		f.Tickets.EnqueueAsync(filed.Message.ID.Lane)
	}
}

func describeReceipt(filed lane.Receipt, asked requestOptions) wire.Receipt {
	m := filed.Message
	a := wire.Receipt{ID: m.Public().String(), Stage: filed.Stage, Key: m.Key, Lane: m.ID.Lane, Sequence: m.ID.Seq,
		AcceptedAt: m.AcceptedAt, Duplicate: filed.Duplicate}
	if !m.DueAt.IsZero() {
		a.DeliverAt = m.DueAt
		if !filed.Duplicate {
			a.From = asked.dueFrom
		}
	}
	return a
}

func (f *Function) logAccepted(r *http.Request, filed lane.Receipt) {
	if !f.Logger.Enabled(r.Context(), slog.LevelDebug) {
		return
	}
	m := filed.Message
	f.Logger.DebugContext(r.Context(), "receive: accepted", "invocation_id", httpio.InvocationID(r), "message_id",
		m.Public().String(),
		"lane", m.ID.Lane, "seq", m.ID.Seq, "stage", string(filed.Stage), "trace_id", m.TraceID())
}

// maxFileTime limits the time of a post after its body was read: to check it, store it, and append it
// behind earlier posts. So a post is answered 503 within ten seconds if storage hangs.
const maxFileTime = 9 * time.Second

func (f *Function) fileMessage(w http.ResponseWriter, r *http.Request, asked *requestOptions) (lane.Receipt, error) {
	idempotencyKey, err := readIdempotencyKey(r)
	if err != nil {
		return lane.Receipt{}, err
	}
	callback, err := f.readCallback(r)
	if err != nil {
		return lane.Receipt{}, err
	}
	body, release, err := f.Intake.ReadBody(w, r, f.MaxBody)
	defer release()
	if err != nil {
		return lane.Receipt{}, err
	}
	// From here on a disconnect of the client does not end the append. A cancelled append may be durable
	// all the same, and then only the sweep would wake its lane.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), maxFileTime)
	defer cancel()
	m, err := f.Contracts.Accept(ctx, r.Header.Get("Content-Type"), body)
	if err != nil {
		return lane.Receipt{}, err
	}
	if !asked.dueAt.IsZero() {
		m.DueAt = asked.dueAt
	} else if !m.DueAt.IsZero() {
		asked.dueFrom = "message"
	}
	m.Callback = callback
	m.TraceParent, m.TraceState = readTraceContext(r.Header)
	return f.Log.AppendWithoutWake(ctx, m, idempotencyKey)
}

// visibleASCII matches an idempotency key: RFC 9110's visible characters.
var visibleASCII = regexp.MustCompile(`^[\x21-\x7e]{1,255}$`)

// readIdempotencyKey returns the Idempotency-Key header; empty = none.
func readIdempotencyKey(r *http.Request) (string, error) {
	values := r.Header.Values("Idempotency-Key")
	if len(values) == 0 {
		return "", nil
	}
	if len(values) > 1 || !visibleASCII.MatchString(values[0]) {
		return "", &weir.Error{Kind: weir.Malformed, Op: "receive",
			Message: "Idempotency-Key must stand once and have 1 to 255 visible ASCII characters"}
	}
	return values[0], nil
}

// readCallback returns the Weir-Callback header; empty = none.
func (f *Function) readCallback(r *http.Request) (string, error) {
	values := r.Header.Values("Weir-Callback")
	if len(values) == 0 {
		return "", nil
	}
	if len(values) > 1 {
		return "", malformedError("Weir-Callback must stand once")
	}
	return values[0], f.Callbacks.Check(values[0])
}

// messageURL returns the absolute address of a message's status, at the address that the caller used.
func messageURL(r *http.Request, id string) string {
	return httpio.BaseURL(r) + r.URL.EscapedPath() + "/" + id
}
