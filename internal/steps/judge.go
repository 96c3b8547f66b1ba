package steps

import (
	"bytes"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/internal/cms"
	"weir/internal/contract"
	"weir/internal/weir"
)

func (st *step) isExpected(status int) bool {
	if len(st.expect) == 0 {
		return status/100 == 2 && (st.success != nil || cms.IsSuccess(status))
	}
	return slices.Contains(st.expect, status)
}

// judgeAnswer decides about a step by its answer. The first of these cases that applies decides:
//
//   - An expected answer has a needed part that cannot be read.
//   - A rule matches, or a rule cannot be evaluated although the answer is expected and readable,
//     and reports no failure by the conventions of GraphQL or XML-RPC.
//   - The step does not expect the status.
//   - The answer is a page of HTML that no expression reads, or ends early.
//   - The step has no "success", and the body is in doubt: see cms.Answer.FindDoubt.
//   - By the conventions of GraphQL or XML-RPC, the answer reports a failure.
//   - The answer does not fit the setting "success".
//
// Otherwise the step has succeeded. A step that only reads judges no message: in each of these
// cases except the rules, it makes the CMS unavailable, or the answer counts as a refusal. The
// document docs/recipes.md has the whole table.
func (r *run) judgeAnswer(st *step, a *answer) verdict {
	base := r.classifyStatus(st, a)
	if r.chain.isSingle {
		return r.judgeSingle(a, base)
	}

	expected := st.isExpected(a.Status)
	if problem := st.findUnreadable(a); problem != "" && expected {
		return r.judgeUnreadable(st, base, problem+a.quotePage())
	}

	env := r.ownEnv(a)
	found, err := firstRule(st.rules, env, a.isPage)
	switch {
	case found != nil:
		return r.applyAction(st, base, found.do, found.evaluateReason(env))
	case err != nil && expected && a.isReadable():
		// the rule reads data that an error has in its place
		if do, words := st.judgeBody(a); do != actionOK {
			return r.applyAction(st, base, do, words)
		}
		return r.judgeUnreadable(st, base, "on: "+err.Error())

	case !expected:
		return r.judgeStatus(st, a, base)
	case a.isPage && !st.readsText():
		return r.judgeUnreadable(st, base,
			cms.ForeignPage+", which no expression reads"+a.quotePage()+pageOfSuccess)
	case a.endedEarly:
		return r.judgeUnreadable(st, base, a.cutBy)
	case st.success == nil && a.Status/100 == 2 && a.forJudge().FindDoubt() != "":
		return r.judgeUnreadable(st, base, a.forJudge().FindDoubt()+adviceOfSuccess)
	}

	if do, words := st.judgeBody(a); do != actionOK {
		return r.applyAction(st, base, do, words)
	}

	return r.judgeSuccess(st, a, base, env)
}

// pageOfSuccess is the advice in a reason if no expression reads an answer that is a page of HTML.
const pageOfSuccess = "; if the CMS answers so, write success: body contains '<text of the page>' in the step"

// adviceOfSuccess is the advice in a reason if a 2xx answer is in doubt.
const adviceOfSuccess = "; if the CMS answers so, write a success for this answer in the step"

// judgeSuccess decides about a step whose answer is good except perhaps for the setting "success".
func (r *run) judgeSuccess(st *step, a *answer, base weir.Result, env map[string]any) verdict {
	if st.success != nil {
		holds, err := st.success.evaluateCondition(env)
		switch {
		case err != nil:
			return r.judgeUnreadable(st, base, "success: "+a.explainError(err))
		case !holds && a.Status/100 != 2 &&
			!a.isReadable(): // findUnreadable has checked 2xx answers
			return r.judgeUnreadable(st, base, a.firstProblem())
		case !holds:
			problem := "the answer does not fit success: " + st.success.source
			if words := a.forJudge().Words(); words != "" {
				problem += "; it has " + words
			}
			return r.judgeUnreadable(st, base, problem)
		}
	}

	base.Outcome, base.Refused = weir.OutcomeDelivered, false
	return verdict{do: actionOK, result: base}
}

// classifyStatus returns a result whose outcome follows from the answer's status and from the kind
// of its body.
func (r *run) classifyStatus(st *step, a *answer) weir.Result {
	name := r.delivery.Message.Contract
	rules := cms.Rules{Success: r.sender.cfg.SuccessRules[name], Means: r.sender.cfg.Answers[name],
		Hide: r.hide, ReadsBody: !r.chain.isSingle, Reads: st.isSafe}
	result := cms.Classify(a.forJudge(), rules, r.sender.cfg.Now())
	result.Reason = st.label + result.Reason
	if st.isSafe {
		result.Unanswered = false
	}

	if st.retryAfter != "" {
		result.RetryAfter = max(result.RetryAfter,
			parseReset(a.header.Get(st.retryAfter), r.sender.cfg.Now()))
	}

	return result
}

// readsText reports whether an expression of the step, or of a later step, reads the answer as text
// or XML. Then a page of HTML can be the answer that the recipe expects.
func (st *step) readsText() bool {
	return st.needs[partBody] == needStrict || st.needs[partXML] == needStrict
}

