// Package batches serves /api/batches. POST accepts a document whose parts become messages, or a
// zip or multipart body with documents. GET lists the batches, GET /{id} shows one batch, and
// DELETE /{id} cancels one batch.
//
// The function key of "batches" is valid only for POST, because a program that posts batches must
// not see other programs' batches. GET of the list requires the key of "view", GET of one batch
// requires the key of "status", and DELETE requires the key of "write".
package batches

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"weir/internal/batch"
	"weir/internal/filing"
	"weir/internal/httpio"
	"weir/internal/unpack"
	"weir/internal/upstream"
	"weir/internal/weir"
	"weir/internal/wire"
)

// Runner stores and processes batches; see batch.Runner.
type Runner interface {
	Accept(ctx context.Context, s batch.Spec, body io.Reader) (wire.Batch, error)
	Get(ctx context.Context, id string) (wire.Batch, error)
	List(ctx context.Context) ([]wire.Batch, error)
	Cancel(ctx context.Context, id string) (wire.Batch, error)
}

// Memory reserves memory for a request; see httpio.Intake.
type Memory interface {
	Reserve(ctx context.Context, size int64) (release func(), err error)
}

// Observer is called for each refused batch.
type Observer interface{ Refused(err error) }

// Function serves batches. All fields except Upstreams are needed.
type Function struct {
	Batches Runner
	// Upstreams has the upstreams that are allowed to send batches. If Upstreams is nil, every
	// caller is allowed to.
	Upstreams *upstream.Set
	Memory    Memory
	Observer  Observer
	Logger    *slog.Logger
}

// batchMemory is the memory for one upload, in bytes. It is enough for a received chunk, a chunk on
// its way to storage, and buffers.
const batchMemory = 3 << 20

const (
	// maxUploads is the largest number of uploads at the same time. An upload can take minutes.
	// Without this limit, a few slow uploads would take all memory for bodies, and Weir would
	// refuse single posts.
	//
	// A further upload waits until another upload ends. If none ends within uploadWait, Weir
	// refuses the further upload, and the Retry-After of the answer is uploadRetry.
	maxUploads  = 4
	uploadWait  = 5 * time.Second
	uploadRetry = 10 * time.Second
)

// uploadTimeout limits the time of one upload. Azure's front end ends a request after 230 s.
const uploadTimeout = 220 * time.Second

// uploads limits the uploads at the same time: maxUploads, and one of each upstream that the
// settings name, so that one upstream cannot keep the others from sending. It is safe for
// concurrent use.
type uploads struct {
	all        *semaphore.Weighted
	mu         sync.Mutex
	ofUpstream map[string]*semaphore.Weighted
}

func newUploads() *uploads {
	return &uploads{all: semaphore.NewWeighted(maxUploads),
		ofUpstream: map[string]*semaphore.Weighted{}}
}

// begin waits until the upstream may send a batch. The caller must call end after the upload. If
// the upstream may not send in time, the error is Unavailable.
func (u *uploads) begin(ctx context.Context, upstream string) (end func(), err error) {
	limited, cancel := context.WithTimeout(ctx, uploadWait)
	defer cancel()
	own := u.ownOf(upstream)
	if err := own.Acquire(limited, 1); err != nil {
		return nil, tooManyUploadsError("another batch of this upstream is being received", err)
	}

	if err := u.all.Acquire(limited, 1); err != nil {
		own.Release(1)
		return nil, tooManyUploadsError("too many batches are being received", err)
	}

	return func() {
		u.all.Release(1)
		own.Release(1)
	}, nil
}

// ownOf returns the semaphore of an upstream. The names are those of the settings, because the
// credentials of the upstream were found. Batches without an upstream can come from many senders,
// so only maxUploads limits them.
func (u *uploads) ownOf(upstream string) *semaphore.Weighted {
	u.mu.Lock()
	defer u.mu.Unlock()

	if u.ofUpstream[upstream] == nil {
		atOnce := int64(1)
		if upstream == "" {
			atOnce = maxUploads
		}
		u.ofUpstream[upstream] = semaphore.NewWeighted(atOnce)
	}

	return u.ofUpstream[upstream]
}

