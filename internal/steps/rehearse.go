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

// Rehearse makes one attempt with a rehearsal in place of the CMS. A step without an answer ends the attempt.
// The rehearsal then gets an outline of each later step whose condition is not false. If the message's contract has
// no steps, Next rehearses the attempt.
func (s *Sender) Rehearse(ctx context.Context, d weir.Delivery, rehearsal *cms.Rehearsal) weir.Result {
	ch := s.chains[d.Message.Contract]
	if ch == nil {
		return s.cfg.Next.Rehearse(ctx, d, rehearsal)
	}
	return s.sendChain(ctx, ch, d, rehearsal)
}

// newClient returns the client of a step's request. The result replaced is the connection to the rehearsal; nil = the
// CMS gets the request.
func (r *run) newClient(st *step) (client *http.Client, replaced *cms.RehearsedStep) {
	if r.rehearsal == nil {
		return r.sender.client, nil
	}
	replaced = r.rehearsal.NewStep(st.name)
	return cms.NewHTTPClient(replaced), replaced
}

// reportLeftOut reports to the rehearsal that a step is left out, because its condition is false.
func (r *run) reportLeftOut(st *step) {
	if r.rehearsal != nil {
		r.rehearsal.LeaveOut(st.name, st.when.source)
	}
}

// reportVerdict reports the verdict of an answer to the rehearsal.
func (r *run) reportVerdict(st *step, v verdict) {
	if r.rehearsal == nil {
		return
	}
	do := v.do
	if do == "" { // the verdict follows from the status alone
		do = map[weir.Outcome]action{weir.OutcomeRetry: actionRetry, weir.OutcomeRejected: actionReject,
			weir.OutcomeUnavailable: actionUnavailable}[v.result.Outcome]
	}
	r.rehearsal.Judge(st.name, string(do), cms.SingleLine(r.mask.Hide(v.result.Reason)))
}

// sleep waits between two requests of a step, except in a rehearsal without the CMS. It reports whether the attempt
// still has time.
func (r *run) sleep(pause time.Duration) bool {
	if r.rehearsal != nil && !r.rehearsal.IsLive {
		return r.limited.Err() == nil
	}
	return clock.Sleep(r.limited, pause)
}

// outlineSteps reports to the rehearsal each step that follows the step open, to which there was no answer.
func (r *run) outlineSteps(open *step) {
	missing := pendingSteps{open.name: true}
	r.markRemembered(open, missing)
	env := maps.Clone(r.env)
	env[pendingName] = missing
	at := slices.Index(r.chain.steps, open)
	for _, st := range r.chain.steps[at+1:] {
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
		r.markRemembered(st, missing)
		r.rehearsal.Outline(o)
	}
}

// markRemembered is called for a step without an answer. If the step would remember an id, and the attempt has no id
// yet, markRemembered marks the remembered id as missing.
func (r *run) markRemembered(st *step, missing pendingSteps) {
	if st.remember != nil && r.rememberedID == "" {
		missing[rememberedName] = true
	}
}

// outlineRequest adds the request of a step to its outline.
func (r *run) outlineRequest(st *step, env map[string]any, o *cms.StepOutline) {
	p, err := st.prepareRequest(env, r.delivery.Message)
	if err != nil {
		o.Problem = err.Error()
		return
	}
	o.Address, o.Body = p.address, p.content
	headersOnly := *p
	headersOnly.address, headersOnly.content = "http://cms.invalid/", nil // the real address may have expressions
	req, err := r.completeRequest(r.limited, st, &headersOnly)
	if err != nil {
		o.Problem = err.Error()
		return
	}
	o.Header = req.Header
}

// pendingName is the name in an environment under which outlineSteps stores the steps without an answer.
// Expressions cannot read this name.
const pendingName = "\x00pending"

// pendingSteps are the names of the steps without an answer. rememberedName is among them if one of these steps
// remembers an id.
type pendingSteps map[string]bool

// pendingValue is the source of an expression that reads a missing answer, between {{ and }}. It takes the
// place of the expression's value.
type pendingValue string

// errPending is the error of a condition that reads a missing answer.
var errPending = errors.New("it reads an answer that is missing")

// findPending returns the expression's placeholder if the expression reads a missing answer or a remembered id that
// is missing; otherwise "".
func (e *expression) findPending(env map[string]any) pendingValue {
	missing, _ := env[pendingName].(pendingSteps)
	if e.readsRemembered && missing[rememberedName] {
		return pendingValue(fmt.Sprintf("{{ %s }}", e.source))
	}
	for _, name := range e.steps {
		if missing[name] {
			return pendingValue(fmt.Sprintf("{{ %s }}", e.source))
		}
	}
	return ""
}

// LookUp describes the look-up of a chain: the first step that changes nothing, reads no answer of another step, and
// has no remembered id in its address.
type LookUp struct {
	Step         string
	NeedsMessage bool // an expression of the step, or of the rules for all steps, reads the message
}

// FindLookUp returns the look-up of a contract. found is false if the contract has none.
func (s *Sender) FindLookUp(contract string) (l LookUp, found bool) {
	if ch := s.chains[contract]; ch != nil {
		if st := ch.findLookUp(); st != nil {
			return LookUp{st.name, slices.ContainsFunc(st.expressions, (*expression).readsMessage)}, true
		}
	}
	return LookUp{}, false
}

func (ch *chain) findLookUp() *step {
	for _, st := range ch.steps {
		readsAnswers := func(e *expression) bool { return len(e.steps) > 0 }
		if st.isSafe && !st.addressesRemembered && !slices.ContainsFunc(st.expressions, readsAnswers) {
			return st
		}
	}
	return nil
}

// RehearseLookUp sends only the request of a contract's look-up, through the rehearsal. The contract must have a
// look-up (FindLookUp). The message may be empty if the look-up needs none. If the condition of the look-up is false,
// RehearseLookUp sends nothing.
func (s *Sender) RehearseLookUp(ctx context.Context, d weir.Delivery, rehearsal *cms.Rehearsal) weir.Result {
	ch := s.chains[d.Message.Contract]
	limited, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	r := &run{sender: s, chain: ch, ctx: ctx, limited: limited, delivery: d, mask: s.newMask(), rehearsal: rehearsal,
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
	v.result.Reason = cms.SingleLine(r.mask.Hide(v.result.Reason))
	return v.result
}

// readsMessage reports whether the expression reads the message by a name such as key, or by a function such as text.
func (e *expression) readsMessage() bool { return e.message }
