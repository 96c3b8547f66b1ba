package steps

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"

	"weir/internal/cms"
	"weir/internal/contract"
)

// answer is an answer of the CMS in the form that expressions read.
type answer struct {
	Status int `expr:"status"`
	JSON   any `expr:"json"`
	// first value of each header, by name in lower case
	Headers map[string]any        `expr:"headers"`
	Body    string                `expr:"body"`
	XML     func(path string) any `expr:"xml"`
	header  http.Header           `expr:"-"`
	raw     []byte                `expr:"-"`
	// isPage is true if the answer is a page of HTML. Such a page usually comes from a proxy, a
	// firewall, a sign-in or a deployment in front of the CMS, and not from the CMS.
	isPage bool   `expr:"-"`
	isCut  bool   `expr:"-"` // the body is incomplete, or over the limit
	cutBy  string `expr:"-"` // reason for isCut
	// endedEarly is true if the CMS or the network has cut the body, and not the limit.
	endedEarly bool            `expr:"-"`
	tree       *contract.Tree  `expr:"-"`
	problem    map[part]string `expr:"-"` // by part: the reason why the part cannot be read
}

// readBody reads the body of an answer, and keeps at most limit bytes. After a longer answer the
// connection cannot be reused. If the body ends early, readBody returns both the answer and the
// error.
func readBody(resp *http.Response, limit int64) (*answer, error) {
	// the byte more shows a longer answer
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	a := &answer{Status: resp.StatusCode, header: resp.Header}
	switch {
	case err != nil:
		a.isCut, a.endedEarly, a.cutBy = true, true, "the answer ended early"
	case int64(len(body)) > limit:
		body, a.isCut, a.cutBy = body[:limit], true,
			fmt.Sprintf("the answer has more than %d bytes", limit)
	}

	a.raw = body

	return a, err
}

// need is how strictly the steps need a part of an answer.
type need int

const (
	needNone need = iota
	// only delivery.on, or the setting "say" of a sign-in, reads the part; an empty answer is
	// accepted
	needLenient
	// another expression reads the part, or the request is GraphQL (JSON) or XML-RPC (XML)
	needStrict
)

// needs has the need for each part of an answer. A part without an entry is not needed.
type needs map[part]need

func (n needs) addPart(p part, more need) { n[p] = max(n[p], more) }

// parseParts sets the parts that expressions and judgeAnswer read. It parses the needed ones, and
// records those that cannot be read.
func (a *answer) parseParts(n needs) {
	a.Headers, a.problem, a.XML = map[string]any{}, map[part]string{},
		func(string) any { return nil }
	for name, values := range a.header {
		if len(values) > 0 {
			a.Headers[strings.ToLower(name)] = values[0]
		}
	}

	a.isPage = a.forJudge().IsErrorPage()
	if a.Status/100 == 2 {
		a.isPage = a.forJudge().IsForeignPage()
	}

	if a.isCut {
		for p := range n {
			a.problem[p] = a.cutBy
		}
		return
	}

	if n[partBody] > needNone {
		if text := a.text(); utf8.ValidString(text) {
			a.Body = text
		} else {
			a.problem[partBody] =
				"the answer is neither text in UTF-8 nor in the charset of its Content-Type"
		}
	}

	if n[partJSON] > needNone {
		a.parseJSON()
	}

	if n[partXML] > needNone {
		a.parseXML()
	}
}

// text returns the body in UTF-8; see cms.Answer.Text.
func (a *answer) text() string { return a.forJudge().Text() }

// forJudge returns the answer as package cms judges it.
func (a *answer) forJudge() cms.Answer {
	return cms.Answer{Status: a.Status, Header: a.header, Body: a.raw, IsCut: a.isCut}
}

func (a *answer) parseJSON() {
	decoder := json.NewDecoder(strings.NewReader(a.text()))
	decoder.UseNumber()
	var value any
	err := decoder.Decode(&value)
	if err == nil {
		if _, more := decoder.Token(); more != io.EOF {
			err = fmt.Errorf("more follows")
		}
	}

	switch {
	case len(bytes.TrimSpace(a.raw)) == 0:
		a.problem[partJSON] = "the answer is empty and should be JSON"
	case err != nil:
		a.problem[partJSON] = "the answer is not JSON" + a.kindOfBody()
	default:
		a.JSON = convertNumbers(value)
	}
}

// kindOfBody returns a hint for an error text if the body is a page of HTML. Otherwise it returns
// "".
func (a *answer) kindOfBody() string {
	if a.isPage {
		return ", but a page of HTML"
	}
	return ""
}

// maxExact is the number from which on a float64 has no digits after the point, and an int64 no
// room.
const maxExact = 1 << 63

// convertNumbers returns a JSON value with the numbers of toNumber.
func convertNumbers(value any) any {
	switch v := value.(type) {
	case json.Number:
		return toNumber(v.String())
	case []any:
		for i := range v {
			v[i] = convertNumbers(v[i])
		}

	case map[string]any:
		for name := range v {
			v[name] = convertNumbers(v[name])
		}
	}

	return value
}

func (a *answer) parseXML() {
	// some CMSs send white space in front of the XML declaration by mistake
	document := bytes.TrimLeft(a.raw, "\ufeff \t\r\n")
	tree, err := contract.ParseTree(document, a.forJudge().Charset(), contract.Limits{})
	switch {
	case len(bytes.TrimSpace(a.raw)) == 0:
		a.problem[partXML] = "the answer is empty and should be XML"
		return
	case err != nil:
		a.problem[partXML] = "the answer is not XML" + a.kindOfBody() + ": " + describeXML(err)
		return
	}

	a.tree = &tree
	found := map[string]any{} // a loop of an expression can read the same path many times
	a.XML = func(path string) any {
		if value, ok := found[path]; ok {
			return value
		}

		p, err := contract.CompileTreePath(path)
		if err != nil {
			return nil // cannot happen: a settings file with an invalid path is refused
		}

		found[path] = nil
		for value := range tree.Texts(p) {
			found[path] = value
			break
		}

		return found[path]
	}
}
