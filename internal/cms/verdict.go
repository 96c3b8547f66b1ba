package cms

import (
	"net/http"
	"slices"

	"weir/internal/weir"
)

// The statuses of the table in docs/recipes.md ("The table of answers"). A test of package steps
// reads that table and holds both ways of writing a message against it.
var (
	// outageStatuses come from a CMS, a proxy or a network that fails for every request: also 421
	// (a connection to the wrong server), 511 (a sign-in to the network), 529 (overload), and
	// Cloudflare's and load balancers' own numbers.
	outageStatuses = []int{401, 407, 421, 429, 502, 503, 504, 511, 521, 522, 523, 524, 525, 526,
		527, 529, 530, 561, 598, 599}
	// retryStatuses pass for the same message after a while. 499 and 460 are proxies' numbers for a
	// caller that hung up.
	retryStatuses = []int{408, 409, 412, 423, 424, 425, 449, 460, 499}
	// contentStatuses are an HTTP server's words for a request whose content it cannot take.
	contentStatuses = []int{400, 413, 414, 415, 422, 431}
	// builtStatuses refuse the address and the headers, which Weir has made of the message, in
	// look-ups, too.
	builtStatuses = []int{http.StatusRequestURITooLong, http.StatusRequestHeaderFieldsTooLarge}
	// unansweredStatuses are those of a proxy that waited in vain: the CMS can still be working on
	// the request.
	unansweredStatuses = []int{408, 460, 499, 504, 522, 524, 598, 599}
)

// JudgeStatus returns the outcome of an answer that no rule, no setting "expect" and no setting
// "answers" names. Only a status about the request's content rejects the message, and only in the
// CMS's own words: a page of HTML comes from a proxy, a firewall or a deployment that is under way,
// and an answer without a word from an HTTP server that does not understand the request. A request
// that only reads judges no message, except by the address and the headers that Weir has made of
// the message.
//
// An answer that shows neither is a refusal: the holder goes on with other keys, and finds out
// whether the CMS refuses this message or all.
func JudgeStatus(status int, content Content, reads bool) (outcome weir.Outcome, isRefused bool) {
	isPage := content == ErrorPage
	isOneOf := func(statuses []int) bool { return slices.Contains(statuses, status) }
	switch {
	case isOneOf(outageStatuses), reads && isPage &&
		(status == http.StatusNotFound || status >= 500):
		return weir.OutcomeUnavailable, false
	case !isPage && isOneOf(builtStatuses), content == OwnWords && !reads &&
		isOneOf(contentStatuses):
		return weir.OutcomeRejected, false
	case !reads && (isOneOf(retryStatuses) || status >= 500):
		return weir.OutcomeRetry, false
	}

	return weir.OutcomeUnavailable, true
}
