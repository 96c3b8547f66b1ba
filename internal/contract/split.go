package contract

import (
	"bufio"
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"mime"
	"strconv"
	"strings"
	"unicode/utf8"

	"weir/internal/weir"
)

// Part is one element that a Splitter cuts out of a document.
type Part struct {
	Line int // line of the start tag in the document, from 1
	// Body has the element's bytes, in UTF-8. Only the start tag differs: it also declares the
	// namespaces that the element inherits, and xml:base (resolved), xml:lang and xml:space.
	Body []byte
	Err  error // set if the part is too large; such a part has no Body
}

// Splitter reads the parts of a document one after the other, and keeps only one part in memory.
// The largest token that it accepts has about 64 KiB more than Limits.MaxBody. Outside of the
// parts, the Splitter checks that the document is well-formed. In a part, it checks only that the
// tags match, because Set.Accept checks the part in full.
type Splitter struct {
	paths      []*SplitPath
	limits     Limits
	partType   string
	source     *tokenReader
	decoder    *xml.Decoder
	open       []splitElement
	namespaces namespaceScope
	hasRoot    bool
	doctype    doctypeState
	part       *openPart // nil = the reader is outside of the parts
	err        error     // the error that an earlier call returned, or io.EOF
}

type splitElement struct {
	raw      xml.Name
	declared []string      // namespace prefixes that the element declares; nil inside a part
	states   []splitState  // one state for each path; nil inside a part
	holds    xmlAttributes // none inside a part
}

// openPart is a part whose end tag has not been read.
type openPart struct {
	depth     int    // number of open elements around the part
	line      int    // line of the start tag in the document, from 1
	startTag  []byte // start tag of the part's body
	rawLength int    // length of the start tag in the document
}

// Split returns a Splitter of a document. The document may have any encoding that a body of Accept
// may have; its parts are in UTF-8. A part is an element that one of the paths selects and that
// lies in no other part. The error is a *weir.Error of the kind Unsupported or Malformed, or the
// error of the document's reader.
func (s *Set) Split(document io.Reader, contentType string,
	paths ...*SplitPath) (*Splitter, error) {
	if contentType == "" {
		contentType = "application/xml"
	}

	charset, err := parseContentType(contentType)
	if err != nil {
		return nil, err
	}

	buffered := bufio.NewReaderSize(document, StartSize)
	encoding, conflict, err := readStart(buffered, charset)
	if err != nil {
		return nil, err
	}

	p := &Splitter{paths: paths, limits: s.limits, namespaces: newNamespaceScope(),
		partType: typeOfParts(contentType, encoding),
		source: &tokenReader{source: buffered, limit: s.limits.MaxBody,
			maxEquals: s.limits.Attributes, partAt: -1}}

	if encoding != utf8Name { // invalid UTF-8 has a line, because readToken finds it
		p.source.source = &utf8Reader{source: buffered, encoding: encoding, conflict: conflict}
	}

	p.decoder = xml.NewDecoder(p.source)

	// The decoder needs no conversion, because utf8Reader has converted the document.
	p.decoder.CharsetReader = func(_ string, in io.Reader) (io.Reader, error) { return in, nil }

	return p, nil
}

// CheckStart checks the beginning of a document up to its root element, as Split and Next would:
// its Content-Type, its encoding, and what stands before the root. The slice head has the first
// StartSize bytes of the document, or all of it. The error is a *weir.Error of the kind Unsupported
// or Malformed.
func (s *Set) CheckStart(contentType string, head []byte) error {
	p, err := s.Split(bytes.NewReader(head), contentType)
	for err == nil && !p.hasRoot {
		_, err = p.readToken()
	}

	if p == nil || len(head) < StartSize ||
		p.decoder.InputOffset() < p.source.base+int64(len(p.source.kept)) {
		return err
	}

	// The last token goes on behind the head. Of a text and a document type declaration, the
	// beginning is known.
	if problem := p.describeCutDoctype(); problem != "" {
		return err
	}

	last := trimSpace(string(p.source.kept[p.source.tokenAt-p.source.base:]))
	if last == "" || last[0] == '<' || p.hasRoot {
		return nil
	}

	problem := p.limits.describeProblem(fmt.Sprintf("there is text outside the root element: %s",
		quoted(strconv.Quote(shorten(last)))))

	return malformedError(problem, weir.Problem{Rule: "xml", Message: problem})
}

