package cms

import (
	"context"
	"errors"
	"net/http"

	"weir/internal/weir"
)

// Rehearsal takes the requests of one attempt in place of the CMS. An attempt with steps also reports each of its
// decisions to the Rehearsal. All functions are required. They are never called concurrently.
type Rehearsal struct {
	// Answer returns the answer to a request of a step. The request has no credential of the sign-in. If Answer
	// returns ErrNoAnswer, no further request of the attempt is sent.
	Answer func(step string, req *http.Request) (*http.Response, error)
	// LeaveOut is called for a step whose condition is false.
	LeaveOut func(step, condition string)
	// Judge is called for a step's answer, with the action for the answer and the reason for the action.
	Judge func(step, action, reason string)
	// Outline is called for each step that follows the step without an answer.
	Outline func(o StepOutline)
	// IsLive reports whether Answer sends the requests to a CMS. If IsLive is false, an attempt makes no pauses.
	IsLive bool
}

// SingleStep is the name of the request of a contract without steps.
const SingleStep = "request"

// ErrNoAnswer is the error of a rehearsal that has no answer to a request.
var ErrNoAnswer = errors.New("there is no answer")

// StepOutline is a step that a rehearsal did not reach. If an expression reads a missing answer, the request
// has the source of the expression, between {{ and }}, in place of its value.
type StepOutline struct {
	Step string
	// Condition is the step's condition, if it reads a missing answer. Empty = the step is sent in any case.
	Condition string
	Method    string
	Address   string
	Header    http.Header
	Body      []byte
	Problem   string // the reason why the request cannot be made; empty = the request is complete
}

// RehearsedStep is a transport that passes one step's requests to a rehearsal.
type RehearsedStep struct {
	rehearsal *Rehearsal
	step      string
	hasEnded  bool
}

// NewStep returns the transport of a step's requests.
func (r *Rehearsal) NewStep(name string) *RehearsedStep {
	return &RehearsedStep{rehearsal: r, step: name}
}

// RoundTrip implements http.RoundTripper.
func (s *RehearsedStep) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := s.rehearsal.Answer(s.step, req)
	s.hasEnded = errors.Is(err, ErrNoAnswer)
	return resp, err
}

// LacksAnswer reports whether the attempt ends because the rehearsal has no answer.
func (s *RehearsedStep) LacksAnswer() bool { return s.hasEnded }

// Rehearse makes one attempt with a rehearsal in place of the CMS.
func (c *Client) Rehearse(ctx context.Context, d weir.Delivery, rehearsal *Rehearsal) weir.Result {
	step := rehearsal.NewStep(SingleStep)
	rehearsed := &Client{cfg: c.cfg, client: NewHTTPClient(step), secrets: c.secrets}
	return rehearsed.Send(ctx, d)
}
