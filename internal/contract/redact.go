package contract

import (
	"context"
	"encoding/binary"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/beevik/etree"

	"weir/internal/weir"
)

// RedactedMark is the text in place of a redacted value. If a value that the contract redacts is
// RedactedMark, Accept refuses the message. Such a message is a copy of a redacted body, and the
// CMS would store the mark.
const RedactedMark = "[redacted]"

// Redaction is a body without its redacted values.
type Redaction struct {
	// Body has RedactedMark in place of each redacted value. All other bytes are unchanged. If
	// Written is empty, Body is the original slice.
	Body []byte
	// Values are the redacted texts, without surrounding space: each attribute value and the text
	// of each element in the redacted parts. Values has no order and no empty text. A text can
	// occur twice.
	Values []string
	// Written are the redacted parts as the body has them: with tags, CDATA sections and
	// references. The parts are in UTF-8, without surrounding space.
	Written []string
	// HasMore is true if the redacted elements together have more than 64 KiB. Then Values lacks
	// some values. If a redacted element lies in another redacted element, the bytes of the inner
	// element count twice. Without the limit, a deeply nested document would need memory in
	// proportion to its size times its depth.
	HasMore bool
}

// maxContents limits the bytes of redacted elements that are read for Redaction.Values. If the
// elements have more bytes, package redact does not search a text for the values, but hides the
// whole text.
const maxContents = 64 << 10

// compileRedactedPaths returns the paths of redacted values, and all problems of these paths.
func compileRedactedPaths(def Definition) (paths []*path, problems []*weir.SettingProblem) {
	for i, given := range def.Redact {
		setting := fmt.Sprintf("redact[%d]", i)
		p, err := compilePath(given)
		if err == nil && p == nil {
			err = errors.New("path is missing")
		}

		if err != nil {
			problems = append(problems, weir.NewSettingProblem(setting, "%v", err))
			continue
		}

		for _, other := range listOpenPaths(def) {
			if coversPath(given, other.path) {
				problems = append(problems, weir.NewSettingProblem(setting,
					"path %q covers the path of %s, which Weir shows, stores and sends beside the body",
					given, other.setting))
			}
		}

		paths = append(paths, p)
	}

	return paths, problems
}

// openPath is the path of a value that Weir shows, and the setting that has the path.
type openPath struct{ setting, path string }

// listOpenPaths returns the paths of key, version and due time.
func listOpenPaths(def Definition) (open []openPath) {
	for i, path := range def.Key {
		open = append(open, openPath{def.Key.settingOf(i), path})
	}

	for _, o := range []openPath{{"version", def.Version}, {"deliverAt", def.DeliverAt}} {
		if o.path != "" {
			open = append(open, o)
		}
	}

	return open
}

// coversPath compares two paths by their text. It reports whether the paths are equal, or whether
// the redacted path names an element around the value of the other path. Different paths can still
// select the same value; findExposed finds such a value in a message.
func coversPath(redacted, other string) bool {
	trimStart := func(given string) string {
		return strings.TrimPrefix(strings.TrimPrefix(given, "./"), ".")
	}
	redacted, other = trimStart(redacted), trimStart(other)
	inside, isInside := strings.CutPrefix(other, redacted)
	if redacted == "" { // the root element
		return !strings.HasPrefix(other, "@")
	}

	return isInside && (inside == "" || strings.HasPrefix(inside, "/") &&
		!strings.HasPrefix(inside, "/@"))
}

// redactedPlaces are the redacted values of one document. The zero value has none.
type redactedPlaces struct {
	// the redacted elements; all elements inside are redacted, too
	elements   map[*etree.Element]bool
	attributes map[placedValue]bool // the redacted attributes; placedValue.text is empty in each
	// the elements around a redacted element, whose texts contain its text
	around map[*etree.Element]bool
}