// PartType returns the Content-Type of the parts.
func (p *Splitter) PartType() string { return p.partType }

// readStart skips a byte order mark, and returns the encoding of the document. If two labels
// differ, the encoding is US-ASCII, and conflict is the error of the first other byte.
func readStart(in *bufio.Reader, charset string) (encoding string, conflict, err error) {
	head, err := in.Peek(StartSize)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return "", nil, err
	case len(head) == 0:
		return "", nil, malformedError("the body is empty")
	}

	start, err := findEncoding(head, charset)
	switch {
	case err != nil:
		return "", nil, err
	case start.conflict != nil && !isASCII(head):
		return "", nil, start.conflict
	case start.conflict != nil:
		return ascii, start.conflict, nil
	}

	if marked, rest := cutByteOrderMark(head); marked != "" {
		_, err = in.Discard(len(head) - len(rest))
	}

	return start.encoding, nil, err
}

// typeOfParts returns the Content-Type of a document's parts. The parts are in UTF-8. If the
// document has another encoding, the Content-Type says so, because a reader may know the document's
// encoding.
func typeOfParts(contentType, encoding string) string {
	kind, params, err := mime.ParseMediaType(contentType)
	isLabelled := params["charset"] != ""
	if err != nil || encoding == utf8Name ||
		encoding == ascii && (!isLabelled || params["charset"] == ascii) {
		return contentType
	}

	params["charset"] = utf8Name

	return mime.FormatMediaType(kind, params)
}

// Next returns the next part, or io.EOF after the end of a well-formed document. Any other error is
// a *weir.Error, or the error of the document's reader.
func (p *Splitter) Next() (Part, error) {
	for p.err == nil {
		var part *Part
		if part, p.err = p.readToken(); part != nil {
			return *part, nil
		}
	}
	return Part{}, p.err
}

// readToken reads one token. If the token is the end tag of a part, readToken returns the part.
func (p *Splitter) readToken() (*Part, error) {
	start := p.decoder.InputOffset()
	line, column := p.decoder.InputPos()
	p.source.beginToken(start)
	token, err := p.decoder.RawToken()
	if errors.Is(err, io.EOF) {
		return nil, p.endDocument()
	}

	if err != nil {
		if p.source.err != nil {
			return nil, p.source.err
		}

		if problem := p.describeCutDoctype(); problem != "" {
			return nil, p.errorAt(line, column, problem)
		}

		line, column = p.decoder.InputPos()
		return nil, p.errorAt(line, column, describeSyntaxError(err, p.doctype.found))
	}

	raw := p.source.bytesFrom(start, p.decoder.InputOffset())
	problem := ""
	switch t := token.(type) {
	case xml.StartElement:
		problem = p.startElement(t, string(raw), line)
	case xml.EndElement:
		if problem = p.endElement(t); problem == "" && p.part != nil &&
			len(p.open) == p.part.depth {
			return p.endPart(), nil
		}

	case xml.Directive:
		problem = firstNonEmpty(p.doctype.readDirective(string(raw), p.hasRoot),
			checkCharacters(string(raw)))
	default:
		if p.part == nil {
			problem = p.checkOutside(t, string(raw), start)
		}
	}

	if problem != "" {
		return nil, p.errorAt(line, column, problem)
	}

	return nil, nil
}

// describeCutDoctype returns the problem of a document type declaration whose internal subset the
// decoder does not read to its end.
func (p *Splitter) describeCutDoctype() string {
	token := string(p.source.kept[p.source.tokenAt-p.source.base:])
	if m := doctypeDeclaration.FindStringSubmatch(token); m != nil && m[1] == "[" {
		return describeDoctype(token)
	}
	return ""
}

// checkOutside returns the problem of a text, comment or instruction outside of the parts.
func (p *Splitter) checkOutside(token xml.Token, raw string, start int64) string {
	if problem := checkCharacters(raw); problem != "" {
		return problem
	}

	switch t := token.(type) {
	case xml.CharData:
		if len(p.open) == 0 && trimSpace(raw) != "" {
			return fmt.Sprintf("there is text outside the root element: %s",
				quoted(strconv.Quote(shorten(trimSpace(raw)))))
		}

		if !strings.HasPrefix(raw, "<![CDATA[") {
			return checkReferences(raw)
		}

	case xml.ProcInst:
		if start > 0 || t.Target != "xml" {
			return checkInstruction(t.Target, raw)
		}
	}

	return ""
}

