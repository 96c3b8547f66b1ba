package contract

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/bits"
	"strings"

	"github.com/beevik/etree"

	"weir/internal/weir"
)

// Checked is the result of checking a body against the contracts.
type Checked struct {
	// Message has the values that Check could read. If the body has problems, Message can lack
	// values. If the body is malformed, or if no contract accepts the root element,
	// Message.Contract is empty.
	Message weir.Message
	// Problems are the first 100 problems, each with its line and column if these are known. If
	// there are more problems, one more entry has the number of the remaining problems. nil =
	// Accept accepts the body.
	Problems []weir.Problem
	// HasDoctype is true if the CMS gets the document type declaration of the body.
	HasDoctype bool
}

// Check checks a body against the contracts. If Accept would refuse the body as Malformed or
// Invalid, Check returns the problems and no error. Any error is a *weir.Error of the kind TooLarge
// or Unsupported. If ctx ends while Check waits for memory, the kind is Unavailable.
func (s *Set) Check(ctx context.Context, contentType string, body []byte) (Checked, error) {
	places := &places{left: maxProblems}
	m, err := s.acceptBody(ctx, contentType, body, places)
	var e *weir.Error
	switch {
	case err == nil:
		return Checked{Message: m, HasDoctype: places.hasDoctype}, nil
	case !errors.As(err, &e) || e.Kind != weir.Malformed && e.Kind != weir.Invalid:
		return Checked{}, err
	case len(e.Problems) == 0:
		return Checked{Message: m, Problems: []weir.Problem{{Message: e.Message}}}, nil
	}

	return Checked{Message: m, Problems: e.Problems}, nil
}

// places are the positions of a document's elements. A nil *places is valid, and stores nothing.
type places struct {
	text       string // the document in UTF-8
	spans      map[*etree.Element]span
	hasDoctype bool // the CMS gets the document type declaration of the document

	// number of further problems that get a line and a column; 0 = setPlace sets none any more
	left int
}

// span has the offsets of an element's start tag, of its content, and of its end tag. If the
// element has no content, content and end are equal.
type span struct{ start, content, end int }

// bytesPerPlace is an upper bound for the bytes that one element takes in places.spans.
const bytesPerPlace = 96

// estimateMemory returns an upper bound, in bytes, for the memory that the positions of a body's
// elements take.
func (l *places) estimateMemory(body []byte) int64 {
	if l == nil {
		return 0
	}
	return int64(len(body)) + bytesPerPlace*int64(strings.Count(string(body), "<"))
}

func (l *places) noteDoctype() {
	if l != nil {
		l.hasDoctype = true
	}
}

func (l *places) beginElement(e *etree.Element, start, content int) {
	if l == nil {
		return
	}

	if l.spans == nil {
		l.spans = map[*etree.Element]span{}
	}

	l.spans[e] = span{start, content, content}
}

func (l *places) endElement(e *etree.Element, end int) {
	if l == nil || e == nil {
		return
	}
	s := l.spans[e]
	s.end = end
	l.spans[e] = s
}

// setPlace sets the problem's line and column to those of an element's start tag.
func (l *places) setPlace(p *weir.Problem, e *etree.Element) {
	if l == nil || l.left == 0 {
		return
	}

	if found, known := l.spans[e]; known {
		l.left--
		p.Line, p.Column = lineColumn(l.text[:found.start])
	}
}

// setPathPlace sets the line and column of all problems to those of the element that findNearest
// returns for a path.
func (l *places) setPathPlace(problems []weir.Problem, p *path, doc *etree.Document) {
	if l == nil || len(problems) == 0 {
		return
	}

	found := l.findNearest(p, doc)
	for i := range problems {
		l.setPlace(&problems[i], found)
	}
}

// findNearest returns the first element that a path selects. If the path selects no element,
// findNearest uses the longest beginning of the path that selects an element.
func (l *places) findNearest(p *path, doc *etree.Document) *etree.Element {
	nearest := doc.Root()
	found := []*etree.Element{nearest}
	if p.absolute {
		found[0] = &doc.Element
	}

	for _, s := range p.steps {
		found = s.selectElements(found, namespaces{})
		if len(found) == 0 {
			return nearest
		}
		nearest = found[0]
	}

	return nearest
}

// Upper bounds of the memory, in bytes, that the parser takes for each byte, each "<" and each "="
// of a body. The parser copies each byte twice: when it decodes the body, and when it builds the
// tree. TestEstimateMemory compares the bounds with measured memory.
const (
	bytesPerByte      = 4
	bytesPerTag       = 160
	bytesPerAttribute = 256
	// One byte of an encoding other than UTF-8 can be a character of three bytes in UTF-8, in both
	// copies.
	bytesPerHighByte = 4
)

// estimateMemory returns an upper bound, in bytes, of the memory that the parser takes for a body.
// In UTF-16, the bytes of "<" and "=" can also be parts of other characters. Then the bound is
// higher than necessary.
func estimateMemory(body []byte) int64 {
	tags, attributes := bytes.Count(body, []byte("<")), bytes.Count(body, []byte("="))
	return bytesPerByte*int64(len(body)) + bytesPerTag*int64(tags) +
		bytesPerAttribute*int64(attributes) +
		bytesPerHighByte*int64(countHighBytes(body))
}

// countHighBytes returns the number of bytes that are not ASCII. It counts eight at a time, because
// each post passes here.
func countHighBytes(body []byte) (count int) {
	for ; len(body) >= 8; body = body[8:] {
		count += bits.OnesCount64(binary.LittleEndian.Uint64(body) & 0x8080808080808080)
	}

	for _, b := range body {
		count += int(b >> 7)
	}
	return count
}
