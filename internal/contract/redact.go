package contract

import (
	"context"
	"encoding/binary"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/beevik/etree"

	"weir/internal/weir"
)

// RedactedMark stands in place of a redacted value. Accept refuses a message that has the mark in place of a value
// that its contract redacts. Such a message is a copy of a redacted body, and the CMS would store the mark.
const RedactedMark = "[redacted]"

// Redaction is a body without the values that its contract redacts.
type Redaction struct {
	// Body has RedactedMark in place of each redacted value. All its other bytes are the bytes of the original.
	// Body is the original slice if Written is empty.
	Body []byte
	// Values are the redacted values: the text of each element and attribute, without surrounding space. They
	// are in no order. A value can occur twice, and no value is empty.
	Values []string
	// Written are the contents of the redacted elements and attributes as the body has them: with tags, CDATA
	// sections and references, but without surrounding space, and in UTF-8.
	Written []string
	// HasMore is true if the redacted elements have more than maxContents bytes. Values then lacks some values. If a
	// redacted element lies in another redacted element, its bytes count twice. Without the limit, a deeply nested
	// document would need as much memory as the product of its size and its depth.
	HasMore bool
}

// maxContents limits the bytes of redacted elements that are read for Redaction.Values. Package redact cannot
// use more: if the values have more than 16 KiB, it hides whole texts.
const maxContents = 64 << 10

// compileRedactedPaths returns the paths of redacted values, and every problem of these paths.
func compileRedactedPaths(def Definition) (paths []*path, problems []string) {
	for i, given := range def.Redact {
		p, err := compilePath(given)
		if err == nil && p == nil {
			err = errors.New("path is missing")
		}
		if err != nil {
			problems = append(problems, fmt.Sprintf("redact[%d]: %v", i, err))
			continue
		}
		for name, other := range map[string]string{"key": def.Key, "version": def.Version, "deliverAt": def.DeliverAt} {
			if other != "" && coversPath(given, other) {
				problems = append(problems, fmt.Sprintf("redact[%d]: path %q covers the path of %s, "+
					"which Weir shows, stores and sends beside the body", i, given, name))
			}
		}
		paths = append(paths, p)
	}
	return paths, problems
}

// coversPath reports whether a redacted path and another path have the same text, or whether the redacted path names
// an element around the value that the other path selects. Two paths with different texts can also select the same
// value; Accept finds such values.
func coversPath(redacted, other string) bool {
	trimStart := func(given string) string { return strings.TrimPrefix(strings.TrimPrefix(given, "./"), ".") }
	redacted, other = trimStart(redacted), trimStart(other)
	inside, isInside := strings.CutPrefix(other, redacted)
	if redacted == "" { // the root element
		return !strings.HasPrefix(other, "@")
	}
	return isInside && (inside == "" || strings.HasPrefix(inside, "/") && !strings.HasPrefix(inside, "/@"))
}

// redactedPlaces are the redacted values of one document. The zero value has none.
type redactedPlaces struct {
	elements   map[*etree.Element]bool // the redacted elements; all elements inside of them are redacted, too
	attributes map[placedValue]bool    // the redacted attributes; the field text is empty
}

func (c *compiledContract) findRedactedPlaces(doc *etree.Document) redactedPlaces {
	found := redactedPlaces{map[*etree.Element]bool{}, map[placedValue]bool{}}
	for _, p := range c.secret {
		for _, v := range p.selectPlacedValues(doc) {
			if v.attribute == "" {
				found.elements[v.element] = true
			} else {
				found.attributes[placedValue{element: v.element, attribute: v.attribute}] = true
			}
		}
	}
	return found
}

// hasValue reports whether a value is redacted: a redacted path selects the value, or an element around it.
func (r redactedPlaces) hasValue(v placedValue) bool {
	if len(r.elements)+len(r.attributes) == 0 {
		return false
	}
	around := v.element
	if v.attribute != "" {
		if r.attributes[placedValue{element: v.element, attribute: v.attribute}] {
			return true
		}
		around = around.Parent() // the attributes of a redacted element are not redacted with it
	}
	for ; around != nil; around = around.Parent() {
		if r.elements[around] {
			return true
		}
	}
	return false
}

// findExposed checks the key, the version and the due time. It returns a problem for each of them that is a redacted
// value, because rows, logs and headers show these three.
func (c *compiledContract) findExposed(doc *etree.Document, redacted redactedPlaces) []weir.Problem {
	if len(c.secret) == 0 {
		return nil
	}
	var problems []weir.Problem
	for _, p := range []*path{c.key, c.version, c.due} {
		if p != nil && slices.ContainsFunc(p.selectPlacedValues(doc), redacted.hasValue) {
			problems = append(problems, weir.Problem{Path: p.given, Rule: "redact",
				Message: p.given + " selects a value that the contract redacts, " +
					"and a key, version or due time cannot be redacted"})
		}
	}
	return problems
}