// checkCharacters returns the problem of the characters of a token outside of the parts.
func checkCharacters(raw string) string {
	if !utf8.ValidString(raw) {
		return "the document is not valid UTF-8"
	}

	if at, r := findForbiddenCharacter(raw); at >= 0 {
		return fmt.Sprintf("the character %U is not allowed in XML", r)
	}
	return ""
}

func (p *Splitter) startElement(t xml.StartElement, raw string, line int) string {
	switch {
	case len(p.open) == 0 && p.hasRoot:
		return "there is more than one root element"
	case len(p.open) >= 2*p.limits.Depth: // twice the limit, because a part alone can be as deep as the limit
		return fmt.Sprintf("elements are nested more than %d deep", 2*p.limits.Depth)
	}

	p.hasRoot = true
	if p.part != nil {
		p.open = append(p.open, splitElement{raw: t.Name})
		return ""
	}

	t.Attr = normalizeAttributes(t.Attr, raw)
	e, problem := p.enterElement(t)
	if problem != "" {
		return problem
	}

	if p.isSelected(e.states) {
		// Only for parts, because completeStartTag is slow with many namespaces.
		tag, problem := p.completeStartTag(t, raw, p.parentAttributes(), e.holds)
		if problem != "" {
			return problem
		}

		p.part = &openPart{depth: len(p.open), line: line, startTag: tag, rawLength: len(raw)}
		p.source.beginPart()
	} else if !utf8.ValidString(raw) {
		return "the document is not valid UTF-8"
	} else if problem := firstNonEmpty(checkStartTag(raw),
		p.namespaces.checkAttributes(t.Attr)); problem != "" {
		return problem
	}

	p.open = append(p.open, e)

	return ""
}

// enterElement declares the prefixes of an element outside of the parts, and computes the states of
// the paths at the element.
func (p *Splitter) enterElement(t xml.StartElement) (splitElement, string) {
	declared, problem := p.namespaces.declarePrefixes(t.Attr)
	if problem != "" {
		return splitElement{}, problem
	}

	uri, problem := p.namespaces.lookUpNamespace(t.Name)
	if problem != "" {
		return splitElement{}, problem
	}

	holds, problem := p.parentAttributes().inherit(t.Attr)
	if problem != "" {
		return splitElement{}, problem
	}

	e := splitElement{raw: t.Name, declared: declared, holds: holds,
		states: make([]splitState, len(p.paths))}

	for i, path := range p.paths {
		parent := startState
		if len(p.open) > 0 {
			parent = p.open[len(p.open)-1].states[i]
		}
		e.states[i] = path.enterElement(parent, t.Name, uri)
	}

	return e, ""
}

// parentAttributes returns the attributes of the prefix xml that hold for the innermost open
// element.
func (p *Splitter) parentAttributes() xmlAttributes {
	if len(p.open) == 0 {
		return xmlAttributes{}
	}
	return p.open[len(p.open)-1].holds
}

func (p *Splitter) isSelected(states []splitState) bool {
	for i, path := range p.paths {
		if path.isSelected(states[i]) {
			return true
		}
	}
	return false
}

func (p *Splitter) endElement(t xml.EndElement) string {
	if len(p.open) == 0 {
		return fmt.Sprintf("</%s> closes nothing", quoted(formatRawName(t.Name)))
	}

	last := p.open[len(p.open)-1]
	if last.raw != t.Name {
		return fmt.Sprintf("element <%s> is closed by </%s>", quoted(formatRawName(last.raw)),
			quoted(formatRawName(t.Name)))
	}

	p.namespaces.dropPrefixes(last.declared)
	p.open = p.open[:len(p.open)-1]

	return ""
}

// endPart returns the part whose end tag was read.
func (p *Splitter) endPart() *Part {
	open := p.part
	p.part = nil
	written, isWhole := p.source.endPart(p.decoder.InputOffset())
	size := len(written) + len(open.startTag) - open.rawLength
	if !isWhole || int64(size) > p.limits.MaxBody {
		return &Part{Line: open.line, Err: newError(weir.TooLarge,
			fmt.Sprintf("the part is over %d bytes (maxBody in weir.yaml)", p.limits.MaxBody))}
	}

	body := make([]byte, 0, size)
	body = append(body, open.startTag...)

	return &Part{Line: open.line, Body: append(body, written[open.rawLength:]...)}
}