func tooManyUploadsError(reason string, err error) error {
	return &weir.Error{Kind: weir.Unavailable, Op: "batches", RetryAfter: uploadRetry, Err: err,
		Message: reason + "; this one was not accepted, send it again"}
}

// Post returns the handler of POST /api/batches. The handler answers 202 only after storage has the
// whole document.
func (f *Function) Post() http.Handler {
	uploads := newUploads()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := f.acceptBatch(w, r, uploads)
		if err != nil {
			f.Observer.Refused(err)
			httpio.WriteError(w, r, f.Logger, err)
			return
		}

		w.Header().Set("Location", httpio.BaseURL(r)+"/api/batches/"+b.ID)
		httpio.WriteJSON(w, http.StatusAccepted, b)
		f.Logger.Info("batches: accepted", "invocation_id", httpio.InvocationID(r))
	})
}

func (f *Function) acceptBatch(w http.ResponseWriter, r *http.Request,
	uploads *uploads) (wire.Batch, error) {
	spec, err := readSpec(r, f.Upstreams != nil)
	if err != nil {
		return wire.Batch{}, err
	}

	body := upload{body: r.Body}
	if f.Upstreams != nil {
		if body.sender, err = f.readSender(r, &spec); err != nil {
			return wire.Batch{}, err
		}
		spec.Upstream = body.sender.Claimed()
	}

	if r.ContentLength > batch.MaxBytes {
		return wire.Batch{}, &weir.Error{Kind: weir.TooLarge, Op: "batches",
			Message: fmt.Sprintf("the batch is over %d bytes", batch.MaxBytes)}
	}

	end, err := uploads.begin(r.Context(), spec.Upstream)
	if err != nil {
		return wire.Batch{}, err
	}
	defer end()
	release, err := f.Memory.Reserve(r.Context(), batchMemory)
	if err != nil {
		return wire.Batch{}, err
	}
	defer release()
	paced, endPace := httpio.NewPacedReader(w, r, uploadTimeout)
	defer endPace()
	body.body = paced

	// checkHeaders has checked it
	if isGzip, _ := weir.ReadContentEncoding(r.Header["Content-Encoding"]...); isGzip {
		return f.Batches.Accept(r.Context(), spec, unpack.NewReader(body, batch.MaxBytes))
	}

	return f.Batches.Accept(r.Context(), spec, body)
}

// readSender begins the verification of the sender, which upload.Read finishes. If the request has
// the header webhook-id, its value becomes the idempotency key.
func (f *Function) readSender(r *http.Request, spec *batch.Spec) (*upstream.Verification, error) {
	c, err := upstream.ReadCredentials(r.Header, r.URL.Query()[upstream.Parameter])
	if err != nil {
		return nil, err
	}

	if spec.IdempotencyKey, err = c.IdempotencyKey(spec.IdempotencyKey); err != nil {
		return nil, err
	}

	return f.Upstreams.Verify(c)
}

// upload is the body of a request. At the end of the body, Read verifies the sender. If the
// verification fails, Read returns the error of the verification instead of io.EOF. So
// Runner.Accept gets an error, and does not accept the batch.
type upload struct {
	body   io.Reader
	sender *upstream.Verification // nil = every caller may send
}

// Read implements io.Reader.
func (u upload) Read(p []byte) (int, error) {
	n, err := u.body.Read(p)
	if u.sender != nil {
		u.sender.Write(p[:n])
		if err == io.EOF { //nolint:errorlint // io.Reader returns io.EOF itself
			if _, wrong := u.sender.Finish(); wrong != nil {
				return n, wrong
			}
		}
	}

	var known *weir.Error
	if err != nil && err != io.EOF &&
		!errors.As(err, &known) { //nolint:errorlint // io.Reader returns io.EOF itself
		err = &weir.Error{Kind: weir.Malformed, Op: "batches",
			Message: "the body ended early", Err: err}
	}

	return n, err
}

