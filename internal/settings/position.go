package settings

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"weir/internal/steps"
)

// The text of a problem begins with a path, such as delivery.attempts. problemPath finds this path.
// The text of a contract's problem begins with two paths, such as contracts[0] "product":
// fields[1]. The first path is that of the contract. contractPath finds the second path, which is
// that of the value within the contract.
var (
	problemPath = regexp.MustCompile(
		`^([a-z][A-Za-z]*(?:\.[a-z][A-Za-z]*|\[\d+\])*)(?: "[^"]*")?(?:[: ]|$)`)
	contractPath = regexp.MustCompile(
		`^contracts\[\d+\] "[^"]*": ([a-z][A-Za-z]*(?:\[\d+\])?)(?:[: ]|$)`)
)

// AddPositions puts the file's name, the line and the column in front of each problem, and hides
// the values of variables. If the file lacks the value of a problem, the position is that of the
// value's nearest parent in the file.
func (s *Settings) AddPositions(err error) error {
	if err == nil || s.body == nil {
		return s.expander.hideValues(err)
	}

	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return s.addPosition(err)
	}

	var located []error
	for _, e := range joined.Unwrap() {
		located = append(located, s.AddPositions(e))
	}

	return errors.Join(located...)
}

func (s *Settings) addPosition(err error) error {
	// an error of package steps already has line and column
	if m := (steps.Mistake{}); errors.As(err, &m) {
		return s.expander.hideValues(fmt.Errorf("%s: %w", s.FileName, err))
	}

	text := withoutPackage(err.Error())
	if text != err.Error() {
		err = errors.New(text)
	}

	m := problemPath.FindStringSubmatch(text)
	if m == nil {
		return s.expander.hideValues(err)
	}

	path := m[1]
	if c := contractPath.FindStringSubmatch(text); c != nil {
		path += "." + c[1]
	}

	for path != "" {
		if n := s.findNode(path); n != nil {
			at := n.GetToken().Position
			return s.expander.hideValues(fmt.Errorf("%s: [%d:%d] %w", s.FileName, at.Line,
				at.Column, err))
		}

		// The file lacks the value, so the next try looks for the value's parent.
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}

	return s.expander.hideValues(err)
}

// withoutPackage returns the text of a problem of delivery.url without the name of the package that
// found it, so that the text begins with the path. Other problems of these packages get no
// position: weir check --offline would take a problem on a line that names a variable for one of
// the variable.
func withoutPackage(text string) string {
	for _, name := range []string{"cms: ", "steps: "} {
		if rest, isOf := strings.CutPrefix(text, name); isOf &&
			strings.HasPrefix(rest, "delivery.url ") {
			return rest
		}
	}
	return text
}

// findNode returns the node at a path such as contracts[0].fields[1], or nil if the file has no
// such node.
func (s *Settings) findNode(path string) ast.Node {
	compiled, err := yaml.PathString("$." + path)
	if err != nil {
		return nil
	}

	n, err := compiled.FilterNode(s.body)
	if err != nil {
		return nil
	}

	return n
}
