// Package httpio has the parts that all HTTP functions share.
//
//   - WriteError is the only code that turns an error into problem+json (RFC 9457). If the status
//     is 500 or more, it logs the error with the causes that users must not see.
//   - Middleware wraps each function: it recovers panics, and logs the answer with the host's
//     invocation id. PlainPathsOnly, HostCallsOnly, AllowMethods and others guard routes.
//   - ReadBody, ReadJSON and Intake read requests with bounded size and memory.
package httpio

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"weir/internal/weir"
)

// InvocationHeader is the header with the host's id of an invocation. A client can send this
// header, too. The host appends its own id, so only the last value is trusted.
const InvocationHeader = "X-Azure-Functions-InvocationId"

// problem is the JSON form of an error (RFC 9457).
type problem struct {
	Type         string         `json:"type"`
	Title        string         `json:"title"`
	Status       int            `json:"status"`
	Detail       string         `json:"detail,omitempty"`
	InvocationID string         `json:"invocationId,omitempty"`
	Problems     []weir.Problem `json:"problems,omitempty"`
}

var statusByKind = map[weir.Kind]int{
	weir.Internal: http.StatusInternalServerError, weir.Malformed: http.StatusBadRequest,
	weir.NotFound: http.StatusNotFound, weir.Forbidden: http.StatusForbidden,
	weir.Conflict: http.StatusConflict, weir.Stale: http.StatusPreconditionFailed,
	weir.TooLarge:        http.StatusRequestEntityTooLarge,
	weir.Unsupported:     http.StatusUnsupportedMediaType,
	weir.Invalid:         http.StatusUnprocessableEntity,
	weir.Unavailable:     http.StatusServiceUnavailable,
	weir.Unauthenticated: http.StatusUnauthorized, weir.Limited: http.StatusTooManyRequests,
}

// Status returns the HTTP status of an error.
func Status(err error) int { return statusByKind[weir.KindOf(err)] }

// WriteError answers with err as problem+json, but without the causes of err. If the status is 500
// or more, WriteError logs err with its causes.
func WriteError(w http.ResponseWriter, r *http.Request, log *slog.Logger, err error) {
	p := problem{Type: "about:blank", Status: Status(err), InvocationID: InvocationID(r)}
	p.Title = http.StatusText(p.Status)
	var e *weir.Error
	if errors.As(err, &e) && e.Kind != weir.Internal {
		p.Detail, p.Problems = e.Message, e.Problems
		switch p.Status {
		case http.StatusServiceUnavailable, http.StatusTooManyRequests:
			seconds := max(1, math.Ceil(e.RetryAfter.Seconds()))
			w.Header().Set("Retry-After", strconv.Itoa(int(seconds)))
		case http.StatusUnauthorized:
			// RFC 9110 demands a challenge in each 401
			w.Header().Set("WWW-Authenticate", "Weir-Upstream")
		}
	}

	if rec := findRecorder(w); rec != nil {
		rec.rule = weir.FirstRule(err)
	}

	if p.Status >= http.StatusInternalServerError {
		log.Log(context.WithoutCancel(r.Context()), failureLevel(r, err), "http: failed",
			"invocation_id", p.InvocationID, "status", p.Status, "err", err)
	}

	writeBody(w, "application/problem+json", p.Status, p)
}

// failureLevel returns the level debug if the client has disconnected and err can be a result of
// the disconnect. Otherwise it returns the level error.
func failureLevel(r *http.Request, err error) slog.Level {
	if hasClientGone(r) && (errors.Is(err, context.Canceled) ||
		weir.KindOf(err) == weir.Unavailable) {
		return slog.LevelDebug
	}
	return slog.LevelError
}

// hasClientGone reports whether the request's context was cancelled. A disconnect of the client
// cancels this context.
func hasClientGone(r *http.Request) bool { return errors.Is(r.Context().Err(), context.Canceled) }

// WriteJSON answers with v.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	writeBody(w, "application/json", status, v)
}

func writeBody(w http.ResponseWriter, contentType string, status int, v any) {
	var encoded bytes.Buffer
	encoder := json.NewEncoder(&encoded)

	// people read the answers; nosniff keeps browsers from reading them as HTML
	encoder.SetEscapeHTML(false)

	if err := encoder.Encode(v); err != nil {
		// a defect of Weir: Middleware logs the panic and answers 500
		panic(fmt.Errorf("encode the answer: %w", err))
	}

	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	data := encoded.Bytes()
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)

	// If one of these calls fails, the client has disconnected, so the errors are ignored. The
	// flush sends the answer before Middleware logs the status.
	w.Write(data)
	http.NewResponseController(w).Flush()
}