// endDocument returns io.EOF if the document is complete, and otherwise an error.
func (p *Splitter) endDocument() error {
	line, column := p.decoder.InputPos()
	switch {
	case p.source.err != nil:
		return p.source.err
	case len(p.open) > 0:
		return p.errorAt(line, column,
			fmt.Sprintf("element <%s> is not closed",
				quoted(formatRawName(p.open[len(p.open)-1].raw))))

	case !p.hasRoot:
		return p.errorAt(line, column, "there is no element")
	}

	return io.EOF
}

// joinRawName returns a name with its prefix.
func joinRawName(n xml.Name) string {
	if n.Space == "" {
		return n.Local
	}
	return n.Space + ":" + n.Local
}

func (p *Splitter) errorAt(line, column int, problem string) error {
	problem = p.limits.describeProblem(problem)
	return malformedError(fmt.Sprintf("line %d, column %d: %s", line, column, problem),
		weir.Problem{Rule: "xml", Message: problem, Line: line, Column: column})
}

// tokenReader buffers the bytes of the current part. Outside of the parts, it buffers the bytes of
// the current token. It refuses a token that is too large, because the decoder keeps a whole token
// in memory.
type tokenReader struct {
	source io.Reader
	limit  int64 // largest number of bytes of a part; a token can have about readAhead more
	// limits the equals signs in a tag, because the decoder keeps all attributes of a tag in memory
	maxEquals int

	kept       []byte // the buffered bytes, from offset base on
	base       int64
	tokenAt    int64 // offset of the current token
	partAt     int64 // offset of the current part; -1 = no part is open, or the part is too large
	equals     int   // number of equals signs read for the current token
	isTooLarge bool  // true = the current part is too large
	err        error // the error that ended the reading; nil = none
}

// readAhead is the largest number of bytes that the decoder can have read beyond the current token.
const readAhead = 64 << 10

// Read implements io.Reader.
func (r *tokenReader) Read(b []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}

	end := r.base + int64(len(r.kept))
	if r.partAt >= 0 && end-r.partAt > r.limit+readAhead {
		r.partAt, r.isTooLarge = -1, true
		r.dropBefore(r.tokenAt)
	}

	switch {
	case end-r.tokenAt > r.limit+readAhead:
		r.err = newError(weir.TooLarge,
			fmt.Sprintf("a tag, text or comment is over %d bytes", r.limit))
	case r.equals > r.maxEquals+readAhead && r.isTag():
		r.err = malformedError(fmt.Sprintf("an element has more than %d attributes", r.maxEquals))
	}

	if r.err != nil {
		return 0, r.err
	}

	n, err := r.source.Read(b)
	r.kept = append(r.kept, b[:n]...)
	r.equals += bytes.Count(b[:n], []byte("="))
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}

	return n, err
}

// isTag reports whether the current token is a start or end tag.
func (r *tokenReader) isTag() bool {
	token := r.kept[r.tokenAt-r.base:]
	return len(token) > 1 && token[0] == '<' && token[1] != '!' && token[1] != '?'
}

// beginToken drops the bytes before a token, but keeps the bytes of the current part.
func (r *tokenReader) beginToken(at int64) {
	r.tokenAt, r.equals = at, 0
	if r.partAt < 0 {
		r.dropBefore(at)
	}
}

// dropBefore drops the bytes before an offset, but only if they are more than half of the buffer.
// So dropBefore always moves fewer bytes than it drops.
func (r *tokenReader) dropBefore(at int64) {
	if unused := at - r.base; unused > int64(len(r.kept))/2 {
		r.kept = r.kept[:copy(r.kept, r.kept[unused:])]
		r.base = at
	}
}

func (r *tokenReader) bytesFrom(start, end int64) []byte {
	return r.kept[start-r.base : end-r.base]
}

// beginPart begins a part at the current token.
func (r *tokenReader) beginPart() { r.partAt, r.isTooLarge = r.tokenAt, false }

// endPart returns the bytes of the part up to an offset. If the part is too large, endPart returns
// false. The bytes are valid only until the next token is read.
func (r *tokenReader) endPart(end int64) ([]byte, bool) {
	at := r.partAt
	r.partAt = -1
	if r.isTooLarge || end-at > r.limit {
		return nil, false
	}
	return r.bytesFrom(at, end), true
}
