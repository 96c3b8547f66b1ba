package steps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/internal/cms"
	"weir/internal/conceal"
	"weir/internal/contract"
	"weir/internal/signin"
	"weir/internal/weir"
)

// maxAgain is the number of times that an attempt can start its chain again. After that, the
// attempt fails and counts against the message's limit of attempts. Without this bound, an attempt
// would not end if the CMS refuses an item each time, for example because another item has the same
// address.
const maxAgain = 2

const idempotencyHeader = "Idempotency-Key"

// An attempt has a record for each request, and the records are stored with the message. A step
// that waits for a condition sends many requests, so number and size of the records are limited.
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
	// credentials are the secrets in this attempt's requests and in the credential headers of the
	// answers. A step can take a credential from the answer to an earlier step, so the settings and
	// the sign-in do not know it.
	credentials []string
	// rehearsal gets the requests in place of the CMS; nil = the CMS gets the requests
	rehearsal *cms.Rehearsal
	round     int // counts the runs of the chain in this attempt, from 1
	env       map[string]any
	budget    *work // of the expressions; nil = the chain has none
	records   []weir.Step
	// result of the last answer in this run of the chain; delivered if no answer has come
	last weir.Result

	hasSignedIn bool // the attempt has already signed in again

	current  *step    // the step that is sent, or was sent last
	restarts []string // the steps after which the chain began again

	// busyUntil is the end of the settle time of a write without a complete answer: until then the
	// CMS can still be working on it. It is zero if there was no such write.
	busyUntil time.Time

	rememberedID string // the CMS's id of the key's item; empty = unknown
	learnedID    string // the id that this attempt has learned; empty = none
	// the attempt has dropped the remembered id, because the CMS no longer has the item
	isForgotten bool
}

// verdict is the decision about a step: an action, and the attempt's result if the attempt ends
// with this step.
type verdict struct {
	do     action // empty = no action was chosen, and the attempt ends with result
	result weir.Result
}

// runAttempt runs the chain. If the action for a step is to start again, runAttempt runs the chain
// again, at most maxAgain times.
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

		r.restarts = append(r.restarts, r.current.name)
		if r.round > maxAgain {
			return r.endRestarts(v.result)
		}
	}
}

// endRestarts returns the result of an attempt whose chain began again too often. A look-up judges
// no message, so after a look-up the attempt does not count.
func (r *run) endRestarts(result weir.Result) weir.Result {
	result.Outcome, result.Refused = weir.OutcomeRetry, false
	if r.current.isSafe {
		result.Outcome, result.Refused = weir.OutcomeUnavailable, true
	}

	words := fmt.Sprintf("the steps were run %d times", r.round)
	if slices.Equal(r.restarts, slices.Repeat([]string{r.current.name}, r.round)) &&
		!r.current.isSafe {
		words += ", each with this end; the look-up may not see the item that this step meets, such as a draft"
	}

	result.Reason = fmt.Sprintf("%s (%s)", result.Reason, words)

	return result
}

// startRound makes a new environment for one run of the chain. The environment has the message, but
// no answers of an earlier run.
func (r *run) startRound(values map[contract.Selection][]string) {
	r.env = map[string]any{}
	if r.chain.isSingle {
		r.env[placeholderName] = r.delivery.Message
		return
	}

	r.budget = newWork(r.limited, len(r.delivery.Message.Body))
	addWork(r.env, r.budget)
	addFunctions(r.env, r.budget)
	m := message{Message: r.delivery.Message, keyPaths: r.chain.keyPaths, values: values,
		rememberedID: r.rememberedID, budget: r.budget}

	if r.rehearsal != nil {
		m.selectsNothing = r.rehearsal.SelectsNothing
		r.env[missingName] = r.rehearsal.MissesMember
	}

	addMessage(r.env, m)
}