// findMarks returns a problem for each redacted path whose value is RedactedMark.
func (c *compiledContract) findMarks(doc *etree.Document, places *places) []weir.Problem {
	var problems []weir.Problem
	for _, p := range c.secret {
		for _, v := range p.selectPlacedValues(doc) {
			if v.text != RedactedMark {
				continue
			}
			problem := weir.Problem{Path: p.given, Rule: "redact",
				Message: p.given + " is " + RedactedMark +
					", which Weir shows in place of a value; send the value itself"}
			places.setPlace(&problem, v.element)
			problems = append(problems, problem)
			break
		}
	}
	return problems
}

// describeProblem returns a problem of a document that is not well-formed. If a contract redacts values, the
// problem repeats no words of the document. Otherwise it could show a value: after a stray < in a value, the
// parser reads a part of the value as the name of an element.
func (l Limits) describeProblem(problem string) string {
	if !l.hidesInput {
		return problem
	}
	return "the document is not well-formed, or too deep or large, here; " +
		"its words are not repeated, because a contract redacts values"
}

// HasRedaction reports whether any contract redacts values.
func (s *Set) HasRedaction() bool { return s.limits.hidesInput }

// Redact returns a body without the values that its contract redacts. An empty name stands for the contract of the
// root element. Redact returns the body unread if no contract of the set redacts values, or if the named contract
// redacts none. If Redact cannot find the values, for example because the set does not have the contract, it returns a
// *weir.Error of the kind Conflict. If ctx ends while the call waits for memory, the kind is Unavailable.
func (s *Set) Redact(ctx context.Context, contract, contentType string, body []byte) (Redaction, error) {
	c := s.findByName(contract)
	if !s.limits.hidesInput || c != nil && len(c.secret) == 0 {
		return Redaction{Body: body}, nil
	}
	if c == nil && contract != "" {
		return Redaction{}, unreadableError(errors.New("the settings do not have its contract"))
	}
	weight := min(3*estimateMemory(body), s.limits.Memory)
	if err := s.memory.Acquire(ctx, weight); err != nil {
		return Redaction{}, &weir.Error{Kind: weir.Unavailable, Op: "redact",
			Message: "too much is being read at the moment", RetryAfter: time.Second, Err: err}
	}
	defer s.memory.Release(weight)
	charset, err := parseContentType(contentType)
	if err != nil {
		return Redaction{}, unreadableError(err)
	}
	text, encoding, err := decodeKnown(body, charset)
	if err != nil {
		return Redaction{}, unreadableError(err)
	}
	places := &places{}
	_, doc, err := scanWithPlaces(text, s.limits, places, func(root qualifiedName) needs {
		if contract == "" {
			c = s.findContract(root)
		}
		if c == nil {
			return needs{}
		}
		return c.needs
	})
	if err != nil {
		return Redaction{}, unreadableError(err)
	}
	if c == nil {
		return Redaction{}, unreadableError(errors.New("no contract accepts its root element"))
	}
	found, err := c.cutValues(body, text, encoding, doc, places)
	if err != nil {
		return Redaction{}, unreadableError(err)
	}
	return found, nil
}

func unreadableError(err error) error {
	return &weir.Error{Kind: weir.Conflict, Op: "redact",
		Message: "the body is not shown, because the values that its contract redacts cannot be found in it", Err: err}
}

func (s *Set) findByName(name string) *compiledContract {
	for _, c := range s.contracts {
		if c.def.Name == name {
			return c
		}
	}
	return nil
}

// textRange is a part of a text, by the offsets of its beginning and its end.
type textRange struct{ from, to int }

