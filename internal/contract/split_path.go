package contract

import (
	"encoding/xml"
	"errors"
	"fmt"
	"strings"
)

// SplitPath is a path whose selected elements are the parts of a document. A step is a name,
// prefix:name, {uri}name or *. A step after // can match at any depth. If a path does not begin
// with /, its first step matches children of the root element.
//
// Other steps of contract paths are not allowed, because a Splitter must decide about an element at
// its start tag.
type SplitPath struct {
	given string
	steps []splitStep
}

// splitStep matches an element inside the element that the previous step matched.
type splitStep struct {
	isDescendant bool    // true = at any depth inside; false = a child
	namespace    *string // nil = any namespace
	prefix       string  // the prefix in the document; empty = any prefix
	local        string  // local name; * = any name
}

// maxSplitSteps is 63, because a splitState has 64 bits: bit 0, and one bit for each step.
const maxSplitSteps = 63

// splitState says which steps of a path match an open element. Bit i is set in two cases:
//
//   - The first i steps of the path select the element.
//   - The first i steps select an ancestor of the element, and the next step can match at any
//     depth.
type splitState uint64

// CompileSplitPath compiles a path.
func CompileSplitPath(given string) (*SplitPath, error) {
	p := &SplitPath{given: given}
	rest, isAbsolute := strings.CutPrefix(given, "/")
	if !isAbsolute {
		p.steps = append(p.steps, splitStep{local: "*"})
	}

	isDescendant := false
	for more := true; more; {
		m := nextStep.FindStringSubmatch(rest)
		if m == nil || m[2] != "" {
			return nil, p.newError("a step of a split path has no condition in brackets")
		}

		rest, more = rest[len(m[0]):], m[3] == "/"
		if m[1] == "" && more && !isDescendant {
			isDescendant = true
			continue
		}

		s, err := parseSplitStep(m[1])
		if err != nil {
			return nil, p.newError(err.Error())
		}

		s.isDescendant, isDescendant = isDescendant, false
		p.steps = append(p.steps, s)
	}

	if len(p.steps) > maxSplitSteps {
		return nil, p.newError(fmt.Sprintf("it has more than %d steps", maxSplitSteps))
	}

	return p, nil
}

func (p *SplitPath) newError(problem string) error {
	return fmt.Errorf("split path %q: %s", truncate(p.given), problem)
}

// String returns the path as it was given.
func (p *SplitPath) String() string { return p.given }

// Steps returns the number of steps of the path, on which the cost of a split depends.
func (p *SplitPath) Steps() int { return len(p.steps) }

func parseSplitStep(name string) (s splitStep, err error) {
	if n := inNamespace.FindStringSubmatch(name); n != nil && n[1] == "" {
		return splitStep{namespace: &n[2], local: n[3]}, nil
	}

	switch {
	case name == "":
		return s, errors.New("a step is empty")
	case name == "." || name == ".." || !stepNames.MatchString(name):
		return s, fmt.Errorf("%q is not a step of a split path", truncate(name))
	}

	prefix, local, hasPrefix := strings.Cut(name, ":")
	if !hasPrefix {
		return splitStep{local: name}, nil
	}

	return splitStep{prefix: prefix, local: local}, nil
}

// startState is the state of the document, which is the parent of the root element.
const startState splitState = 1

// enterElement returns the state of an element whose parent has the state s.
func (p *SplitPath) enterElement(s splitState, raw xml.Name, uri string) splitState {
	var next splitState
	for i := range p.steps {
		if s&(1<<i) == 0 {
			continue
		}

		if p.steps[i].isDescendant {
			next |= 1 << i
		}

		if p.steps[i].matchesName(raw, uri) {
			next |= 1 << (i + 1)
		}
	}

	return next
}

// isSelected reports whether the path selects an element with the state s.
func (p *SplitPath) isSelected(s splitState) bool { return s&(1<<len(p.steps)) != 0 }

func (s splitStep) matchesName(raw xml.Name, uri string) bool {
	return (s.local == "*" || s.local == raw.Local) && (s.prefix == "" || s.prefix == raw.Space) &&
		(s.namespace == nil || *s.namespace == uri)
}
