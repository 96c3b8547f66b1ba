package steps

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"weir/internal/cms"
)

// judgeGraphQL returns the action for an expected answer to a GraphQL request, and the reason. Any
// error is a failure, also beside data: with half of the data a look-up would take an item for
// missing.
func judgeGraphQL(value any, isQuery bool) (action, string) {
	object, ok := value.(map[string]any)
	if !ok {
		return unknownFailure(isQuery), "the answer is not one of GraphQL"
	}

	list, words := graphQLErrors(object)
	switch {
	case len(list) > 0:
		return judgeGraphQLErrors(list, isQuery), words
	case object["data"] == nil:
		return unknownFailure(isQuery), "the answer of GraphQL has neither data nor errors"
	}

	return actionOK, ""
}

// graphQLErrors returns the errors of an answer, and their text.
func graphQLErrors(value any) (list []any, words string) {
	object, _ := value.(map[string]any)
	list, _ = object["errors"].([]any)
	return list, cms.ErrorWords(map[string]any{"errors": list})
}

// graphQLKind is the kind of an error of GraphQL, the least destructive one first.
type graphQLKind int

const (
	endOfSession graphQLKind = iota // the CMS does not know the credential, or it has ended
	outage                          // the CMS fails for all, or wants a pause
	noAccess                        // the credential lacks a right, or has ended: as a status 403
	unknownError
	badInput
)

// graphQLCodes has the codes of each kind, in capital letters and digits alone: BADUSERINPUT is
// BAD_USER_INPUT, bad-user-input and BadUserInput. GraphQL itself defines no codes. These are those
// of Apollo, Keystone, Strapi, Directus, Payload, Hasura, Hot Chocolate, Lighthouse and DGS.
var graphQLCodes = map[graphQLKind][]string{
	endOfSession: {"UNAUTHENTICATED", "AUTHNOTAUTHENTICATED", "UNAUTHORIZED", "UNAUTHORIZEDERROR",
		"AUTHENTICATION",
		"AUTHENTICATIONERROR", "TOKENEXPIRED", "INVALIDTOKEN", "INVALIDJWT", "JWTEXPIRED",
		"INVALIDCREDENTIALS", "401"},
	outage: {"RATELIMITED", "RATELIMIT", "RATELIMITEXCEEDED", "THROTTLED", "TOOMANYREQUESTS",
		"REQUESTSEXCEEDED", "SERVICEUNAVAILABLE", "UNAVAILABLE", "429", "502", "503", "504"},
	noAccess: {"FORBIDDEN", "FORBIDDENERROR", "NOTAUTHORIZED", "AUTHNOTAUTHORIZED",
		"AUTHORIZATION", "403"},
	badInput: {"BADUSERINPUT", "USERINPUTERROR", "KSUSERINPUTERROR", "INVALIDINPUT",
		"INVALIDARGUMENT", "400", "422"},
	unknownError: {"INTERNALSERVERERROR", "INTERNALERROR", "INTERNAL", "500"},
}

// graphQLParts has parts of the codes of some kinds, such as KS_ACCESS_DENIED and
// GRAPHQL_VALIDATION_FAILED. An error of the validation of GraphQL itself is about the query and
// its variables.
var graphQLParts = map[graphQLKind][]string{
	noAccess: {"ACCESSDENIED", "PERMISSIONDENIED", "PERMISSIONERROR", "FILTERDENIED",
		"ORDERDENIED"},
	badInput: {"VALIDATION"},
}

// judgeGraphQLErrors returns the action for a list of errors. All errors count: the least
// destructive kind decides, so the message is rejected only if each error is one of bad input. A
// query judges no message.
func judgeGraphQLErrors(list []any, isQuery bool) action {
	least := badInput
	for _, item := range list {
		least = min(least, kindOfGraphQL(item))
	}

	switch {
	case least == endOfSession:
		return actionSignIn
	case least == outage:
		return actionUnavailable
	case least == noAccess:
		return actionForbid
	case least == badInput && !isQuery:
		return actionReject
	}

	return unknownFailure(isQuery)
}

// kindOfGraphQL returns the kind of one error. If its codes have several kinds, the least
// destructive one counts.
func kindOfGraphQL(item any) graphQLKind {
	kind := badInput + 1
	for _, code := range codesOfGraphQL(item) {
		for k, codes := range graphQLCodes {
			if slices.Contains(codes, code) {
				kind = min(kind, k)
			}
		}

		for k, parts := range graphQLParts {
			if slices.ContainsFunc(parts,
				func(part string) bool { return strings.Contains(code, part) }) {
				kind = min(kind, k)
			}
		}
	}

	if kind > badInput {
		return unknownError
	}

	return kind
}

// codePlaces are the paths to the codes of an error, in the servers that graphQLCodes names.
var codePlaces = [][]string{{"extensions", "code"}, {"extensions", "errorType"},
	{"extensions", "classification"},
	{"extensions", "category"}, {"extensions", "name"}, {"extensions", "statusCode"},
	{"extensions", "status"},
	{"extensions", "error", "name"}, {"extensions", "exception", "code"}, {"type"}, {"code"}}

// codesOfGraphQL returns the codes of an error, in capital letters and digits alone.
func codesOfGraphQL(item any) []string {
	var found []string
	for _, place := range codePlaces {
		value := item
		for _, name := range place {
			object, _ := value.(map[string]any)
			value = object[name]
		}

		switch value.(type) {
		case string, int, float64:
			found = append(found, strings.Map(keepCode, strings.ToUpper(fmt.Sprint(value))))
		}
	}

	return found
}

func keepCode(r rune) rune {
	if unicode.IsLetter(r) || unicode.IsDigit(r) {
		return r
	}
	return -1
}
