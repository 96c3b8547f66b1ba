package steps

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"weir/internal/clock"
	"weir/internal/cms"
	"weir/internal/contract"
	"weir/internal/weir"
)

// maxAgain limits how often an attempt begins the chain anew. Two documents that want one place refuse
// each other for good; then the attempt fails, and counts.
const maxAgain = 2

const idempotencyHeader = "Idempotency-Key"

// The story of an attempt is stored with the message, so its size is limited: polling makes many requests.
const (
	maxRecords = 10
	maxWords   = 120 // bytes
)

// run is one attempt.
type run struct {
	sender   *Sender
	chain    *chain
	ctx      context.Context // ends when Weir cuts the attempt off
	limited  context.Context // ends at the timeout, too
	delivery weir.Delivery
	mask     cms.Mask
	round    int // of the chain within the attempt, from 1
	env      map[string]any
	records  []weir.Step
	last     weir.Result // of the last answer
}

// verdict is what a step's answer means, with the result of the attempt if it ends here.
type verdict struct {
	do     action
	result weir.Result
}

// attempt runs the chain, and begins anew as long as a step asks for it.
func (r *run) attempt() weir.Result {
	values, failure := r.extract()
	if failure != nil {
		return *failure
	}
	for r.round = 1; ; r.round++ {
		r.env = map[string]any{}
		addFunctions(r.env)
		addMessage(r.env, message{r.delivery.Message, values})
		v := r.runSteps()
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

// extract reads the values that expressions need from the message.
func (r *run) extract() (map[contract.Selection][]string, *weir.Result) {
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

// runSteps runs the chain once.
func (r *run) runSteps() verdict {
	r.last = weir.Result{Outcome: weir.OutcomeDelivered, Reason: "no step had to be done"}
	for _, st := range r.chain.steps {
		r.env[st.name] = nil
		if st.when != nil {
			held, err := st.when.holds(r.env)
			if err != nil {
				return r.failValue(st, err, true)
			}
			if !held {
				continue
			}
		}
		if v := r.runStep(st); v.do != actionOK {
			return v
		}
	}
	return verdict{actionDone, r.last}
}

// runStep sends a step's request, again and again if it waits for a condition.
func (r *run) runStep(st *step) verdict {
	giveUpAt := r.sender.cfg.Now().Add(st.forTime)
	for {
		v, a := r.send(st)
		if v.do != actionOK || st.until == nil {
			return v
		}
		reached, err := st.until.holds(r.ownEnv(a))
		switch {
		case err != nil:
			return r.fail(st, weir.OutcomeRetry, "until: "+err.Error(), a)
		case reached:
			return v
		case r.sender.cfg.Now().Add(st.every).After(giveUpAt):
			return r.fail(
				st,
				weir.OutcomeRetry,
				fmt.Sprintf("%s does not hold after %s", st.until.source, st.forTime),
				a,
			)
		case !clock.Sleep(r.limited, st.every):
			return r.stopped(st)
		}
	}
}

// stopped returns the verdict of an attempt whose time is over between two requests.
func (r *run) stopped(st *step) verdict {
	if r.ctx.Err() != nil {
		return verdict{"", weir.Result{Outcome: weir.OutcomeNone, Reason: "cut off"}}
	}
	return verdict{"", weir.Result{Outcome: weir.OutcomeRetry, Status: r.last.Status,
		Reason: st.name + ": no time is left of the timeout of all steps"}}
}

// send makes one request of a step, and returns what its answer means.
func (r *run) send(st *step) (verdict, *answer) {
	if r.limited.Err() != nil {
		return r.stopped(st), nil
	}
	record := weir.Step{Name: st.name, At: r.sender.cfg.Now()}
	request, err := r.newRequest(st)
	if err != nil {
		v := r.failValue(st, err, false)
		r.record(record, v)
		return v, nil
	}
	resp, failure := cms.Exchange(r.ctx, r.limited, r.sender.client, request)
	if resp == nil {
		v := r.failExchange(st, failure)
		r.record(record, v)
		return v, nil
	}
	defer resp.Body.Close()
	a, err := readAnswer(resp, r.sender.cfg.MaxAnswer)
	if err != nil && r.ctx.Err() != nil {
		return verdict{"", weir.Result{Outcome: weir.OutcomeNone, Reason: "cut off", Unanswered: !st.isSafe}}, nil
	}
	a.parse(st.needs)
	v := r.judge(st, a)
	if err != nil && r.limited.Err() != nil && !st.isSafe {
		v.result.Unanswered = true // the CMS was still answering when the time was over
	}
	r.env[st.name] = a
	record.Status = a.Status
	r.record(record, v)
	r.last = v.result
	return v, a
}

// record adds a request to the story of the attempt. The reason of the last step is the attempt's own.
func (r *run) record(s weir.Step, v verdict) {
	s.Duration = r.sender.cfg.Now().Sub(s.At)
	if v.do == actionAgain {
		s.Reason = cms.SingleLine(r.mask.Hide(v.result.Reason))
		s.Reason = strings.ToValidUTF8(s.Reason[:min(len(s.Reason), maxWords)], "")
	}
	if len(r.records) == maxRecords {
		r.records = append(r.records[:maxRecords/2], r.records[maxRecords/2+1:]...)
	}
	r.records = append(r.records, s)
}

// newRequest returns a function that makes the step's request. Its error is that of a value.
func (r *run) newRequest(st *step) (func(context.Context) (*http.Request, error), error) {
	p, err := st.prepare(r.env, r.delivery.Message)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (*http.Request, error) {
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
		// net/http sends a request again by itself if it has this header in its usual spelling and no body.
		req.Header[strings.ToLower(idempotencyHeader)] = []string{key}
		maps.Copy(req.Header, p.headers)
		return req, nil
	}, nil
}

// idempotencyKey returns the step's key. A repeated chain sends the same keys. Once a step was answered
// with "again", the next round's request is another one, and a CMS that honours the header must not
// answer it from memory.
func (r *run) idempotencyKey(req *http.Request, st *step) string {
	key := req.Header.Get(idempotencyHeader) + "/" + st.name
	if r.round > 1 {
		key += "/" + strconv.Itoa(r.round)
	}
	return key
}

// ownEnv returns the environment with the step's own answer.
func (r *run) ownEnv(a *answer) map[string]any {
	env := maps.Clone(r.env)
	addOwn(env, a)
	return env
}

// failExchange returns the verdict of a request without an answer.
func (r *run) failExchange(st *step, failure weir.Result) verdict {
	if st.isSafe { // a look-up without an answer leaves nothing at work in the CMS
		failure.Unanswered = false
	}
	if failure.Outcome != weir.OutcomeNone {
		failure.Reason = st.name + ": " + failure.Reason
	}
	return verdict{"", failure}
}

// failValue returns the verdict of an expression that failed before a request was sent. A message that
// cannot be written is dead; an answer of the CMS may be another one next time.
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
