package steps

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"weir/internal/cms"
	"weir/internal/contract"
	"weir/internal/signin"
	"weir/internal/weir"
)

// maxAgain is the number of times that an attempt may start the chain again. A CMS may refuse an item each time, for
// example because another item has the same address. If the chain would have to start once more after that, the
// attempt fails, and is one of the message's limited attempts.
const maxAgain = 2

const idempotencyHeader = "Idempotency-Key"

// The records of an attempt are stored with the message. Their size is limited, because a step that waits for a
// condition sends many requests.
const (
	maxRecords = 10
	maxWords   = 120 // bytes of the reason in a record
)

// run is one attempt of a chain.
type run struct {
	sender   *Sender
	chain    *chain
	ctx      context.Context // ends when Weir cuts the attempt off
	limited  context.Context // also ends at the timeout of the attempt
	delivery weir.Delivery
	mask     cms.Mask
	// rehearsal takes the requests in place of the CMS; nil = the CMS gets them
	rehearsal *cms.Rehearsal
	round     int // number of the current run of the chain within the attempt, from 1
	env       map[string]any
	records   []weir.Step
	last      weir.Result // result of the last answer in this run of the chain; delivered if there was none

	hasSignedIn bool // a rule has already made this attempt sign in again

	rememberedID string // the CMS's id of the key's item; empty = none is known
	learnedID    string // the id that this attempt has learned; empty = none
	isForgotten  bool   // the attempt has forgotten an id, because the CMS no longer has its item
}

// verdict is the decision about a step: an action, and the attempt's result if the attempt ends with the step.
type verdict struct {
	do     action // empty = no rule and no convention chose an action, and the attempt ends with result
	result weir.Result
}

// runAttempt runs the chain. It runs the chain again if the verdict of a step demands this, but not more than
// maxAgain times.
func (r *run) runAttempt() weir.Result {
	values, failure := r.extractValues()
	if failure != nil {
		return *failure
	}
	for r.round = 1; ; r.round++ {
		r.startRound(values)
		v := r.runSteps()
		switch {
		case v.do == actionForget:
			r.forgetID()
			v.do = actionAgain
		case v.do == actionSignIn && !r.hasSignedIn && r.round <= maxAgain:
			r.hasSignedIn = true
			v.do = actionAgain
		}
		if v.do != actionAgain {
			return v.result
		}
		if r.round > maxAgain {
			v.result.Outcome, v.result.Refused = weir.OutcomeRetry, false
			v.result.Reason = fmt.Sprintf("%s (the steps were run %d times)", v.result.Reason, r.round)
			return v.result
		}
	}
}

// startRound makes the environment for one run of the chain. The environment has the message, and no answers yet.
func (r *run) startRound(values map[contract.Selection][]string) {
	r.env = map[string]any{}
	addFunctions(r.env)
	addMessage(r.env, message{r.delivery.Message, values, r.rememberedID})
}

// extractValues returns the values of the message that expressions need. If it cannot read them, it returns the
// attempt's result instead.
func (r *run) extractValues() (map[contract.Selection][]string, *weir.Result) {
	m := r.delivery.Message
	found, err := r.sender.cfg.Messages.Extract(r.limited, r.chain.extractor, m.ContentType, m.Body)
	switch {
	case err != nil && r.ctx.Err() != nil:
		return nil, &weir.Result{Outcome: weir.OutcomeNone, Reason: "cut off"}
	case weir.KindOf(err) == weir.Unavailable:
		return nil, &weir.Result{Outcome: weir.OutcomeRetry, Reason: "no memory to read the message within the timeout"}
	case err != nil:
		return nil, &weir.Result{Outcome: weir.OutcomeRejected, Reason: "the message cannot be read: " + err.Error()}
	}
	values := map[contract.Selection][]string{}
	for i, s := range r.chain.selections {
		values[s] = found[i]
	}
	return values, nil
}

