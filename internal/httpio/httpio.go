// Package httpio is where errors become HTTP answers: one writer turns them into
// problem+json (RFC 9457), and it alone logs what users must not see. It also holds the
// middleware every route goes through, in this order: recover, identify, log.
package httpio

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"weir/internal/weir"
)

// InvocationHeader carries the host's name of an invocation. A client can send one too,
// and the host appends its own behind: the last one counts.
const InvocationHeader = "X-Azure-Functions-InvocationId"

// problem is an error as users see it.
type problem struct {
	Type         string         `json:"type"`
	Title        string         `json:"title"`
	Status       int            `json:"status"`
	Detail       string         `json:"detail,omitempty"`
	InvocationID string         `json:"invocationId,omitempty"`
	Problems     []weir.Problem `json:"problems,omitempty"`
}

var statuses = map[weir.Kind]int{
	weir.Internal: http.StatusInternalServerError, weir.Malformed: http.StatusBadRequest, weir.NotFound: http.StatusNotFound,
	weir.Conflict: http.StatusConflict, weir.Stale: http.StatusPreconditionFailed, weir.TooLarge: http.StatusRequestEntityTooLarge, weir.Unsupported: http.StatusUnsupportedMediaType,
	weir.Invalid: http.StatusUnprocessableEntity, weir.Busy: http.StatusConflict, weir.Lost: http.StatusServiceUnavailable,
	weir.Unavailable: http.StatusServiceUnavailable, weir.Rejected: http.StatusBadGateway,
}

// Status gives the HTTP status of an error.
func Status(err error) int { return statuses[weir.KindOf(err)] }

// WriteError answers with err. Internals go to the log and not to the user.
func WriteError(w http.ResponseWriter, r *http.Request, log *slog.Logger, err error) {
	p := problem{Type: "about:blank", Status: Status(err), InvocationID: InvocationID(r)}
	p.Title = http.StatusText(p.Status)
	var e *weir.Error
	if errors.As(err, &e) && e.Kind != weir.Internal {
		p.Detail, p.Problems = e.Message, e.Problems
		if p.Status == http.StatusServiceUnavailable {
			seconds := max(1, math.Ceil(e.RetryAfter.Seconds()))
			w.Header().Set("Retry-After", strconv.Itoa(int(seconds)))
		}
	}
	if p.Status >= http.StatusInternalServerError {
		log.Log(context.WithoutCancel(r.Context()), failureLevel(r, err), "http: failed", "invocation_id", p.InvocationID, "status", p.Status, "err", err)
	}
	write(w, "application/problem+json", p.Status, p)
}

// failureLevel is debug if the request failed because its client went away.
func failureLevel(r *http.Request, err error) slog.Level {
	if hasClientGone(r) && (errors.Is(err, context.Canceled) || weir.KindOf(err) == weir.Unavailable) {
		return slog.LevelDebug
	}
	return slog.LevelError
}

// hasClientGone reports whether the connection of the request is closed.
func hasClientGone(r *http.Request) bool { return errors.Is(r.Context().Err(), context.Canceled) }

// WriteJSON answers with v.
func WriteJSON(w http.ResponseWriter, status int, v any) { write(w, "application/json", status, v) }

func write(w http.ResponseWriter, contentType string, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Errorf("encode the answer: %w", err)) // a defect of ours: Wrap logs it, and answers with what always encodes
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	data = append(data, '\n')
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	// When these fail the client is gone, and nobody is left to tell. The answer goes out at
	// once: what is still to be logged does not keep the client waiting.
	w.Write(data)
	http.NewResponseController(w).Flush()
}

// ReadBody reads a request's body of up to limit bytes.
func ReadBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	body, err := readAll(http.MaxBytesReader(w, r.Body, limit), min(r.ContentLength, limit))
	var over *http.MaxBytesError
	if errors.As(err, &over) {
		return nil, tooLarge(limit)
	}
	if err != nil {
		return nil, &weir.Error{Kind: weir.Malformed, Op: "read body", Message: "the body broke off", Err: err}
	}
	return body, nil
}

func tooLarge(limit int64) error {
	return &weir.Error{Kind: weir.TooLarge, Op: "read body", Message: fmt.Sprintf("the body is over %d bytes", limit)}
}

// readAll is io.ReadAll for a body of a known length: it makes no copies to grow its buffer.
func readAll(body io.Reader, length int64) ([]byte, error) {
	if length <= 0 {
		return io.ReadAll(body)
	}
	data := make([]byte, length)
	n, err := io.ReadFull(body, data)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	rest, err := io.ReadAll(body)
	return append(data[:n], rest...), err
}

// InvocationID is the host's name of this invocation, for the log and for the user's call
// to whoever reads the log.
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

// Wrap puts the middleware around the routes of a function.
func Wrap(function string, log *slog.Logger, now func() time.Time, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := now()
		rec := &recorder{ResponseWriter: w}
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
			log.LogAttrs(context.WithoutCancel(r.Context()), level(r, rec.status), "http: answered", slog.String("function", function),
				slog.String("invocation_id", InvocationID(r)), slog.Int("status", rec.status), slog.Duration("duration", now().Sub(began)))
		}()
		next.ServeHTTP(rec, r)
	})
}

// level is of little interest where all went well: the functions log what they did, and the
// host each invocation.
func level(r *http.Request, status int) slog.Level {
	if status < http.StatusBadRequest || hasClientGone(r) {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// recorder remembers the status.
type recorder struct {
	http.ResponseWriter
	status int
}

// Unwrap lets http.ResponseController reach what the recorder does not implement.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(p)
}