// quotePage returns the text of a page of HTML, as the end of a reason. For another answer it
// returns "".
func (a *answer) quotePage() string {
	if !a.isPage {
		return ""
	}
	return a.quote()
}

// quote returns the words of the answer, as a part of a reason.
func (a *answer) quote() string {
	words := a.forJudge().Words()
	if words == "" {
		return ""
	}
	return ": " + cms.CutWords(words)
}

// parseReset parses the value of the header that the setting "retryAfter" names: seconds, a date,
// or a Unix time in seconds. For any other value, parseReset returns 0.
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

// firstProblem returns the reason why a needed part of the answer (JSON, XML or text) cannot be
// read. If each needed part can be read, firstProblem returns an empty text.
func (a *answer) firstProblem() string {
	for _, p := range []part{partJSON, partXML, partBody} {
		if a.problem[p] != "" {
			return a.problem[p]
		}
	}
	return ""
}

// explainError returns the reason why an expression failed with err. If a part of the answer cannot
// be read, the reason names this part. Otherwise the reason is the text of err.
func (a *answer) explainError(err error) string {
	if problem := a.firstProblem(); problem != "" {
		return problem
	}
	return err.Error()
}

// findUnreadable returns the reason why a needed part of a 2xx answer cannot be read. If there is
// no such part, findUnreadable returns an empty text. An answer without content is accepted in two
// cases:
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

// judgeUnreadable decides about a step whose expected answer is not understood. After a look-up,
// the outcome is unavailable, and counts as a refusal, because the CMS may answer so to this
// message only; an error page in place of the answer shows that the CMS is away. After a write, the
// outcome is retry, because the CMS may have made the change. A page with an error in place of the
// answer to a write is a refusal: the CMS has not seen the request.
func (r *run) judgeUnreadable(st *step, result weir.Result, problem string) verdict {
	result.Reason = fmt.Sprintf("%s: %d, but %s", st.name, result.Status, problem)
	isErrorPage := result.Status/100 != 2 && strings.HasPrefix(problem, cms.ForeignPage)
	switch {
	case st.isSafe:
		result.Outcome = weir.OutcomeUnavailable
		result.Refused = !isErrorPage || result.Status != http.StatusNotFound && result.Status < 500
	case isErrorPage && result.Status < 500:
		result.Outcome, result.Refused = weir.OutcomeUnavailable, true
	default:
		result.Outcome, result.Refused = weir.OutcomeRetry, false
	}

	return verdict{do: actionOf(result), result: result}
}

// actionOf returns the action that has the effect of a result.
func actionOf(result weir.Result) action {
	switch {
	case result.Outcome == weir.OutcomeUnavailable && result.Refused:
		return actionRefuse
	case result.Outcome == weir.OutcomeUnavailable:
		return actionUnavailable
	case result.Outcome == weir.OutcomeRejected:
		return actionReject
	}

	return actionRetry
}

// judgeStatus decides about a step whose answer has an unexpected status and matches no rule. The
// contract's setting "answers" has precedence. If the CMS no longer has the item of the remembered
// id, the chain starts again without the id. After a conflict (409) or a stale version (412), the
// chain starts again, to look the item up again. A page of HTML shows none of this.
func (r *run) judgeStatus(st *step, a *answer, base weir.Result) verdict {
	_, isDefined := r.sender.cfg.Answers[r.delivery.Message.Contract][a.Status]
	switch {
	case isDefined:
	case r.isGone(st, a) && !a.isPage:
		return r.applyAction(st, base, actionForget, "")
	case (a.Status == http.StatusConflict || a.Status == http.StatusPreconditionFailed) &&
		!a.isPage:
		return r.applyAction(st, base, actionAgain, "")
	case a.Status/100 == 2 && len(st.expect) > 0:
		return r.judgeUnreadable(st, base, "this is not an expected status"+a.quote())
	case a.Status/100 == 2:
		return r.judgeUnreadable(st, base,
			"this status alone is no success"+a.quote()+adviceOfSuccess)
	case st.isGraphQL:
		return r.judgeGraphQLStatus(st, a, base)
	}

	return verdict{result: base}
}

// judgeGraphQLStatus decides about an unexpected status in the answer to a GraphQL request. Servers
// answer 400 to errors of all kinds, so the codes of the errors decide in place of a status that
// would reject the message. They also decide if they show more than the status: the end of a
// session, or an outage.
func (r *run) judgeGraphQLStatus(st *step, a *answer, base weir.Result) verdict {
	list, words := graphQLErrors(a.JSON)
	if len(list) == 0 {
		return verdict{result: base}
	}

	do := judgeGraphQLErrors(list, st.isSafe)
	if base.Outcome == weir.OutcomeRejected || do == actionSignIn || do == actionUnavailable ||
		do == actionForbid {
		return r.applyAction(st, base, do, words)
	}

	return verdict{result: base}
}