func (r *run) runSteps() verdict {
	r.last = weir.Result{Outcome: weir.OutcomeDelivered, Reason: "no step had to be done"}
	for _, st := range r.chain.steps {
		r.env[st.name] = nil
		if st.when != nil {
			holds, err := st.when.evaluateCondition(r.env)
			if err != nil {
				return r.failValue(st, err, true)
			}
			if !holds {
				r.reportLeftOut(st)
				continue
			}
		}
		if v := r.runStep(st); v.do != actionOK {
			return v
		}
	}
	return verdict{actionDone, r.last}
}

// runStep sends a step's request. If the step waits for a condition, it sends the request repeatedly.
func (r *run) runStep(st *step) verdict {
	giveUpAt := r.sender.cfg.Now().Add(st.forTime)
	for {
		v, a := r.sendStep(st)
		if v.do == actionDone || v.do == actionOK && st.until == nil {
			return r.finishStep(st, v, a)
		}
		if v.do != actionOK {
			return v
		}
		reached, err := st.until.evaluateCondition(r.ownEnv(a))
		switch {
		case err != nil:
			return r.failStep(st, weir.OutcomeRetry, "until: "+err.Error(), a)
		case reached:
			return r.finishStep(st, v, a)
		case r.sender.cfg.Now().Add(st.every).After(giveUpAt):
			return r.failStep(
				st,
				weir.OutcomeRetry,
				fmt.Sprintf("%s does not hold after %s", st.until.source, st.forTime),
				a,
			)
		case !r.sleep(st.every):
			return r.stopAttempt(st)
		}
	}
}

// finishStep remembers the id in the answer of a successful step, if the step has the setting "remember". It returns
// v, or another verdict if the answer's id cannot be read.
func (r *run) finishStep(st *step, v verdict, a *answer) verdict {
	if err := r.rememberID(st, a); err != nil {
		return r.failStep(st, weir.OutcomeRetry, err.Error(), a)
	}
	return v
}

// stopAttempt returns the verdict of an attempt that ends between two requests, because Weir cut it off or its timeout
// is over.
func (r *run) stopAttempt(st *step) verdict {
	if r.ctx.Err() != nil {
		return verdict{"", weir.Result{Outcome: weir.OutcomeNone, Reason: "cut off"}}
	}
	return verdict{"", weir.Result{Outcome: weir.OutcomeRetry, Status: r.last.Status,
		Reason: st.name + ": no time is left of the timeout of all steps"}}
}

// sendStep sends one request of a step, and returns the verdict and the answer. The answer is nil if the CMS sent
// none, or if Weir cut the attempt off.
func (r *run) sendStep(st *step) (verdict, *answer) {
	if r.limited.Err() != nil {
		return r.stopAttempt(st), nil
	}
	record := weir.Step{Name: st.name, At: r.sender.cfg.Now()}
	request, err := r.newRequest(st)
	if err != nil {
		v := r.failValue(st, err, false)
		r.recordStep(record, v)
		return v, nil
	}
	client, rehearsed := r.newClient(st)
	resp, failure := cms.Exchange(r.ctx, r.limited, client, request)
	if rehearsed != nil && rehearsed.LacksAnswer() {
		r.outlineSteps(st)
		return verdict{"", failure}, nil
	}
	if resp == nil {
		v := r.failExchange(st, failure)
		r.recordStep(record, v)
		return v, nil
	}
	defer resp.Body.Close()
	a, err := readAnswer(resp, r.sender.cfg.MaxAnswer)
	if err != nil && r.ctx.Err() != nil {
		return verdict{"", weir.Result{Outcome: weir.OutcomeNone, Reason: "cut off", Unanswered: !st.isSafe}}, nil
	}
	a.parseParts(st.needs)
	v := r.judgeAnswer(st, a)
	if v.do == actionSignIn {
		signin.DropCredential(resp)
	}
	if err != nil && r.limited.Err() != nil && !st.isSafe {
		v.result.Unanswered = true // the timeout came before the CMS's answer was complete
	}
	r.reportVerdict(st, v)
	r.env[st.name] = a
	record.Status = a.Status
	r.recordStep(record, v)
	r.last = v.result
	return v, a
}