// ReadBody reads a request's body of up to "limit" bytes. The error is TooLarge, Malformed or,
// for a Content-Encoding, Unsupported.
func ReadBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if err := weir.CheckContentEncoding(r.Header["Content-Encoding"]...); err != nil {
		return nil, err
	}

	pace := newPace(w)
	defer pace.end()
	content := http.MaxBytesReader(w, r.Body, limit)
	var parts [][]byte
	for {
		part, isEnd, err := pace.readPart(content, largestStep)
		if err != nil {
			return nil, describeReadError(err, limit)
		}

		if parts = append(parts, part); isEnd {
			return bytes.Join(parts, nil), nil
		}
	}
}

func tooLargeError(limit int64) error {
	return &weir.Error{Kind: weir.TooLarge, Op: "read body",
		Message: fmt.Sprintf("the body is over %d bytes", limit)}
}

// InvocationID returns the host's id of the invocation. If no host sent the request, the result is
// empty. The log and each problem+json have this id, so that an operator with a user's report finds
// the log line.
func InvocationID(r *http.Request) string {
	ids := r.Header.Values(InvocationHeader)
	if len(ids) == 0 {
		return ""
	}

	last := ids[len(ids)-1]
	if i := strings.LastIndex(last, ","); i >= 0 {
		last = last[i+1:]
	}

	return strings.TrimSpace(last)
}

// Middleware recovers panics of the handler "next", except http.ErrAbortHandler. It logs each
// answer of the handler, with the name in the parameter "function". The context that it passes on
// has the invocation's id; see weir.WithCall.
func Middleware(function string, log *slog.Logger, now func() time.Time,
	next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := now()
		rec := &statusRecorder{ResponseWriter: w}
		defer func() {
			if p := recover(); p != nil {
				if cause, ok := p.(error); ok && errors.Is(cause, http.ErrAbortHandler) {
					panic(p)
				}

				err := fmt.Errorf("panic: %v\n%s", p, debug.Stack())
				if rec.status == 0 {
					WriteError(rec, r, log, err)
				} else {
					log.Error("http: failed", "invocation_id", InvocationID(r), "err", err)
				}
			}

			log.LogAttrs(context.WithoutCancel(r.Context()), answerLevel(r, rec.status),
				"http: answered", slog.String("function", function),
				slog.String("invocation_id", InvocationID(r)), slog.Int("status", rec.status),
				slog.String("reason", rec.rule), slog.String("key_id", rec.keyID),
				slog.Int64("duration_ms", now().Sub(began).Milliseconds()))
		}()

		next.ServeHTTP(rec, r.WithContext(weir.WithCall(r.Context(), InvocationID(r))))
	})
}

// answerLevel returns the level debug if the status is below 400, because the functions log their
// work and the host logs each invocation. If the client has disconnected, it also returns the level
// debug. Otherwise it returns the level info.
func answerLevel(r *http.Request, status int) slog.Level {
	if status < http.StatusBadRequest || hasClientGone(r) {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

type statusRecorder struct {
	http.ResponseWriter
	status int
	// path and name of the first rule that the request breaks; "" = the answer names no rule
	rule  string
	keyID string // see NoteKeyID
}

// NoteKeyID adds the fingerprint of the request's function key to the line that Middleware logs
// about the answer.
func NoteKeyID(w http.ResponseWriter, id string) {
	if rec := findRecorder(w); rec != nil {
		rec.keyID = id
	}
}

// findRecorder returns the recorder of Middleware that a ResponseWriter wraps, or nil.
func findRecorder(w http.ResponseWriter) *statusRecorder {
	for {
		if rec, is := w.(*statusRecorder); is {
			return rec
		}

		outer, wraps := w.(interface{ Unwrap() http.ResponseWriter })
		if !wraps {
			return nil
		}

		w = outer.Unwrap()
	}
}

// Unwrap lets http.ResponseController find the interfaces that the recorder does not implement.
func (r *statusRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *statusRecorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *statusRecorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(p)
}