// judgeBody returns the action for the body of an expected answer, and the reason. GraphQL and
// XML-RPC report failures in the body, with status 200.
func (st *step) judgeBody(a *answer) (action, string) {
	if st.isGraphQL {
		return judgeGraphQL(a.JSON, st.isSafe)
	}

	if call, ok := st.body.(*xmlBody); ok && call.isCall {
		return judgeCall(a, st.isSafe)
	}
	return actionOK, ""
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

// judgeCall returns the action for an XML-RPC answer. CMSs often use HTTP statuses as fault codes,
// so a code from 400 to 599 has the meaning of that status. The meaning of other codes is unknown.
func judgeCall(a *answer, isLookUp bool) (action, string) {
	if a.tree == nil || a.tree.Root() != "methodResponse" {
		return unknownFailure(isLookUp), "the answer is not one of XML-RPC"
	}

	code, hasCode := firstText(a.tree.Texts(faultCode), func(string) bool { return true })
	if !hasCode {
		if a.XML("/methodResponse/fault") != nil {
			return unknownFailure(isLookUp), "a fault without a code"
		}
		if a.XML("/methodResponse/params") == nil {
			return unknownFailure(isLookUp), "the answer of XML-RPC has neither params nor a fault"
		}
		return actionOK, ""
	}

	words := "fault " + code
	for _, path := range []contract.TreePath{faultText, faultPlain} {
		if text, has := firstText(a.tree.Texts(path), func(text string) bool { return text != "" }); has {
			words += ": " + text
			break
		}
	}

	return judgeCode(code, isLookUp), words
}

// firstText returns the first text that is wanted.
func firstText(texts iter.Seq[string], isWanted func(string) bool) (text string, found bool) {
	for text := range texts {
		if isWanted(text) {
			return text, true
		}
	}
	return "", false
}

// judgeCode returns the action for a code of an error that is an HTTP status. For another code, the
// failure is unknown.
func judgeCode(code string, isLookUp bool) action {
	status, err := strconv.Atoi(strings.TrimSpace(code))
	switch {
	case err != nil || status < 400 || status > 599:
		return unknownFailure(isLookUp)
	case status == http.StatusConflict, status == http.StatusPreconditionFailed:
		return actionAgain
	case status == http.StatusForbidden:
		return actionForbid
	}

	outcome, isRefused := cms.JudgeStatus(status, cms.OwnWords, isLookUp)
	return actionOf(weir.Result{Outcome: outcome, Refused: isRefused})
}

// unknownFailure returns the action for a failure that Weir does not understand. It is never a
// verdict about the message. A look-up has not changed anything, so the attempt does not even
// count.
func unknownFailure(isLookUp bool) action {
	if isLookUp {
		return actionRefuse
	}
	return actionRetry
}

// outcomes has the outcome of each action, if the attempt ends with it.
var outcomes = map[action]weir.Outcome{actionOK: weir.OutcomeDelivered,
	actionDone:  weir.OutcomeDelivered,
	actionAgain: weir.OutcomeRetry, actionForget: weir.OutcomeRetry, actionRetry: weir.OutcomeRetry,
	actionReject: weir.OutcomeRejected, actionUnavailable: weir.OutcomeUnavailable,
	actionSignIn: weir.OutcomeUnavailable, actionRefuse: weir.OutcomeUnavailable,
	actionForbid: weir.OutcomeUnavailable}

// applyAction returns the result with the outcome that belongs to the action "do". If "words" is
// not empty, the reason quotes this text.
func (r *run) applyAction(st *step, result weir.Result, do action, words string) verdict {
	if words != "" {
		result.Reason = fmt.Sprintf("%s: %d: %s", st.name, result.Status, words)
	}

	if result.Unanswered && slices.Contains([]action{actionAgain, actionSignIn, actionForget,
		actionDone}, do) {
		do = actionRetry // a proxy timed out, and the CMS may still work on the request
	}

	if do == actionSignIn && !r.sender.cfg.CanSignInAnew {
		do = actionUnavailable
	}

	result.Outcome, result.Refused = outcomes[do], do == actionRefuse || do == actionForbid

	return verdict{do: do, result: result}
}

// failStep decides about a step whose answer is good, but whose setting "until" or "remember"
// fails.
func (r *run) failStep(st *step, outcome weir.Outcome, words string, a *answer) verdict {
	result := r.classifyStatus(st, a)
	result.Outcome, result.Refused, result.Reason = outcome, outcome == weir.OutcomeUnavailable,
		st.label+words
	return verdict{result: result}
}

// judgeSingle returns the verdict for the answer to a single request: the result of cms.Classify,
// except if a 2xx answer was lost in the middle, or if the contract's setting "success" needs bytes
// of it that were not read.
func (r *run) judgeSingle(a *answer, result weir.Result) verdict {
	hasRule := r.sender.cfg.SuccessRules[r.delivery.Message.Contract] != nil
	switch {
	case !a.isCut || a.Status/100 != 2:
	case a.endedEarly:
		result = weir.Result{Outcome: weir.OutcomeRetry, Status: a.Status, Reason: a.cutBy}
	case hasRule && result.Outcome != weir.OutcomeDelivered:
		result.Reason = fmt.Sprintf(
			"%d, but the first %d bytes of the answer (delivery.maxAnswer) "+
				"do not match success", a.Status, len(a.raw))
	}

	return verdict{result: result}
}