// recordStep adds a request to the attempt's records. A record has a reason only if the chain starts again after the
// request. The last request needs no reason in its record, because the attempt has the same reason. If there are more
// than maxRecords, recordStep keeps the first records and the last ones.
func (r *run) recordStep(s weir.Step, v verdict) {
	s.Duration = r.sender.cfg.Now().Sub(s.At)
	if v.do == actionAgain || v.do == actionForget || v.do == actionSignIn {
		s.Reason = cms.SingleLine(r.mask.Hide(v.result.Reason))
		s.Reason = strings.ToValidUTF8(s.Reason[:min(len(s.Reason), maxWords)], "")
	}
	if len(r.records) == maxRecords {
		r.records = append(r.records[:maxRecords/2], r.records[maxRecords/2+1:]...)
	}
	r.records = append(r.records, s)
}

// newRequest returns a function that builds the step's request. If the value of an expression cannot be used,
// newRequest returns an error.
func (r *run) newRequest(st *step) (func(context.Context) (*http.Request, error), error) {
	p, err := st.prepareRequest(r.env, r.delivery.Message)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (*http.Request, error) { return r.completeRequest(ctx, st, p) }, nil
}

// completeRequest returns the request of a step with all its headers, except the headers of the sign-in.
func (r *run) completeRequest(ctx context.Context, st *step, p *preparedRequest) (*http.Request, error) {
	req, err := p.newRequest(ctx)
	if err != nil {
		return nil, err
	}
	for name, value := range r.sender.cfg.Headers {
		req.Header.Set(name, value)
	}
	cms.SetMessageHeaders(req, r.delivery)
	key := r.idempotencyKey(req, st)
	req.Header.Del(idempotencyHeader)
	// The header's name is in lower case. With the usual spelling of the name, net/http itself would repeat a request
	// without a body.
	req.Header[strings.ToLower(idempotencyHeader)] = []string{key}
	maps.Copy(req.Header, p.headers)
	return req, nil
}

// idempotencyKey returns the Idempotency-Key of a step. Each attempt sends the same keys. If an attempt runs the chain
// again, it sends other keys in that run, because the requests may differ: a CMS that honours the header must not
// repeat the answers that it gave in an earlier run.
func (r *run) idempotencyKey(req *http.Request, st *step) string {
	key := req.Header.Get(idempotencyHeader) + "/" + st.name
	if r.round > 1 {
		key += "/" + strconv.Itoa(r.round)
	}
	return key
}

// ownEnv returns the environment with the parts of the step's own answer.
func (r *run) ownEnv(a *answer) map[string]any {
	env := maps.Clone(r.env)
	addOwn(env, a)
	return env
}

// failExchange returns the verdict of a request without an answer.
func (r *run) failExchange(st *step, failure weir.Result) verdict {
	if st.isSafe { // the CMS cannot still work on a change
		failure.Unanswered = false
	}
	if failure.Outcome != weir.OutcomeNone {
		failure.Reason = st.name + ": " + failure.Reason
	}
	return verdict{"", failure}
}

// failValue returns the verdict of an expression that failed before a request was sent. If the expression reads
// only the message, the outcome is rejected. If the expression reads an answer of the CMS or the remembered id, the
// outcome is retry, because the next attempt may read another value.
func (r *run) failValue(st *step, err error, isCondition bool) verdict {
	var value *valueError
	result := weir.Result{Outcome: weir.OutcomeRetry, Reason: st.name + ": " + err.Error(), Status: r.last.Status}
	if isCondition {
		result.Reason = st.name + ": when: " + err.Error()
	}
	if errors.As(err, &value) && !value.reads {
		result.Outcome = weir.OutcomeRejected
	}
	return verdict{"", result}
}