// extractValues returns the values of the message that expressions need. If the message cannot be
// read, extractValues returns the attempt's result instead.
func (r *run) extractValues() (map[contract.Selection][]string, *weir.Result) {
	if r.chain.isSingle {
		return nil, nil
	}

	m := r.delivery.Message
	found, err := r.sender.cfg.Messages.Extract(r.limited, r.chain.extractor, m.ContentType, m.Body)
	switch {
	case err != nil && r.ctx.Err() != nil:
		return nil, &weir.Result{Outcome: weir.OutcomeNone, Reason: "cut off"}
	case weir.KindOf(err) == weir.Unavailable:
		return nil, &weir.Result{Outcome: weir.OutcomeRetry,
			Reason: "no memory to read the message within the timeout"}
	case err != nil:
		return nil, &weir.Result{Outcome: weir.OutcomeRejected,
			Reason: "the message cannot be read: " + err.Error()}
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

// runStep sends a step's request. If the step has the setting "until", runStep sends the request
// repeatedly.
func (r *run) runStep(st *step) verdict {
	r.current = st
	var giveUpAt time.Time
	if st.until != nil {
		giveUpAt = r.sender.cfg.Now().Add(st.forTime)
	}

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
			return r.failStep(st, outcomes[unknownFailure(st.isSafe)], "until: "+err.Error(), a)
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

// finishStep ends a successful step. If the step has the setting "remember", finishStep reads the
// id from the answer. If the id cannot be read, the step fails; otherwise finishStep returns v.
func (r *run) finishStep(st *step, v verdict, a *answer) verdict {
	if err := r.rememberID(st, a); err != nil {
		return r.failStep(st, outcomes[unknownFailure(st.isSafe)], err.Error(), a)
	}
	return v
}

// stopAttempt returns the verdict for an attempt that ends while no request is sent: either Weir
// cut the attempt off, or the attempt's timeout passed.
func (r *run) stopAttempt(st *step) verdict {
	if r.ctx.Err() != nil {
		return verdict{"", weir.Result{Outcome: weir.OutcomeNone, Reason: "cut off"}}
	}
	return verdict{"", weir.Result{Outcome: weir.OutcomeRetry, Status: r.last.Status,
		Reason: st.label + "no time is left of the timeout of all steps"}}
}

// sendStep sends one request of a step, and returns the verdict and the answer. If there was no
// answer, or if Weir cut the attempt off, the answer is nil.
func (r *run) sendStep(st *step) (verdict, *answer) {
	if r.limited.Err() != nil {
		return r.stopAttempt(st), nil
	}
	if !r.awaitSettled(st) {
		return r.stopAttempt(st), nil
	}

	r.budget.renew()
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
	a, err := r.readAnswer(st, resp)
	if err != nil && r.ctx.Err() != nil {
		return verdict{"", weir.Result{Outcome: weir.OutcomeNone, Reason: "cut off",
			Unanswered: !st.isSafe}}, nil
	}

	v := r.judgeAnswer(st, a)
	switch {
	case v.do == actionSignIn:
		signin.DropCredential(resp)
	case v.do == actionForbid && signin.RenewCredential(r.limited, resp):
		v.do = actionAgain // the session may have ended: the chain runs with the new credential
	}

	if err != nil && r.limited.Err() != nil && !st.isSafe {
		v.result.Unanswered = true // the timeout came before the CMS's answer was complete
	}

	if v.result.Unanswered {
		r.busyUntil = r.sender.cfg.Now().Add(cmp.Or(r.sender.cfg.Settle, defaultSettle))
	}

	r.reportVerdict(st, v)
	r.env[st.name] = a
	record.Status = a.Status
	r.recordStep(record, v)
	r.last = v.result

	return v, a
}

// readAnswer reads the answer to a step, and learns its secrets.
func (r *run) readAnswer(st *step, resp *http.Response) (*answer, error) {
	r.addCredentials(conceal.CredentialSecrets(resp.Header)) // such as the cookie of a session
	limit := r.sender.cfg.MaxAnswer
	if r.chain.isSingle {
		return readBody(resp, cmp.Or(limit, defaultMaxSingle))
	}

	a, err := readBody(resp, cmp.Or(limit, defaultMaxAnswer))
	if a.isCut && !a.endedEarly {
		a.cutBy += " (delivery.maxAnswer)"
	}

	a.parseParts(st.needs)
	r.addCredentials(firstSecrets(conceal.ValueSecrets(a.JSON)))

	return a, err
}

// awaitSettled waits before a write until the CMS no longer works on an earlier write without a
// complete answer. It returns false if the attempt ends first. A look-up does not wait, because it
// changes nothing.
func (r *run) awaitSettled(st *step) bool {
	if st.isSafe || r.busyUntil.IsZero() {
		return true
	}
	left := r.busyUntil.Sub(r.sender.cfg.Now())
	return left <= 0 || r.sleep(left)
}

// recordStep adds a request to the attempt's records. A record has a reason only if the chain
// starts again after the request. Otherwise the reason of the attempt's result is enough. If there
// are already maxRecords records, recordStep drops one from the middle.
func (r *run) recordStep(s weir.Step, v verdict) {
	if r.chain.isSingle {
		return
	}

	s.Duration = r.sender.cfg.Now().Sub(s.At)
	if v.do == actionAgain || v.do == actionForget || v.do == actionSignIn {
		s.Reason = r.hideLine(v.result.Reason)
		if len(s.Reason) > maxWords {
			// redaction looks for this end of a cut text
			s.Reason = strings.ToValidUTF8(s.Reason[:maxWords], "") + "…"
		}
	}

	if len(r.records) == maxRecords {
		r.records = append(r.records[:maxRecords/2], r.records[maxRecords/2+1:]...)
	}

	r.records = append(r.records, s)
}

// newRequest evaluates the expressions of the step's request, and returns a function that builds
// the request.
func (r *run) newRequest(st *step) (func(context.Context) (*http.Request, error), error) {
	p, err := st.prepareRequest(r.env, r.delivery.Message)
	if err != nil {
		return nil, err
	}

	return func(ctx context.Context) (*http.Request, error) {
		req, err := r.completeRequest(ctx, st, p)
		if err == nil && !r.chain.isSingle { // the settings have all secrets of a single request
			r.addCredentials(conceal.RequestSecrets(req))
			r.addCredentials(conceal.ContentSecrets(p.contentType, p.content))
		}
		return req, err
	}, nil
}

// completeRequest returns a step's request with all headers except those of the sign-in.
func (r *run) completeRequest(ctx context.Context, st *step,
	p *preparedRequest) (*http.Request, error) {
	req, err := p.newRequest(ctx)
	if err != nil {
		return nil, err
	}

	for name, value := range r.sender.cfg.Headers {
		req.Header.Set(name, value)
	}

	cms.SetMessageHeaders(req, r.delivery)
	maps.Copy(req.Header, p.headers)
	if r.chain.isSingle {
		return req, nil
	}

	key := r.idempotencyKey(req, st)
	req.Header.Del(idempotencyHeader)

	// With the usual spelling of this header, net/http would take the request for repeatable, and
	// could send a request without a body twice. So the name is in lower case.
	req.Header[strings.ToLower(idempotencyHeader)] = []string{key}

	return req, nil
}

// addCredentials adds secrets that r does not know yet. A step with the setting "until" sends the
// same ones many times.
func (r *run) addCredentials(secrets []string) {
	for _, secret := range secrets {
		if !slices.Contains(r.credentials, secret) {
			r.credentials = append(r.credentials, secret)
		}
	}
}

// maxLearned limits the secrets that an attempt learns of one answer. An answer with more fields of
// such names has content under these names.
const maxLearned = 50

func firstSecrets(secrets []string) []string { return secrets[:min(len(secrets), maxLearned)] }

// hide returns a text without the secrets that are known now, and without the redacted values of
// the message.
func (r *run) hide(text string) string {
	return r.delivery.HideValues(r.sender.secrets.Hide(text, r.credentials...))
}

// hideLine returns a reason as one line, without what hide hides.
func (r *run) hideLine(reason string) string { return cms.SingleLine(r.hide(cms.Shorten(reason))) }

// idempotencyKey returns the Idempotency-Key of a step. Each attempt of a message sends the same
// keys. But each run of the chain within an attempt has its own keys, because its requests can
// differ from the requests of an earlier run. If the keys were equal, a CMS that honours the header
// would repeat its earlier answers.
func (r *run) idempotencyKey(req *http.Request, st *step) string {
	key := req.Header.Get(idempotencyHeader) + "/" + st.name
	if r.round > 1 {
		key += "/" + strconv.Itoa(r.round)
	}
	return key
}

// ownEnv returns a copy of the environment, with the parts of the step's own answer added.
func (r *run) ownEnv(a *answer) map[string]any {
	env := maps.Clone(r.env)
	addOwn(env, a)
	return env
}

// failExchange returns the verdict for a request without an answer. The request of a look-up
// changes nothing in the CMS, and the lack of its answer does not count as an attempt to write the
// message.
func (r *run) failExchange(st *step, failure weir.Result) verdict {
	if st.isSafe {
		failure.Unanswered = false
		if failure.Outcome == weir.OutcomeRetry {
			failure.Outcome = weir.OutcomeUnavailable
		}
	}

	if failure.Outcome != weir.OutcomeNone {
		failure.Reason = st.label + r.hide(failure.Reason)
	}

	return verdict{"", failure}
}

// failValue returns the verdict for an expression that failed before a request was sent. If the
// expression reads only the message, the outcome is rejected. If the expression reads an answer of
// the CMS or the remembered id, the outcome is retry, because the next attempt can read another
// value. If it reads answers of look-ups only, the attempt counts as a refusal, like an answer of a
// look-up that cannot be read.
func (r *run) failValue(st *step, err error, isCondition bool) verdict {
	if r.limited.Err() != nil { // the expression may have ended for want of time
		return r.stopAttempt(st)
	}

	var value *valueError
	result := weir.Result{Outcome: weir.OutcomeRetry, Reason: st.label + err.Error(),
		Status: r.last.Status}
	if isCondition {
		result.Reason = st.label + "when: " + err.Error()
	}

	if errors.As(err, &value) {
		switch {
		case !value.reads:
			result.Outcome = weir.OutcomeRejected
		case r.areLookUps(value.steps):
			result.Outcome, result.Refused = weir.OutcomeUnavailable, true
		}
	}

	return verdict{"", result}
}

// areLookUps reports whether each of these steps only reads. For no steps it returns false.
func (r *run) areLookUps(names []string) bool {
	isWrite := func(st *step) bool { return !st.isSafe && slices.Contains(names, st.name) }
	return len(names) > 0 && !slices.ContainsFunc(r.chain.steps, isWrite)
}
