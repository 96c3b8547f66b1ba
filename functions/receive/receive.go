// Package receive is the function that accepts a message: POST /api/messages. It answers 202 only
// after storage has the message. If the post has the header Prefer: wait, and the message becomes
// final in time, the function answers 200.
package receive

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/internal/await"
	"weir/internal/filing"
	"weir/internal/httpio"
	"weir/internal/lane"
	"weir/internal/upstream"
	"weir/internal/wake"
	"weir/internal/wire"
)

// Observer counts posts.
type Observer interface {
	Refused(err error) // called for each refused post
	// Sent is called for each accepted post. The sender is the name of a known upstream, or the
	// fingerprint of the function key. So operators find the sender of a flood.
	Sent(sender string)
}

// Function accepts messages. All fields but Upstreams are needed.
type Function struct {
	Filer *filing.Filer
	// Upstreams has the upstreams that are allowed to send messages. If Upstreams is nil, every
	// caller is allowed to.
	Upstreams *upstream.Set
	// Waker rings for the lane of a message that was appended. It is called after the answer, so
	// that the drain does not delay the answer. If the answer waits for the final stage of the
	// message, it is called before that wait.
	Waker    wake.Ringer
	Waits    *await.Waits
	Observer Observer
	// Fingerprint returns the fingerprint of the function key of a request; "" = the request has no
	// key.
	Fingerprint func(*http.Request) string
	Intake      *httpio.Intake
	MaxBody     int64
	Now         func() time.Time
	Logger      *slog.Logger
}

// ServeHTTP implements http.Handler.
func (f *Function) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	keyID := f.Fingerprint(r)
	httpio.NoteKeyID(w, keyID)
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
	f.Observer.Sent(cmp.Or(m.Upstream, keyID, "no key"))
	w.Header().Set("Location", messageURL(r, m.Public().String()))

	if asked.wait > 0 {
		f.ringLane(filed)
		st, hasWaited, final := f.Waits.AwaitFinal(r.Context(), filed, asked.wait)
		if hasWaited {
			w.Header().Set("Preference-Applied", "wait="+strconv.Itoa(int(asked.wait.Seconds())))
		}

		if final {
			httpio.SetVersion(w, st.Version)
			httpio.WriteJSON(w, http.StatusOK,
				answerWithWarning{wire.NewMessage(st), asked.warning()})
			f.logAccepted(r, filed)
			return
		}
	}

	if asked.wait == 0 {
		defer f.ringLane(filed) // deferred, to wake the lane even if the answer cannot be written
	}

	httpio.WriteJSON(w, http.StatusAccepted, describeReceipt(filed, asked))
	f.logAccepted(r, filed)
}

func (f *Function) writeRefusal(w http.ResponseWriter, r *http.Request, err error) {
	f.Observer.Refused(err)
	httpio.WriteError(w, r, f.Logger, err)
}

// ringLane leads a process to the message. If the message is final, this post repeats an earlier
// one, and there is no more work.
func (f *Function) ringLane(filed lane.Receipt) {
	if !filed.Stage.Final() {
		f.Waker.Ring(filed.Message.ID.Lane)
	}
}

// answerWithWarning is the status of a message, as the answer to a post.
type answerWithWarning struct {
	wire.Message
	Warning string `json:"warning,omitempty"`
}

// warning returns a warning for a caller that waits without an idempotency key. Its HTTP library
// can give the request up before Weir answers, and send it again: each try would be a message.
func (o requestOptions) warning() string {
	if o.wait > 0 && o.IdempotencyKey == "" {
		return "Prefer: wait without an Idempotency-Key: if a client gives up before the answer and posts again, " +
			"Weir stores a second message"
	}
	return ""
}

func describeReceipt(filed lane.Receipt, asked requestOptions) wire.Receipt {
	m := filed.Message
	a := wire.Receipt{ID: m.Public().String(), Stage: filed.Stage, Key: m.Key, Lane: m.ID.Lane,
		Sequence: m.ID.Seq, AcceptedAt: m.AcceptedAt, Duplicate: filed.Duplicate}
	a.Warning = asked.warning()
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
	f.Logger.DebugContext(r.Context(), "receive: accepted", "invocation_id", httpio.InvocationID(r),
		"message_id", m.Public().String(),
		"lane", m.ID.Lane, "seq", m.ID.Seq, "stage", string(filed.Stage), "trace_id", m.TraceID())
}

// maxFileTime limits the time of a post after its body was read. So if storage hangs, the client
// gets the answer 503 within ten seconds.
const maxFileTime = 9 * time.Second

