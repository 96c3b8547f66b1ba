package steps

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"weir/internal/clock"
	"weir/internal/cms"
	"weir/internal/contract"
	"weir/internal/weir"
)

// Rehearse makes one attempt, and passes the requests to the rehearsal instead of to the CMS. If
// the rehearsal does not answer a request, the attempt ends. Rehearse then gives the rehearsal an
// outline of each later step, but leaves out steps whose condition is false.
func (s *Sender) Rehearse(ctx context.Context, d weir.Delivery,
	rehearsal *cms.Rehearsal) weir.Result {
	return s.sendChain(ctx, d, rehearsal)
}

// newClient returns the client for a step's request. In a rehearsal, replaced is the client's
// transport; otherwise replaced is nil.
func (r *run) newClient(st *step) (client *http.Client, replaced *cms.RehearsedStep) {
	if r.rehearsal == nil {
		return r.sender.client, nil
	}
	replaced = r.rehearsal.NewStep(st.name)
	return cms.NewHTTPClient(replaced), replaced
}

// reportLeftOut tells the rehearsal, if there is one, that the step's condition is false.
func (r *run) reportLeftOut(st *step) {
	if r.rehearsal != nil {
		r.rehearsal.LeaveOut(st.name, st.when.source)
	}
}

// reportVerdict tells the rehearsal, if there is one, the decision about a step.
func (r *run) reportVerdict(st *step, v verdict) {
	if r.rehearsal == nil || r.chain.isSingle {
		return
	}

	do := v.do

	// no rule chose the action: take the one that has the effect of the result
	if do == "" || do == actionForbid {
		do = actionOf(v.result)
	}

	r.rehearsal.Judge(st.name, string(do), r.hideLine(v.result.Reason))
}

// sleep waits between two requests of a step. A rehearsal that sends no requests to a CMS does not
// wait. sleep reports whether the attempt still has time.
func (r *run) sleep(pause time.Duration) bool {
	if r.rehearsal != nil && !r.rehearsal.IsLive {
		return r.limited.Err() == nil
	}
	return clock.Sleep(r.limited, pause)
}

// outlineSteps reports the later steps to the rehearsal, after the rehearsal did not answer the
// request of a step. The parameter "open" is the step without an answer.
func (r *run) outlineSteps(open *step) {
	missing := pendingSteps{open.name: true}
	env := maps.Clone(r.env)
	env[pendingName] = missing
	at := slices.Index(r.chain.steps, open)
	for _, st := range r.chain.steps[at+1:] {
		r.budget.renew()
		o := cms.StepOutline{Step: st.name, Method: st.method}
		if st.when != nil {
			holds, err := st.when.evaluateCondition(env)
			switch {
			case errors.Is(err, errPending):
				o.Condition = st.when.source
			case err != nil:
				o.Problem = "when: " + err.Error()
			case !holds:
				r.rehearsal.LeaveOut(st.name, st.when.source)
				env[st.name] = nil
				continue
			}
		}

		missing[st.name] = true
		if o.Problem == "" {
			r.outlineRequest(st, env, &o)
		}

		r.rehearsal.Outline(o)
	}
}

// outlineRequest adds the request of the step st to the outline o.
func (r *run) outlineRequest(st *step, env map[string]any, o *cms.StepOutline) {
	p, err := st.prepareRequest(env, r.delivery.Message)
	if err != nil {
		o.Problem = err.Error()
		return
	}

	o.Address, o.Body = p.address, p.content
	headersOnly := *p

	// net/url may refuse a {{ }} in p.address
	headersOnly.address, headersOnly.content = "http://cms.invalid/", nil
	req, err := r.completeRequest(r.limited, st, &headersOnly)
	if err != nil {
		o.Problem = err.Error()
		return
	}

	o.Header = req.Header
}

// pendingName is the name in an environment under which outlineSteps stores pendingSteps.
// Expressions cannot read this name.
const pendingName = "\x00pending"

// pendingSteps has the names of the steps without an answer.
type pendingSteps map[string]bool

// pendingValue is a placeholder for the value of an expression that reads a missing answer: the
// source of the expression, between {{ and }}.
type pendingValue string

// errPending is the error of a condition that reads a missing answer.
var errPending = errors.New("it reads an answer that is missing")

// findPending returns a placeholder if the expression reads a missing answer, and an empty text
// otherwise.
func (e *expression) findPending(env map[string]any) pendingValue {
	missing, _ := env[pendingName].(pendingSteps)
	for _, name := range e.steps {
		if missing[name] {
			return pendingValue(fmt.Sprintf("{{ %s }}", e.source))
		}
	}
	return ""
}

// LookUp describes the look-up of a chain: the first step that changes nothing, reads no answer of
// another step, and has no remembered id in its address.
type LookUp struct {
	Step         string
	NeedsMessage bool // an expression of the step, or of the rules for all steps, reads the message
}

// FindLookUp returns the look-up of a contract's steps. If the contract has no look-up, found is
// false.
func (s *Sender) FindLookUp(contract string) (l LookUp, found bool) {
	if ch := s.chains[contract]; ch != nil {
		if st := ch.findLookUp(); st != nil {
			return LookUp{st.name, slices.ContainsFunc(st.expressions, (*expression).readsMessage)},
				true
		}
	}
	return LookUp{}, false
}

func (ch *chain) findLookUp() *step {
	for _, st := range ch.steps {
		readsAnswers := func(e *expression) bool { return len(e.steps) > 0 }
		if st.isSafe && !st.addressesRemembered &&
			!slices.ContainsFunc(st.expressions, readsAnswers) {
			return st
		}
	}

	return nil
}

// RehearseLookUp passes only the request of a contract's look-up to the rehearsal. The contract
// must have a look-up; see FindLookUp. If LookUp.NeedsMessage is false, the message needs only the
// name of its contract. If the condition of the look-up is false, RehearseLookUp makes no request.
func (s *Sender) RehearseLookUp(ctx context.Context, d weir.Delivery,
	rehearsal *cms.Rehearsal) weir.Result {
	ch := s.chains[d.Message.Contract]
	limited, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	r := &run{sender: s, chain: ch, ctx: ctx, limited: limited, delivery: d, rehearsal: rehearsal,
		round: 1}
	st := ch.findLookUp()
	values := map[contract.Selection][]string{}
	if slices.ContainsFunc(st.expressions, (*expression).readsMessage) {
		found, failure := r.extractValues()
		if failure != nil {
			return *failure
		}
		values = found
	}

	r.startRound(values)

	if st.when != nil {
		holds, err := st.when.evaluateCondition(r.env)
		if err != nil {
			return r.failValue(st, err, true).result
		}

		if !holds {
			r.reportLeftOut(st)
			return weir.Result{Outcome: weir.OutcomeDelivered}
		}
	}

	v, _ := r.sendStep(st)
	v.result.Reason = r.hideLine(v.result.Reason)

	return v.result
}

// readsMessage reports whether the expression reads the message by a name such as key, or by a
// function such as text.
func (e *expression) readsMessage() bool { return e.message }
