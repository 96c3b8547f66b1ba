// Package receive is the function that accepts a message: POST /api/messages. It answers 202 when the message is
// durable, and never before. For a post with Prefer: wait it answers 200 if the message becomes final in time.
package receive

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"weir/internal/filing"
	"weir/internal/httpio"
	"weir/internal/lane"
	"weir/internal/upstream"
	"weir/internal/weir"
	"weir/internal/wire"
)

// Drain is the drainer of this process. The function wakes it after the answer, because otherwise the two would
// compete for the CPU. If the answer waits until the message is final, the function wakes the drainer before that
// wait.
type Drain interface{ WakeOffered(lane int) }

// Tickets enqueues a ticket for a lane without blocking the caller. It returns no error: the message is
// durable, and if the ticket cannot be enqueued, the next sweep wakes the lane.
type Tickets interface{ EnqueueAsync(lane int) }

// Observer is called for each refused post.
type Observer interface{ Refused(err error) }

// Intake reads bodies within a limit of memory; see httpio.Intake.
type Intake interface {
	ReadBody(w http.ResponseWriter, r *http.Request, limit int64) (body []byte, release func(), err error)
}

// Waiter delays an answer until a message is final, but no longer than the duration "wait". The result hasWaited is
// false if the Waiter does not delay the answer; see Waits. If the result "final" is true, st is the message's state.
type Waiter interface {
	AwaitFinal(ctx context.Context, filed lane.Receipt, wait time.Duration) (st weir.Status, hasWaited, final bool)
}

// Function accepts messages. All fields but Upstreams are needed.
type Function struct {
	Filer *filing.Filer
	// Upstreams has the known upstreams. Each message must come from one of them. nil = every caller may send.
	Upstreams *upstream.Set
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
	asked, err := f.readOptions(r)
	if err != nil {
		f.writeRefusal(w, r, err)
		return
	}
	filed, err := f.fileMessage(w, r, asked)
	if err != nil {
		f.writeRefusal(w, r, err)
		return
	}
	m := filed.Message
	w.Header().Set("Location", messageURL(r, m.Public().String()))
	if asked.wait > 0 {
		f.wakeLane(filed)
		st, hasWaited, final := f.Waits.AwaitFinal(r.Context(), filed, asked.wait)
		if hasWaited {
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
		defer f.wakeLane(filed) // deferred, so that the lane is woken even if the answer cannot be written
	}
	httpio.WriteJSON(w, http.StatusAccepted, describeReceipt(filed, asked))
	f.logAccepted(r, filed)
}

func (f *Function) writeRefusal(w http.ResponseWriter, r *http.Request, err error) {
	f.Observer.Refused(err)
	httpio.WriteError(w, r, f.Logger, err)
}

// wakeLane wakes the drainer of this process for a new message. It enqueues a ticket for a message that is not final.
// A repeated message can be final: its lane needs no ticket, and may belong to an earlier epoch.
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
			a.From = cmp.Or(asked.dueFrom, "message")
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

// maxFileTime limits the time that a post may take after its body was read. In this time Weir checks the message,
// stores it, and appends it behind earlier posts. So a post gets the answer 503 within ten seconds if storage hangs.
const maxFileTime = 9 * time.Second

func (f *Function) fileMessage(w http.ResponseWriter, r *http.Request, asked requestOptions) (lane.Receipt, error) {
	body, release, err := f.Intake.ReadBody(w, r, f.MaxBody)
	defer release()
	if err != nil {
		return lane.Receipt{}, err
	}
	o := asked.Options
	if asked.sender != nil {
		asked.sender.Write(body)
		if o.Upstream, err = asked.sender.Finish(); err != nil {
			return lane.Receipt{}, err
		}
	}
	// From here on a disconnect of the client does not end the append. Otherwise a cancelled append could have
	// become durable, and then only the sweep would wake its lane.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), maxFileTime)
	defer cancel()
	return f.Filer.File(ctx, filing.Submission{ContentType: r.Header.Get("Content-Type"), Body: body, Options: o})
}

// messageURL returns the absolute address of a message's status, at the address that the caller used.
func messageURL(r *http.Request, id string) string {
	return httpio.BaseURL(r) + r.URL.EscapedPath() + "/" + id
}
