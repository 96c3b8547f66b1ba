package httpio

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"weir/internal/weir"
)

// keyParameter is the query parameter with the function key.
const keyParameter = "code"

// IsHostParameter reports whether the Functions host itself reads a query parameter: the function key and the key's
// name. The host ignores the case of a parameter's name.
func IsHostParameter(name string) bool {
	return strings.EqualFold(name, keyParameter) || strings.EqualFold(name, "clientId")
}

// FunctionKey returns the function key that the host has checked, or "" if the request has none. The host takes the
// first header X-Functions-Key, and otherwise the first parameter "code" in any case. An older host joins repeated
// values by commas. No key has a comma.
func FunctionKey(r *http.Request) string {
	key := r.Header.Get("X-Functions-Key")
	if key == "" {
		key = firstParameter(r.URL.RawQuery, keyParameter)
	}
	key, _, _ = strings.Cut(key, ",")
	return strings.TrimSpace(key)
}

// firstParameter returns the first value of a parameter in a query. It ignores the case of the name. url.Values would
// not do: it has a map entry for each case of the name, without their order.
func firstParameter(query, wanted string) string {
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		if strings.EqualFold(unescape(name), wanted) {
			return unescape(value)
		}
	}
	return ""
}

func unescape(text string) string {
	if plain, err := url.QueryUnescape(text); err == nil {
		return plain
	}
	return text
}

// maxShownName limits the bytes of a parameter's name in an error.
const maxShownName = 40

// CheckQuery returns an error with each problem of a request's query: a parameter that is not in known, a parameter
// that is given more than once, or a query that cannot be decoded. The parameters of the host are no problems.
// Otherwise a change or a search with a misspelt parameter would do something else than the client wanted.
func CheckQuery(r *http.Request, known ...string) error {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return &weir.Error{Kind: weir.Malformed, Op: "query", Err: err,
			Message: "the query cannot be read: it has a semicolon or a wrong escape"}
	}
	problems := QueryProblems(values, known...)
	if len(problems) == 0 {
		return nil
	}
	texts := make([]string, len(problems))
	for i, one := range problems {
		texts[i] = one.Path + " " + one.Message
	}
	return &weir.Error{Kind: weir.Malformed, Op: "query", Message: strings.Join(texts, "; "), Problems: problems}
}

// QueryProblems returns the problems of decoded parameters; see CheckQuery.
func QueryProblems(values url.Values, known ...string) []weir.Problem {
	var problems []weir.Problem
	for name, given := range values {
		switch {
		case IsHostParameter(name):
		case !slices.Contains(known, name):
			problems = append(problems, weir.Problem{Path: strconv.QuoteToGraphic(truncateName(name)),
				Message: describeKnown(known)})
		case len(given) > 1:
			problems = append(problems, weir.Problem{Path: name, Message: "is given more than once"})
		}
	}
	slices.SortFunc(problems, func(a, b weir.Problem) int { return strings.Compare(a.Path, b.Path) })
	return problems
}

func describeKnown(known []string) string {
	if len(known) == 0 {
		return "is not a parameter here: there is none"
	}
	return "is not a parameter here: there are " + strings.Join(known, ", ")
}

func truncateName(s string) string {
	if len(s) > maxShownName {
		return strings.ToValidUTF8(s[:maxShownName], "") + "…"
	}
	return s
}
