package steps

import (
	"errors"
	"net/url"
	"regexp"
	"strings"

	"weir/internal/cms"
)

// address is the address of a step's request. The path and the query can have expressions. Each
// value of an expression is escaped as one segment of the path or as one value of the query.
type address struct {
	base *url.URL // the setting "delivery.url"; nil = the text is a complete address
	text *template

	takesEmpty bool // the value of an expression can be empty
}

var completeAddress = regexp.MustCompile(`^https?://[^/?#{}]+(/|\?|$)`)

func (f *File) compileAddress(p pair, s *scope, base *url.URL) *address {
	text, ok := readText(p.value)
	if !ok {
		f.addMistake(p.placeOfValue(),
			"the address must be a text such as /items/{{ key }}, in quotes if it has {{ }}")
		return nil
	}

	a := &address{base: base, text: f.compileText(p.value, p.at.path, text, s, f.fillVariables)}
	f.requireText(a.text, p.placeOfValue())
	begin := ""
	if len(a.text.parts) > 0 {
		begin = a.text.parts[0].literal
	}

	switch isComplete := completeAddress.MatchString(begin); {
	case isComplete && s.chain != nil:
		f.addMistake(p.placeOfValue(),
			"the address of a step must begin with / or ?, because it is put behind delivery.url; "+
				"write the host there")

	case isComplete:
		a.base = nil
	case strings.HasPrefix(text, "http://"), strings.HasPrefix(text, "https://"):
		f.addMistake(p.placeOfValue(), "the host of an address cannot come from an expression")
	case !strings.HasPrefix(begin, "/") && !strings.HasPrefix(begin, "?") && len(a.text.parts) > 0:
		f.addMistake(p.placeOfValue(), "the address must begin with / or ?; write /%s",
			strings.TrimSpace(f.hideVariables(text)))
	case strings.Contains(a.text.literalText(), "#"):
		f.addMistake(p.placeOfValue(),
			"an address has no #; write %%23 if the character itself is meant")
	case strings.ContainsAny(a.text.literalText(), " \n\t"):
		f.addMistake(p.placeOfValue(), "an address has no spaces; write %%20")
	case strings.ContainsAny(a.text.literalText(), "{}"):
		f.addMistake(p.placeOfValue(), "{…} is not filled in within steps; write {{ key }}")
	}

	return a
}

// errEmptyPart is the error if an expression in an address has an empty value. With an empty id,
// the address /items/{{ id }} would mean all items.
var errEmptyPart = errors.New("it is empty, and an address must not have an empty part")

// expandAddress returns the address with the values of its expressions.
func (a *address) expandAddress(env map[string]any) (string, error) {
	text, err := a.text.joinParts(env, func(before string, value any) (string, error) {
		text, err := toText(value)
		_, isPending := value.(pendingValue)
		switch {
		case isPending:
			return text, nil
		case err != nil:
			return "", err
		case strings.TrimSpace(text) == "" && !a.takesEmpty:
			return "", errEmptyPart
		case strings.Contains(before, "?"):
			return url.QueryEscape(text), nil
		}

		return cms.EscapeSegment(text), nil
	})
	if err != nil || a.base == nil {
		return text, err
	}

	return joinAddress(a.base, text), nil
}

// joinAddress returns base, extended by the path and the query of text.
func joinAddress(base *url.URL, text string) string {
	path, query, _ := strings.Cut(text, "?")
	joined := *base
	joined.RawQuery = ""
	whole := joined.String()
	if path != "" {
		whole = strings.TrimSuffix(whole, "/") + path
	}

	queries := []string{}
	for _, q := range []string{base.RawQuery, query} {
		if q != "" {
			queries = append(queries, q)
		}
	}

	if len(queries) > 0 {
		whole += "?" + strings.Join(queries, "&")
	}

	return whole
}