// knownParameters are the query parameters of a POST. The handler reads "mode" and "split". The
// platform reads "code" and "clientId".
var knownParameters = []string{"mode", "split", "code", "clientId"}

// maxPaths limits how often the parameter "split" may appear.
const maxPaths = 16

// readSpec parses headers and query. It refuses unknown names: otherwise a request with a misspelt
// name would silently use the default.
func readSpec(r *http.Request, hasUpstreams bool) (batch.Spec, error) {
	s := batch.Spec{ContentType: r.Header.Get("Content-Type"), Mode: wire.BatchAll}
	known := knownParameters
	if hasUpstreams {
		known = append(slices.Clip(known), upstream.Parameter)
	}

	if err := checkHeaders(r.Header, hasUpstreams); err != nil {
		return s, err
	}

	query := r.URL.Query()
	for name := range query {
		if !slices.Contains(known, name) && !httpio.IsHostParameter(name) {
			return s, filing.UnknownNameError("query parameter", name, known)
		}
	}

	switch modes := query["mode"]; {
	case len(modes) == 0:
	case len(modes) == 1 && (modes[0] == string(wire.BatchAll) ||
		modes[0] == string(wire.BatchValid)):
		s.Mode = wire.BatchMode(modes[0])
	default:
		return s, filing.MalformedError("mode must be all or valid, and appear once")
	}

	if s.Split = query["split"]; len(s.Split) > maxPaths {
		return s, filing.MalformedError(fmt.Sprintf("split may appear %d times", maxPaths))
	}

	var err error
	s.IdempotencyKey, err = filing.ReadIdempotencyKey(r.Header["Idempotency-Key"])

	return s, err
}

// checkHeaders checks the headers of a post before Weir reads its body. The parts of a batch have
// no headers, so the headers of a message, such as a due time, are refused.
func checkHeaders(h http.Header, hasUpstreams bool) error {
	known := []string{"Idempotency-Key"}
	if hasUpstreams {
		known = append(known, upstream.Headers()...)
	}

	if err := filing.CheckNames("a batch has no header ", h, known...); err != nil {
		return err
	}

	_, err := weir.ReadContentEncoding(h["Content-Encoding"]...)

	return err
}

// List returns the handler of GET /api/batches.
func (f *Function) List() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		all, err := f.Batches.List(r.Context())
		if err != nil {
			httpio.WriteError(w, r, f.Logger, err)
			return
		}

		httpio.WriteJSON(w, http.StatusOK, struct {
			Batches []wire.Batch `json:"batches"`
		}{all})
	})
}

// Get returns the handler of GET /api/batches/{id}. The id is the path value "id".
func (f *Function) Get() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := f.Batches.Get(r.Context(), r.PathValue("id"))
		if err != nil {
			httpio.WriteError(w, r, f.Logger, err)
			return
		}
		httpio.WriteJSON(w, http.StatusOK, b)
	})
}

// Cancel returns the handler of DELETE /api/batches/{id}. The id is the path value "id". The
// handler answers 200 if the batch is cancelled already. Otherwise it answers 202, because the
// process that works on the batch still has to stop.
func (f *Function) Cancel() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := f.Batches.Cancel(r.Context(), r.PathValue("id"))
		if err != nil {
			httpio.WriteError(w, r, f.Logger, err)
			return
		}

		status := http.StatusAccepted
		if b.State == wire.BatchCancelled {
			status = http.StatusOK
		}

		httpio.WriteJSON(w, status, b)
		f.Logger.Info("batches: cancel asked", "invocation_id", httpio.InvocationID(r))
	})
}