func (f *Function) fileMessage(w http.ResponseWriter, r *http.Request,
	asked requestOptions) (lane.Receipt, error) {
	o := asked.Options
	verify := func(asSent []byte) (err error) { // a signature is one of the bytes as they were sent
		if asked.sender != nil {
			asked.sender.Write(asSent)
			o.Upstream, err = asked.sender.Finish()
		}
		return err
	}

	body, release, err := f.Intake.ReadUnpacked(w, r, f.MaxBody, verify)
	defer release()
	if err != nil {
		return lane.Receipt{}, httpio.NameSetting(err, "maxBody")
	}

	// From here on, a disconnect of the client does not end the append. A cancelled append can
	// still become durable, and then only the sweep would wake the lane.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), maxFileTime)
	defer cancel()

	return f.Filer.File(ctx, filing.Submission{ContentType: r.Header.Get("Content-Type"),
		Body: body, Options: o})
}

// messageURL returns the absolute address of a message's status, below the address that the caller
// used.
func messageURL(r *http.Request, id string) string {
	return httpio.BaseURL(r) + r.URL.EscapedPath() + "/" + id
}

// requestOptions is a parsed request without its body.
type requestOptions struct {
	filing.Options
	sender  *upstream.Verification // nil = every caller may send
	dueFrom string                 // "header" or "query"; "" if the due time is in neither
	// the longest wait for the final stage of the message; 0 = no wait
	wait time.Duration
}

// readOptions parses headers and query. A due time in a header takes precedence over a due time in
// the query.
func (f *Function) readOptions(r *http.Request) (requestOptions, error) {
	o := requestOptions{wait: readPreferWait(r.Header.Values("Prefer"))}
	query, err := f.readQuery(r)
	if err != nil {
		return o, err
	}

	now := f.Now()
	var senderHeaders []string
	if f.Upstreams != nil {
		senderHeaders = upstream.Headers()
	}

	if o.Options, err = f.Filer.ReadOptions(r.Header, now, senderHeaders...); err != nil {
		return o, err
	}

	if err := f.readSender(r, query, &o); err != nil {
		return o, err
	}

	if !o.DueAt.IsZero() {
		o.dueFrom = "header"
		return o, nil
	}

	o.DueAt, err = filing.ReadDueTime("deliverAt", query["deliverAt"], "deliverAfter",
		query["deliverAfter"], now)
	if !o.DueAt.IsZero() {
		o.dueFrom = "query"
	}

	return o, err
}

// knownParameters are the query parameters of a post. The function reads "deliverAt" and
// "deliverAfter". The platform reads "code" (a key of the Functions host) and "clientId" (the name
// of this key).
var knownParameters = []string{"deliverAt", "deliverAfter", "code", "clientId"}

// readSender begins the verification of the sender, which fileMessage finishes. If the request has
// the header webhook-id, its value becomes the idempotency key.
func (f *Function) readSender(r *http.Request, query url.Values, o *requestOptions) error {
	if f.Upstreams == nil {
		return nil
	}

	c, err := upstream.ReadCredentials(r.Header, query[upstream.Parameter])
	if err != nil {
		return err
	}

	if o.IdempotencyKey, err = c.IdempotencyKey(o.IdempotencyKey); err != nil {
		return err
	}

	o.sender, err = f.Upstreams.Verify(c)

	return err
}

// readQuery returns the query. It refuses unknown parameters.
func (f *Function) readQuery(r *http.Request) (url.Values, error) {
	if r.URL.RawQuery == "" {
		return nil, nil
	}

	known := knownParameters
	if f.Upstreams != nil {
		known = append(slices.Clip(known), upstream.Parameter)
	}

	query := r.URL.Query()
	for name := range query {
		if !slices.Contains(known, name) && !httpio.IsHostParameter(name) {
			return nil, filing.UnknownNameError("query parameter", name, known)
		}
	}

	return query, nil
}

// maxWait is the longest wait for which a client can ask; see readPreferWait.
const maxWait = 60 * time.Second

// readPreferWait returns the preference "wait" of the header Prefer (RFC 7240), at most maxWait. If
// there is none, the result is 0. readPreferWait ignores a malformed value, as the RFC requires.
func readPreferWait(headers []string) time.Duration {
	for preference := range strings.SplitSeq(strings.Join(headers, ","), ",") {
		preference, _, _ = strings.Cut(preference, ";")
		name, value, _ := strings.Cut(preference, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "wait") {
			continue
		}

		seconds, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(value), `"`), 10, 31)

		// with ErrRange, seconds is the largest number
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return 0
		}

		return min(time.Duration(seconds)*time.Second, maxWait)
	}

	return 0
}
