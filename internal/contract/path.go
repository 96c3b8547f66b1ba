package contract

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/beevik/etree"
)

// path is an etree path, cut into steps. etree walks a whole path without telling apart an
// element found once from one found a thousand times (for each child a filter matches), so
// that a hostile body makes it keep billions; here each step gives each element once.
type path struct {
	given    string
	absolute bool // begins at the document, not at the root element
	steps    []step
	space    string // prefix of attr
	attr     string // name of the attribute the last step selects; empty = the element's text
	needs    needs
}

type step struct {
	selector etree.Path
	descends bool // the empty step of //
	filters  []filter
}

// filter keeps the place-th element, or those of which condition holds where place is 0.
type filter struct {
	place     int // from 1, or from -1 backwards
	condition etree.Path
}

var (
	nextStep   = regexp.MustCompile(`^([^/\[\]]*)((?:\[(?:[^\[\]'"]|'[^']*'|"[^"]*")*\])*)(/|$)`)
	brackets   = regexp.MustCompile(`\[((?:[^\[\]'"]|'[^']*'|"[^"]*")*)\]`)
	stepNames  = regexp.MustCompile(`^(|\.|\.\.|\*|[\pL_][\pL\pM\pN._-]*(:[\pL_][\pL\pM\pN._-]*)?)$`)
	attribute  = regexp.MustCompile(`^@(?:([\pL_][\pL\pM\pN._-]*):)?([\pL_][\pL\pM\pN._-]*)$`)
	wholePlace = regexp.MustCompile(`^-?[0-9]{1,6}$`)
)

// compilePath gives nil for an empty path.
func compilePath(given string) (*path, error) {
	if given == "" {
		return nil, nil
	}
	p := &path{given: given}
	rest, absolute := strings.CutPrefix(given, "/")
	p.absolute = absolute
	for more := true; more; {
		m := nextStep.FindStringSubmatch(rest)
		if m == nil {
			return nil, fmt.Errorf("path %q: brackets or quotes do not match", given)
		}
		rest, more = rest[len(m[0]):], m[3] == "/"
		if err := p.add(m[1], m[2], more); err != nil {
			return nil, fmt.Errorf("path %q: %w", given, err)
		}
	}
	return p, nil
}

// add takes one more step; the last may be an attribute.
func (p *path) add(name, filters string, more bool) error {
	if a := attribute.FindStringSubmatch(name); a != nil && filters == "" && !more {
		p.space, p.attr = a[1], a[2]
		p.needs.addAttribute(p.attr)
		p.absolute = p.absolute && len(p.steps) > 0 // the document has none: /@a is the root's
		return nil
	}
	if !stepNames.MatchString(name) {
		return fmt.Errorf("%q is not a step", name)
	}
	if name == "" && (!more || filters != "") {
		return errors.New("a step is empty")
	}
	p.needs.addStep(name)
	s := step{descends: name == ""}
	var err error
	if !s.descends {
		if s.selector, err = etree.CompilePath(name); err != nil {
			return err
		}
	}
	for _, m := range brackets.FindAllStringSubmatch(filters, -1) {
		f, err := compileFilter(m[1])
		if err != nil {
			return err
		}
		if f.place == 0 {
			p.needs.addCondition(m[1])
		}
		s.filters = append(s.filters, f)
	}
	p.steps = append(p.steps, s)
	return nil
}

func compileFilter(given string) (f filter, err error) {
	if wholePlace.MatchString(given) {
		f.place, err = strconv.Atoi(given)
		if err == nil && f.place == 0 {
			err = errors.New("places count from 1")
		}
		return f, err
	}
	f.condition, err = etree.CompilePath(".[" + given + "]")
	return f, err
}

// values gives what the path selects, trimmed.
func (p *path) values(doc *etree.Document) []string {
	start := doc.Root()
	if p.absolute {
		start = &doc.Element
	}
	found := []*etree.Element{start}
	for _, s := range p.steps {
		found = s.from(found)
	}
	var out []string
	for _, e := range found {
		if p.attr == "" {
			out = append(out, strings.TrimSpace(text(e)))
			continue
		}
		for _, a := range e.Attr { // not SelectAttr, which takes x:path for path
			if a.Space == p.space && a.Key == p.attr {
				out = append(out, strings.TrimSpace(a.Value))
			}
		}
	}
	return out
}

// from gives the elements the step leads to from any of those given, each once.
func (s *step) from(given []*etree.Element) []*etree.Element {
	var out []*etree.Element
	seen := map[*etree.Element]bool{}
	for _, e := range given {
		if s.descends {
			out = descend(e, seen, out)
			continue
		}
		for _, found := range s.filter(e.FindElementsPath(s.selector)) {
			if !seen[found] {
				seen[found] = true
				out = append(out, found)
			}
		}
	}
	return out
}

func (s *step) filter(found []*etree.Element) []*etree.Element {
	for _, f := range s.filters {
		found = f.keep(found)
	}
	return found
}

func (f *filter) keep(found []*etree.Element) []*etree.Element {
	if f.place != 0 {
		at := f.place - 1
		if f.place < 0 {
			at = len(found) + f.place
		}
		if at < 0 || at >= len(found) {
			return nil
		}
		return found[at : at+1]
	}
	var out []*etree.Element
	for _, e := range found {
		if e.FindElementPath(f.condition) != nil {
			out = append(out, e)
		}
	}
	return out
}

// descend adds an element and all below it. What was seen was seen with all below it.
func descend(e *etree.Element, seen map[*etree.Element]bool, out []*etree.Element) []*etree.Element {
	if seen[e] {
		return out
	}
	seen[e] = true
	out = append(out, e)
	for _, child := range e.Child {
		if c, ok := child.(*etree.Element); ok {
			out = descend(c, seen, out)
		}
	}
	return out
}

// text is an element's own text, comments and the like left out.
func text(e *etree.Element) string {
	var b strings.Builder
	for _, child := range e.Child {
		if data, ok := child.(*etree.CharData); ok {
			b.WriteString(data.Data)
		}
	}
	return b.String()
}
