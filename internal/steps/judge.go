package steps

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"weir/internal/cms"
	"weir/internal/contract"
	"weir/internal/weir"
)

func (st *step) isExpected(status int) bool {
	if len(st.expect) == 0 {
		return status/100 == 2
	}
	return slices.Contains(st.expect, status)
}

// judgeAnswer decides about a step by its answer. The first of these cases that applies decides:
//
//   - An expected answer has a needed part that cannot be read.
//   - A rule matches, or a rule cannot be evaluated although the answer is expected and readable.
//   - The step does not expect the status.
//   - The answer is an HTML page that no expression reads.
//   - By the conventions of GraphQL or XML-RPC, the answer reports a failure.
//   - The answer does not fit the setting "success".
//
// Otherwise the step has succeeded.
func (r *run) judgeAnswer(st *step, a *answer) verdict {
	base := r.classifyStatus(st, a)
	expected := st.isExpected(a.Status)
	if problem := st.findUnreadable(a); problem != "" && expected {
		return r.judgeUnreadable(st, base, problem)
	}
	env := r.ownEnv(a)
	found, err := firstRule(st.rules, env)
	switch {
	case found != nil:
		return r.applyAction(st, base, found.do, found.evaluateReason(env))
	case err != nil && expected && a.isReadable():
		return r.judgeUnreadable(st, base, "on: "+err.Error())
	case !expected:
		return r.judgeStatus(st, a, base)
	case base.Outcome == weir.OutcomeRetry && a.Status/100 == 2:
		return r.judgeUnreadable(st, base, cms.ForeignPage+", which no expression reads")
	}
	if do, words := st.judgeBody(a); do != actionOK {
		return r.applyAction(st, base, do, words)
	}
	if st.success != nil {
		holds, err := st.success.evaluateCondition(env)
		switch {
		case err != nil:
			return r.judgeUnreadable(st, base, "success: "+a.explainError(err))
		case !holds && a.Status/100 != 2 && !a.isReadable(): // findUnreadable has checked 2xx answers above
			return r.judgeUnreadable(st, base, a.firstProblem())
		case !holds:
			base.Outcome = weir.OutcomeRetry
			base.Reason += " (the answer does not fit success: " + st.success.source + ")"
			return verdict{actionRetry, base}
		}
	}
	base.Outcome = weir.OutcomeDelivered
	return verdict{actionOK, base}
}

// classifyStatus returns a result whose outcome follows from the answer's status alone.
func (r *run) classifyStatus(st *step, a *answer) weir.Result {
	rules := cms.Rules{Means: r.sender.answers[r.chain.contract], Hide: r.hide,
		ReadsBody: st.needs[partBody] == needStrict || st.needs[partXML] == needStrict}
	result := cms.Classify(a.forJudge(), rules, r.sender.cfg.Now())
	result.Reason = st.name + ": " + result.Reason
	if words := errorWords(a.JSON); words != "" {
		result.Reason = fmt.Sprintf("%s: %d %s: %s", st.name, a.Status, http.StatusText(a.Status), words)
	}
	if st.isSafe {
		result.Unanswered = false
	}
	if st.retryAfter != "" {
		result.RetryAfter = max(result.RetryAfter, parseReset(a.header.Get(st.retryAfter), r.sender.cfg.Now()))
	}
	return result
}

// parseReset parses the value of the header that the setting "retryAfter" names: seconds, a date, or a Unix time in
// seconds. For any other value, parseReset returns 0.
func parseReset(value string, now time.Time) time.Duration {
	const laterThanAnyDelay = 1_000_000_000
	if at, err := strconv.ParseInt(value, 10, 64); err == nil && at > laterThanAnyDelay {
		return cms.ParseRetryAfter(time.Unix(at, 0).UTC().Format(http.TimeFormat), now)
	}
	if seconds, err := strconv.ParseFloat(value, 64); err == nil && seconds > 0 && seconds < 1e6 {
		return cms.ParseRetryAfter(strconv.Itoa(int(seconds+0.999)), now)
	}
	return cms.ParseRetryAfter(value, now)
}

func (a *answer) isReadable() bool { return len(a.problem) == 0 }

// firstProblem returns the reason why a needed part of the answer (JSON, XML or text) cannot be read. If each needed
// part can be read, firstProblem returns an empty text.
func (a *answer) firstProblem() string {
	for _, p := range []part{partJSON, partXML, partBody} {
		if a.problem[p] != "" {
			return a.problem[p]
		}
	}
	return ""
}

// explainError returns the reason why an expression failed with err. If a part of the answer cannot be read, the reason
// names this part. Otherwise the reason is the text of err.
func (a *answer) explainError(err error) string {
	if problem := a.firstProblem(); problem != "" {
		return problem
	}
	return err.Error()
}

// findUnreadable returns the reason why a needed part of a 2xx answer cannot be read. If there is no such part,
// findUnreadable returns an empty text. An answer without content is accepted in two cases:
//
//   - Only the rules of delivery.on, or the setting "say" of a sign-in, need the part.
//   - The step writes, and the status is 204 or 205.
func (st *step) findUnreadable(a *answer) string {
	isEmpty := len(bytes.TrimSpace(a.raw)) == 0 && !a.isCut
	hasNoContent := a.Status == http.StatusNoContent || a.Status == http.StatusResetContent ||
		st.method == http.MethodHead
	for _, p := range []part{partJSON, partXML, partBody} {
		problem := a.problem[p]
		switch {
		case problem == "" || a.Status/100 != 2:
		case st.needs[p] == needLenient && isEmpty:
		case isEmpty && hasNoContent && !st.isSafe:
		default:
			return problem
		}
	}
	return ""
}