// cutValues replaces the redacted values of a body; text is the body in UTF-8. If cutValues cannot find the place of a
// value, it returns an error, so that readers do not see the body with that value.
func (c *compiledContract) cutValues(body []byte, text, encoding string, doc *etree.Document,
	places *places) (Redaction, error) {
	found := Redaction{Body: body}
	var ranges []textRange
	contents := 0
	for _, p := range c.secret {
		for _, v := range p.selectPlacedValues(doc) {
			at := places.spans[v.element]
			cut := textRange{at.content, at.end}
			var texts []string
			var err error
			if v.attribute != "" {
				cut, err = findAttribute(text[:at.content], at.start, v.attribute)
			} else if contents += cut.to - cut.from; contents <= maxContents {
				texts, err = readContent(text[cut.from:cut.to])
			} else {
				found.HasMore = true
			}
			if err != nil {
				return Redaction{}, err
			}
			found.Values = append(found.Values, texts...)
			if strings.TrimSpace(text[cut.from:cut.to]) == "" {
				continue
			}
			found.Values = append(found.Values, v.text)
			found.Written = append(found.Written, trimSpace(text[cut.from:cut.to]))
			ranges = append(ranges, cut)
		}
	}
	found.Values = slices.DeleteFunc(found.Values, func(value string) bool { return strings.TrimSpace(value) == "" })
	if len(ranges) == 0 {
		return Redaction{Body: body}, nil
	}
	_, rest := cutByteOrderMark(body)
	found.Body = slices.Concat(body[:len(body)-len(rest)], replaceRanges(rest, mergeRanges(ranges), encoding))
	return found, nil
}

// mergeRanges sorts ranges, and drops each range that lies inside of another one.
func mergeRanges(ranges []textRange) []textRange {
	slices.SortFunc(ranges, func(a, b textRange) int {
		if a.from != b.from {
			return a.from - b.from
		}
		return b.to - a.to
	})
	var out []textRange
	for _, r := range ranges {
		if len(out) == 0 || r.from >= out[len(out)-1].to {
			out = append(out, r)
		}
	}
	return out
}

// replaceRanges replaces ranges of a text by the mark. The bytes body are the text in the encoding, without a byte
// order mark.
func replaceRanges(body []byte, ranges []textRange, encoding string) []byte {
	mark := encodeASCII(RedactedMark, encoding)
	var out []byte
	kept, read, inText := 0, 0, 0 // kept and read are offsets in body; inText is the offset in the text for read
	moveTo := func(offset int) {
		if encoding == utf8Name || encoding == ascii {
			read, inText = offset, offset
		}
		for inText < offset {
			r, size := decoders[encoding](body[read:])
			read, inText = read+size, inText+len(string(r))
		}
	}
	for _, r := range ranges {
		moveTo(r.from)
		out = append(append(out, body[kept:read]...), mark...)
		moveTo(r.to)
		kept = read
	}
	return append(out, body[kept:]...)
}

// encodeASCII returns a text of ASCII in an encoding that contracts accept.
func encodeASCII(text, encoding string) []byte {
	var order binary.AppendByteOrder
	switch encoding {
	case utf16LE:
		order = binary.LittleEndian
	case utf16BE:
		order = binary.BigEndian
	default:
		return []byte(text)
	}
	var out []byte
	for _, unit := range utf16.Encode([]rune(text)) {
		out = order.AppendUint16(out, unit)
	}
	return out
}

// findAttribute returns the range of an attribute's value. The text is well-formed, and ends with the start tag that
// has the attribute. The start tag begins at offset start.
func findAttribute(text string, start int, name string) (textRange, error) {
	for at := start; at < len(text); {
		from := strings.IndexAny(text[at:], `"'`)
		if from < 0 {
			break
		}
		before := strings.TrimRight(strings.TrimRight(text[at:at+from], " \t\r\n"), "=")
		given := strings.TrimRight(before, " \t\r\n")
		given = given[strings.LastIndexAny(given, " \t\r\n")+1:]
		from += at + 1
		to := from + strings.IndexByte(text[from:], text[from-1])
		if given == name {
			return textRange{from, to}, nil
		}
		at = to + 1
	}
	return textRange{}, fmt.Errorf("the attribute %s is not in its start tag", name)
}

// readContent reads the content of an element. It returns the own text of each inner element, the value of each
// attribute of an inner element, and the whole text of the content.
func readContent(content string) ([]string, error) {
	var values []string
	var whole strings.Builder
	own := []*strings.Builder{{}} // the own texts of the open elements
	decoder := xml.NewDecoder(strings.NewReader(content))
	for {
		token, err := decoder.RawToken()
		if errors.Is(err, io.EOF) {
			return append(values, trimSpace(whole.String())), nil
		}
		if err != nil {
			return nil, err
		}
		switch t := token.(type) {
		case xml.StartElement:
			own = append(own, &strings.Builder{})
			for _, a := range t.Attr {
				values = append(values, trimSpace(a.Value))
			}
		case xml.EndElement:
			values = append(values, trimSpace(own[len(own)-1].String()))
			own = own[:len(own)-1]
		case xml.CharData:
			whole.Write(t)
			own[len(own)-1].Write(t)
		}
	}
}