func (c *compiledContract) findRedactedPlaces(doc *etree.Document) redactedPlaces {
	found := redactedPlaces{map[*etree.Element]bool{}, map[placedValue]bool{},
		map[*etree.Element]bool{}}
	for _, p := range c.secret {
		for _, v := range p.selectPlacedValues(doc) {
			if v.attribute == "" {
				found.elements[v.element] = true
				for e := v.element.Parent(); e != nil && !found.around[e]; e = e.Parent() {
					found.around[e] = true
				}
			} else {
				found.attributes[placedValue{element: v.element, attribute: v.attribute}] = true
			}
		}
	}

	return found
}

// hasValue reports whether a redacted path selects a value, an element around the value, or an
// element whose text is a part of the value.
func (r redactedPlaces) hasValue(v placedValue) bool {
	if len(r.elements)+len(r.attributes) == 0 {
		return false
	}

	around := v.element
	if v.attribute == "" && r.around[around] {
		return true
	}

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

// findExposed returns a problem for a redacted key, a redacted version and a redacted due time,
// because rows, logs and headers show these three values.
func (c *compiledContract) findExposed(doc *etree.Document,
	redacted redactedPlaces) []weir.Problem {
	var problems []weir.Problem
	for _, p := range append(slices.Clone(c.key), c.version, c.due) {
		if p != nil && slices.ContainsFunc(p.selectPlacedValues(doc), redacted.hasValue) {
			problems = append(problems, weir.Problem{Path: p.given, Rule: "redact",
				Message: p.given + " selects a value that the contract redacts, " +
					"and a key, version or due time cannot be redacted"})
		}
	}

	return problems
}

// findMarks returns a problem for each redacted path that selects a value equal to RedactedMark.
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

// The marks around the words of the document in a problem. XML allows neither character in a
// document.
const quoteBegin, quoteEnd = "\x02", "\x03"

// quoted marks words of the document in the text of a problem. Each such word must be marked,
// because describeProblem hides only marked words.
func quoted(words string) string { return quoteBegin + words + quoteEnd }

var (
	quotedWords = regexp.MustCompile(quoteBegin + "[^" + quoteEnd + "]*" + quoteEnd)
	quoteMarks  = strings.NewReplacer(quoteBegin, "", quoteEnd, "")
)

// describeProblem returns the text of a problem in a document that is not well-formed. If a
// contract redacts values, the text has … in place of the words of the document, because such a
// word could belong to a redacted value. For example, after a stray < in a value, the parser reads
// a part of the value as an element's name. The rest of the text is fixed, and stays.
func (l Limits) describeProblem(problem string) string {
	if l.hidesInput {
		problem = quotedWords.ReplaceAllString(problem, "…")
	}
	return quoteMarks.Replace(problem)
}

// HasRedaction reports whether any contract redacts values.
func (s *Set) HasRedaction() bool { return s.limits.hidesInput }

// Redact returns a body without the values that its contract redacts. If contract is empty, the
// root element determines the contract. The Content-Type must not be empty.
//
// Redact returns the body unread if no contract of the set redacts values, or if the named contract
// redacts none. If Redact cannot find the values, for example because the set does not have the
// contract, the error is a *weir.Error of the kind Conflict. If ctx ends while Redact waits for
// memory, the kind is Unavailable.
func (s *Set) Redact(ctx context.Context, contract, contentType string,
	body []byte) (Redaction, error) {
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
	candidates := []*compiledContract{c}
	one, err := scanWithPlaces(text, s.limits, places, func(root qualifiedName) needs {
		if c == nil {
			candidates = s.findCandidates(root)
		}
		return needsOf(candidates)
	})
	if err != nil {
		return Redaction{}, unreadableError(err)
	}

	if c == nil {
		c, _ = chooseContract(ctx, candidates, one)
	}

	if c == nil {
		return Redaction{}, unreadableError(errors.New("no contract accepts its root element"))
	}

	found, err := c.cutValues(body, text, encoding, one.doc, places)
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

// textRange is a part of a text: from is the offset of the first byte, and to is the offset after
// the last byte.
type textRange struct{ from, to int }

// cutValues replaces the redacted values of a body. The parameter text is the body in UTF-8. If
// cutValues cannot find the place of a value, cutValues returns an error, because readers would see
// that value in the body.
func (c *compiledContract) cutValues(body []byte, text, encoding string, doc *etree.Document,
	places *places) (Redaction, error) {
	found := Redaction{Body: body}
	var ranges []textRange
	contents := 0
	for _, p := range c.secret {
		// Accept refuses such a body; an earlier version can have taken it
		isNested := len(p.checkNested(doc)) > 0
		found.HasMore = found.HasMore || isNested
		for _, v := range p.selectRedacted(doc, isNested) {
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

	found.Values = slices.DeleteFunc(found.Values,
		func(value string) bool { return strings.TrimSpace(value) == "" })
	if len(ranges) == 0 {
		return Redaction{Body: body}, nil
	}

	_, rest := cutByteOrderMark(body)
	found.Body = slices.Concat(body[:len(body)-len(rest)], replaceRanges(rest, mergeRanges(ranges),
		encodeASCII(RedactedMark, encoding), encoding))

	return found, nil
}

// selectRedacted returns the values that a redacted path selects, without their texts if these
// would be too long.
func (p *path) selectRedacted(doc *etree.Document, isNested bool) (values []placedValue) {
	if !isNested {
		return p.selectPlacedValues(doc)
	}

	for _, e := range p.selectPlaces(doc) {
		values = append(values, placedValue{element: e})
	}
	return values
}

// mergeRanges sorts ranges, and drops each range that lies inside another range.
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

// replaceRanges replaces ranges of a text by a mark. The parameter body is the text in the given
// encoding, without a byte order mark, and so is the mark. The ranges are offsets in the text in
// UTF-8.
func replaceRanges(body []byte, ranges []textRange, mark []byte, encoding string) []byte {
	var out []byte

	// kept is the end of the last replaced range in body. read and inText are the same position:
	// read is the offset in body, inText is the offset in UTF-8.
	kept, read, inText := 0, 0, 0
	next := decoderOf(encoding)
	moveTo := func(offset int) {
		if encoding == utf8Name || encoding == ascii {
			read, inText = offset, offset
		}

		for inText < offset {
			r, size := next(body[read:])
			if read += size; r != noCharacter {
				inText += utf8.RuneLen(r)
			}
		}
	}

	for _, r := range ranges {
		moveTo(r.from)
		out = append(append(out, body[kept:read]...), mark...)
		from := read
		moveTo(r.to)
		if encoding == iso2022JP {
			out = append(out, lastEscape(body[from:read])...)
		}
		kept = read
	}

	return append(out, body[kept:]...)
}

// encodeASCII returns a text of ASCII characters in one of the accepted encodings.
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

// findAttribute returns the range of an attribute's value. The text is well-formed, and ends with
// the start tag that has the attribute. The start tag begins at the offset start.
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

// readContent returns the texts in an element's content: the text directly in the element and in
// each inner element, the attribute values of each inner element, and the whole text of the
// content.
func readContent(content string) ([]string, error) {
	var values []string
	var whole strings.Builder
	own := []*strings.Builder{{}} // the text directly in each open element
	decoder := xml.NewDecoder(strings.NewReader(content))
	for {
		start := decoder.InputOffset()
		token, err := decoder.RawToken()
		if errors.Is(err, io.EOF) {
			return append(values, trimSpace(own[0].String()), trimSpace(whole.String())), nil
		}
		if err != nil {
			return nil, err
		}

		switch t := token.(type) {
		case xml.StartElement:
			own = append(own, &strings.Builder{})
			for _, a := range normalizeAttributes(t.Attr, content[start:decoder.InputOffset()]) {
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
