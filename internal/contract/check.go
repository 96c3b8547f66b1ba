package contract

import (
	"context"
	"errors"
	"strings"

	"github.com/beevik/etree"

	"weir/internal/weir"
)

// Checked is the result of checking a body against the contracts.
type Checked struct {
	// Message has the values that Check could read. If the body has problems, some values may be missing.
	// Message.Contract is empty if the body is malformed, or if no contract accepts the root element.
	Message weir.Message
	// Problems are the first maxProblems problems, each with line and column if the problem has a place. If there are
	// more problems, one more entry has their number. nil = Accept accepts the body.
	Problems []weir.Problem
}

// Check checks a body against the contracts. If Accept would refuse the body as Malformed or Invalid, Check returns
// the problems and no error. The error is a *weir.Error of the kind TooLarge or Unsupported. If ctx ends while the
// call waits for memory, the kind is Unavailable.
func (s *Set) Check(ctx context.Context, contentType string, body []byte) (Checked, error) {
	places := &places{left: maxProblems}
	m, err := s.acceptBody(ctx, contentType, body, places)
	var e *weir.Error
	switch {
	case err == nil:
		return Checked{Message: m}, nil
	case !errors.As(err, &e) || e.Kind != weir.Malformed && e.Kind != weir.Invalid:
		return Checked{}, err
	case len(e.Problems) == 0:
		return Checked{m, []weir.Problem{{Message: e.Message}}}, nil
	}
	return Checked{m, e.Problems}, nil
}

// places are the positions of a document's elements. A nil *places stores no positions, and costs nothing.
type places struct {
	text  string // the document in UTF-8
	spans map[*etree.Element]span
	left  int // number of places that may still be computed; each computation reads the text before the place
}

// span has the offsets of an element's start tag, of its content, and of its end tag. The last two are equal if
// the element has no content.
type span struct{ start, content, end int }

// bytesPerPlace is an upper estimate of the memory of an element's position.
const bytesPerPlace = 96

// estimateMemory returns an upper bound of the memory that the positions of a body take.
func (l *places) estimateMemory(body []byte) int64 {
	if l == nil {
		return 0
	}
	return int64(len(body)) + bytesPerPlace*int64(strings.Count(string(body), "<"))
}

// beginElement stores the offset of an element's start tag, and of the end of that tag.
func (l *places) beginElement(e *etree.Element, start, content int) {
	if l == nil {
		return
	}
	if l.spans == nil {
		l.spans = map[*etree.Element]span{}
	}
	l.spans[e] = span{start, content, content}
}

// endElement stores the offset of an element's end tag.
func (l *places) endElement(e *etree.Element, end int) {
	if l == nil || e == nil {
		return
	}
	s := l.spans[e]
	s.end = end
	l.spans[e] = s
}

// setPlace sets line and column of a problem to the position of an element's start tag.
func (l *places) setPlace(p *weir.Problem, e *etree.Element) {
	if l == nil || l.left == 0 {
		return
	}
	if found, known := l.spans[e]; known {
		l.left--
		p.Line, p.Column = lineColumn(l.text[:found.start])
	}
}

// setPathPlace sets the place of problems to the element that findNearest returns for a path.
func (l *places) setPathPlace(problems []weir.Problem, p *path, doc *etree.Document) {
	if l == nil || len(problems) == 0 {
		return
	}
	found := l.findNearest(p, doc)
	for i := range problems {
		l.setPlace(&problems[i], found)
	}
}

// findNearest returns the first element that a path selects. If the path selects no element, findNearest leaves out
// steps at the end of the path until the rest selects an element. It then returns the first element that the rest
// selects.
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
