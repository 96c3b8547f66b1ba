package steps

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"weir/internal/cms"
	"weir/internal/weir"
)

type preparedRequest struct {
	method, address string
	content         []byte
	contentType     string
	accept          string
	headers         http.Header
}

// prepareRequest evaluates the expressions of a step's request.
func (st *step) prepareRequest(env map[string]any, m *weir.Message) (*preparedRequest, error) {
	p := &preparedRequest{method: st.method, accept: st.accept}
	var err error
	if p.address, err = st.address.expandAddress(env); err != nil {
		return nil, fmt.Errorf("address: %w", err)
	}

	if st.body != nil {
		if p.content, p.contentType, err = st.body.renderBody(env, m); err != nil {
			return nil, fmt.Errorf("body: %w", err)
		}
	}

	p.headers, err = evaluateHeaders(st.headers, env)

	return p, err
}

// evaluateHeaders returns the headers with their values. A header whose value is nil is left out.
func evaluateHeaders(headers []header, env map[string]any) (http.Header, error) {
	if len(headers) == 0 {
		return nil, nil
	}

	out := http.Header{}
	for _, h := range headers {
		value, err := h.value.evaluateLeaf(env)
		if err != nil {
			return nil, fmt.Errorf("header %s: %w", h.name, err)
		}

		text, err := toText(value)
		if err != nil {
			return nil, fmt.Errorf("header %s: %w", h.name, err)
		}

		if strings.ContainsFunc(text, isControl) {
			return nil, h.value.newValueError(
				fmt.Errorf("header %s: a line break or another control character cannot "+
					"stand in a header", h.name))
		}

		if value != nil {
			out.Set(h.name, text)
		}
	}

	return out, nil
}

// isControl reports whether a character cannot stand in a header. If net/http refused such a
// header, the error would look like a CMS that cannot be reached, and one message would pause the
// lane.
func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// newRequest returns the request for net/http. It removes GetBody, so that net/http does not send
// the body a second time by itself.
func (p *preparedRequest) newRequest(ctx context.Context) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, p.method, p.address, bytes.NewReader(p.content))
	if err != nil {
		return nil, err
	}

	req.GetBody = nil
	if p.accept != "" {
		req.Header.Set("Accept", p.accept)
	}

	if p.contentType != "" {
		req.Header.Set("Content-Type", p.contentType)
	}

	return req, nil
}

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