// judgeUnreadable decides about a step whose answer cannot be read. After a look-up, the outcome is unavailable, and
// counts as a refusal: the CMS may answer so to this message only. After a write, the outcome is retry, because the CMS
// may have made the change.
func (r *run) judgeUnreadable(st *step, result weir.Result, problem string) verdict {
	result.Reason = fmt.Sprintf("%s: %d, but %s", st.name, result.Status, problem)
	if st.isSafe {
		result.Outcome, result.Refused = weir.OutcomeUnavailable, true
		return verdict{actionUnavailable, result}
	}
	result.Outcome, result.Refused = weir.OutcomeRetry, false
	return verdict{actionRetry, result}
}

// judgeStatus decides about a step whose answer has an unexpected status and matches no rule. The contract's setting
// "answers" has precedence. If the CMS no longer has the item of the remembered id, the chain starts again without the
// id. After a conflict (409) or a stale version (412), the chain starts again, to look the item up again.
func (r *run) judgeStatus(st *step, a *answer, base weir.Result) verdict {
	_, isDefined := r.sender.answers[r.chain.contract][a.Status]
	switch {
	case isDefined:
	case r.isGone(st, a):
		return r.applyAction(st, base, actionForget, "")
	case a.Status == http.StatusConflict, a.Status == http.StatusPreconditionFailed:
		return r.applyAction(st, base, actionAgain, "")
	case a.Status/100 == 2:
		base.Outcome = weir.OutcomeRetry
		base.Reason += " (not an expected status)"
	}
	return verdict{"", base}
}

// judgeBody returns the action for the body of an expected answer, and the reason. GraphQL and XML-RPC report failures
// in the body, with status 200.
func (st *step) judgeBody(a *answer) (action, string) {
	if st.isGraphQL {
		return judgeGraphQL(a.JSON)
	}
	if call, ok := st.body.(*xmlBody); ok && call.isCall {
		return judgeCall(a)
	}
	return actionOK, ""
}

func judgeGraphQL(value any) (action, string) {
	object, ok := value.(map[string]any)
	if !ok {
		return actionUnavailable, "the answer is not one of GraphQL"
	}
	list, _ := object["errors"].([]any)
	if len(list) == 0 {
		if object["data"] == nil {
			return actionUnavailable, "the answer of GraphQL has neither data nor errors"
		}
		return actionOK, ""
	}
	words := errorWords(value)
	first, _ := list[0].(map[string]any)
	extensions, _ := first["extensions"].(map[string]any)
	switch extensions["code"] {
	case "UNAUTHENTICATED", "AUTH_NOT_AUTHENTICATED":
		return actionSignIn, words
	case "RATE_LIMITED", "THROTTLED":
		return actionUnavailable, words
	case "INTERNAL_SERVER_ERROR":
		return actionRetry, words
	}
	return actionReject, words
}

var (
	faultCode  = mustTreePath("/methodResponse/fault//member[name='faultCode']/value/*")
	faultText  = mustTreePath("/methodResponse/fault//member[name='faultString']/value/*")
	faultPlain = mustTreePath("/methodResponse/fault//member[name='faultString']/value")
)

func mustTreePath(path string) contract.TreePath {
	p, err := contract.CompileTreePath(path)
	if err != nil {
		panic(err)
	}
	return p
}

// judgeCall returns the action for an XML-RPC answer. CMSs often use HTTP statuses as fault codes.
func judgeCall(a *answer) (action, string) {
	if a.tree == nil || a.tree.Root() != "methodResponse" {
		return actionUnavailable, "the answer is not one of XML-RPC"
	}
	codes := a.tree.Texts(faultCode)
	if len(codes) == 0 {
		if a.XML("/methodResponse/fault") != nil {
			return actionReject, "a fault without a code"
		}
		return actionOK, ""
	}
	words := "fault " + codes[0]
	for _, text := range slices.Concat(a.tree.Texts(faultText), a.tree.Texts(faultPlain)) {
		if text != "" {
			words += ": " + text
			break
		}
	}
	switch codes[0] {
	case "401", "403", "429", "503":
		return actionUnavailable, words
	case "409", "412":
		return actionAgain, words
	}
	return actionReject, words
}

// applyAction returns the result with the outcome that belongs to the action "do". If "words" is not empty, the reason
// quotes this text.
func (r *run) applyAction(st *step, result weir.Result, do action, words string) verdict {
	if words != "" {
		result.Reason = fmt.Sprintf("%s: %d: %s", st.name, result.Status, words)
	}
	result.Refused = false
	if result.Unanswered && slices.Contains([]action{actionAgain, actionSignIn, actionForget, actionDone}, do) {
		do = actionRetry // a proxy timed out, and the CMS may still work on the request
	}
	if do == actionSignIn && !r.sender.cfg.CanSignInAnew {
		do = actionUnavailable
	}
	result.Outcome = map[action]weir.Outcome{actionOK: weir.OutcomeDelivered, actionDone: weir.OutcomeDelivered,
		actionAgain: weir.OutcomeRetry, actionForget: weir.OutcomeRetry, actionRetry: weir.OutcomeRetry,
		actionReject: weir.OutcomeRejected, actionUnavailable: weir.OutcomeUnavailable,
		actionSignIn: weir.OutcomeUnavailable}[do]
	return verdict{do, result}
}

// failStep decides about a step whose answer is good, but whose setting "until" or "remember" fails.
func (r *run) failStep(st *step, outcome weir.Outcome, words string, a *answer) verdict {
	result := r.classifyStatus(st, a)
	result.Outcome, result.Reason = outcome, st.name+": "+words
	return verdict{"", result}
}
