package httpio

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"weir/internal/weir"
)

var hostNamePattern = regexp.MustCompile(`^[A-Za-z0-9.\-\[\]:]{1,255}$`)

// Scheme returns the scheme that the caller used, http or https. It trusts X-Forwarded-Proto.
func Scheme(r *http.Request) string {
	switch p := strings.ToLower(firstElement(r, "X-Forwarded-Proto")); {
	case p == "http" || p == "https":
		return p
	case r.TLS != nil:
		return "https"
	}
	return "http"
}

// BaseURL returns the scheme and the host name that the caller used, for absolute addresses in
// answers. It trusts X-Forwarded-Host only if the Functions host writes this header, as newer hosts
// do. Otherwise a caller could put another machine into an address, and a client that follows the
// address would send its key to that machine.
func BaseURL(r *http.Request) string { return Scheme(r) + "://" + publicHost(r) }

// publicHost returns the host name that the caller used, with the port if there is one. A newer
// Functions host sends the handler's own address in the header Host, and the name in the last
// element of X-Forwarded-Host. In all other cases the header Host has the name.
func publicHost(r *http.Request) string {
	given := strings.Join(r.Header.Values("X-Forwarded-Host"), ",")
	last := strings.TrimSpace(given[strings.LastIndex(given, ",")+1:])
	if isOwnHost(r) && hostNamePattern.MatchString(last) {
		return last
	}
	return r.Host
}

// firstElement returns the first element of a header to which each proxy can append an element. The
// caller wrote the first element, or the proxy nearest to the caller did.
func firstElement(r *http.Request, header string) string {
	first, _, _ := strings.Cut(r.Header.Get(header), ",")
	return strings.TrimSpace(first)
}

// keyParameter is the query parameter with the function key.
const keyParameter = "code"

// IsHostParameter reports whether the Functions host itself reads a query parameter: the function
// key and the key's name. The host ignores the case of a parameter's name.
func IsHostParameter(name string) bool {
	return strings.EqualFold(name, keyParameter) || strings.EqualFold(name, "clientId")
}

// FunctionKey returns the function key that the host has checked, or "" if the request has none.
// The host takes the first header X-Functions-Key, and otherwise the first parameter "code" in any
// case. An older host joins repeated values by commas. No key has a comma.
func FunctionKey(r *http.Request) string {
	key := r.Header.Get("X-Functions-Key")
	if key == "" {
		key = firstParameter(r.URL.RawQuery, keyParameter)
	}
	key, _, _ = strings.Cut(key, ",")
	return strings.TrimSpace(key)
}

// firstParameter returns the first value of a parameter in a query. It ignores the case of the
// name. url.Values would not do: it has a map entry for each case of the name, without their order.
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

// maxUnknown limits the unknown parameters that an error names. A query can have thousands; the
// answer must not be many times as long as the request.
const maxUnknown = 10

// CheckQuery returns an error with each problem of a request's query: a parameter that is not in
// known, a parameter that is given more than once, or a query that cannot be decoded. The
// parameters of the host are no problems. Otherwise a change or a search with a misspelt parameter
// would do something else than the client wanted.
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

	return &weir.Error{Kind: weir.Malformed, Op: "query", Message: strings.Join(texts, "; "),
		Problems: problems}
}

// QueryProblems returns the problems of decoded parameters; see CheckQuery. At most maxUnknown of
// them are about unknown parameters, and the first of these names the known ones.
func QueryProblems(values url.Values, known ...string) []weir.Problem {
	var problems []weir.Problem
	var unknown []string
	for name, given := range values {
		switch {
		case IsHostParameter(name):
		case !slices.Contains(known, name):
			unknown = append(unknown, strconv.QuoteToGraphic(truncateName(name)))
		case len(given) > 1:
			problems = append(problems,
				weir.Problem{Path: name, Message: "is given more than once"})
		}
	}

	problems = append(problems, describeUnknown(unknown, known)...)
	slices.SortFunc(problems, func(a, b weir.Problem) int { return strings.Compare(a.Path, b.Path) })

	return problems
}

func describeUnknown(unknown, known []string) (problems []weir.Problem) {
	slices.Sort(unknown)
	for i, name := range unknown[:min(len(unknown), maxUnknown)] {
		message := "is not a parameter here"
		switch others := len(unknown) - maxUnknown; {
		case i == 0 && len(known) == 0:
			message += ": there is none"
		case i == 0:
			message += ": there are " + strings.Join(known, ", ")
		case i == maxUnknown-1 && others > 0:
			message += fmt.Sprintf(", nor are %d others", others)
		}

		problems = append(problems, weir.Problem{Path: name, Message: message})
	}

	return problems
}

func truncateName(s string) string {
	if len(s) > maxShownName {
		return strings.ToValidUTF8(s[:maxShownName], "") + "…"
	}
	return s
}

// SetVersion sets the header ETag to weir.Tag(version), and returns this tag.
func SetVersion(w http.ResponseWriter, version string) string {
	tag := weir.Tag(version)
	w.Header().Set("ETag", tag)
	return tag
}

// NotModified answers 304 if the header If-None-Match has the version and the Functions host relays
// a 304 to the client. It always sets the header ETag. It reports whether it has answered.
func NotModified(w http.ResponseWriter, r *http.Request, version string) bool {
	tag := SetVersion(w, version)
	if !relaysNotModified(r) {
		return false
	}

	for given := range strings.SplitSeq(r.Header.Get("If-None-Match"), ",") {
		if given = strings.TrimPrefix(strings.TrimSpace(given), "W/"); given == tag ||
			given == "*" {
			w.WriteHeader(http.StatusNotModified)
			return true
		}
	}

	return false
}

// IfMatch returns the tag in the header If-Match, in the form of weir.Tag. A client sends this
// header to change only the version that has the tag. If the header is missing or *, the result is
// empty. If the header is not one ETag, the error is Malformed.
func IfMatch(r *http.Request) (string, error) {
	switch given := r.Header.Values("If-Match"); {
	case len(given) == 0 || (len(given) == 1 && strings.TrimSpace(given[0]) == "*"):
		return "", nil
	case len(given) == 1:
		tag := strings.TrimPrefix(strings.TrimSpace(given[0]), "W/")
		if inner, ok := strings.CutPrefix(tag, `"`); ok && len(inner) > 1 &&
			strings.HasSuffix(inner, `"`) &&
			strings.Count(inner, `"`) == 1 {
			return tag, nil
		}
	}

	return "", &weir.Error{Kind: weir.Malformed, Op: "if-match",
		Message: "If-Match must be one ETag as it was answered, or *"}
}

// ReadReason returns the query parameter "reason", the operator's reason for a change. If the
// parameter is missing, the result is empty. If the reason is too long, the error is Invalid.
func ReadReason(r *http.Request) (string, error) {
	reason := strings.TrimSpace(r.URL.Query().Get("reason"))
	if utf8.RuneCountInString(reason) > weir.MaxReason {
		p := weir.Problem{Path: "reason",
			Message: fmt.Sprintf("has more than %d characters", weir.MaxReason)}
		return "", &weir.Error{Kind: weir.Invalid, Op: "reason", Message: p.Sentence(),
			Problems: []weir.Problem{p}}
	}

	return reason, nil
}

// MessageID parses the path value "id". If the value is no message id, the error is NotFound.
func MessageID(r *http.Request) (weir.ID, error) {
	id, err := weir.ParseID(r.PathValue("id"))
	if err != nil {
		return weir.ID{}, &weir.Error{Kind: weir.NotFound, Op: "message id",
			Message: "this is not a message's id", Err: err}
	}
	return id, nil
}
