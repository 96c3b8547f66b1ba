package cms

import (
	"errors"
	"net/http"
)

// Rehearsal answers the requests of one attempt in place of the CMS. An attempt with steps also
// reports its decisions to the Rehearsal. Outline is optional if Answer never returns ErrNoAnswer;
// the other functions are required. The functions are never called concurrently.
type Rehearsal struct {
	// Answer returns the answer to a request of a step. The request does not have the headers that
	// the setting delivery.signIn adds. If Answer returns ErrNoAnswer, the attempt sends no further
	// request.
	Answer func(step string, req *http.Request) (*http.Response, error)
	// LeaveOut is called for a step whose condition is false.
	LeaveOut func(step, condition string)
	// Judge is called for each answer to a step, with the action that Weir takes, and the reason
	// for this action.
	Judge func(step, action, reason string)
	// Outline is called after Answer returned ErrNoAnswer, once for each later step. For a later
	// step whose condition is false, LeaveOut is called instead.
	Outline func(o StepOutline)
	// SelectsNothing is called for each path of an expression that selects nothing in the message;
	// nil = no call. It can be called more than once for a path.
	SelectsNothing func(path string)
	// MissesMember is called for each member of an answer that an expression reads, and that the
	// answer lacks, with a sentence such as "find.json has no member id; it has data"; nil = no
	// call.
	MissesMember func(sentence string)
	// IsLive reports whether Answer sends the requests to a CMS. If IsLive is false, the attempt
	// does not wait between requests.
	IsLive bool
}

// ErrNoAnswer is the error that Rehearsal.Answer returns if there is no answer to a request.
var ErrNoAnswer = errors.New("there is no answer")

// StepOutline is a step that a rehearsal did not reach. If an expression in the request needs a
// missing answer, the outline has the expression's source between {{ and }} in place of the value.
type StepOutline struct {
	Step string
	// Condition is the source of the step's condition if this condition needs a missing answer.
	// Empty = the step has no such condition.
	Condition string
	Method    string
	Address   string
	Header    http.Header
	Body      []byte
	Problem   string // why the request cannot be made; empty = the request is complete
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

// LacksAnswer reports whether the last request got no answer, because Rehearsal.Answer returned
// ErrNoAnswer.
func (s *RehearsedStep) LacksAnswer() bool { return s.hasEnded }
