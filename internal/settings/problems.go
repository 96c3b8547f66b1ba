package settings

import (
	"errors"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"weir/internal/weir"
)

// checker collects the problems of settings.
type checker struct{ problems []error }

func (c *checker) add(problems ...error) { c.problems = append(c.problems, problems...) }

// must adds a problem of the setting at a path, except if the setting is ok.
func (c *checker) must(ok bool, path, format string, args ...any) {
	if !ok {
		c.add(weir.NewSettingProblem(path, format, args...))
	}
}

// addLines adds a problem of the setting at a path for each line of err.
func (c *checker) addLines(path string, err error) {
	if err == nil {
		return
	}

	for line := range strings.SplitSeq(err.Error(), "\n") {
		c.add(&weir.SettingProblem{Path: path, Message: path + ": " + line})
	}
}

// addWithin adds the problems of err, whose paths begin in a group. See SettingProblem.Within.
func (c *checker) addWithin(prefix string, err error) {
	for _, p := range ListProblems(err) {
		c.add(p.Within(prefix))
	}
}

// ListProblems returns the problems of an error of this package. An error without a setting becomes
// a problem without a path.
func ListProblems(err error) (problems []*weir.SettingProblem) {
	if err == nil {
		return nil
	}

	if joined, isJoined := err.(interface{ Unwrap() []error }); isJoined {
		for _, e := range joined.Unwrap() {
			problems = append(problems, ListProblems(e)...)
		}
		return problems
	}

	if p := (*weir.SettingProblem)(nil); errors.As(err, &p) {
		return []*weir.SettingProblem{p}
	}

	return []*weir.SettingProblem{{Message: err.Error()}}
}

// Locate adds the file, the line and the column to each problem of a setting, and hides the values
// of variables. If the file lacks the setting, the place is that of its nearest parent in the file.
func (s *Settings) Locate(err error) error {
	if joined, isJoined := err.(interface{ Unwrap() []error }); isJoined {
		var located []error
		for _, e := range joined.Unwrap() {
			located = append(located, s.Locate(e))
		}
		return errors.Join(located...)
	}

	p := (*weir.SettingProblem)(nil)
	if !errors.As(err, &p) {
		return s.expander.hideValues(err)
	}

	located := *p
	for path := p.Path; path != "" && located.Line == 0; {
		if n := s.findNode(path); n != nil {
			at := n.GetToken().Position
			located.Line, located.Column = at.Line, at.Column
		}

		path = path[:max(0, strings.LastIndexAny(path, ".["))] // the parent
	}

	if located.Line > 0 {
		located.File = s.FileName
	}
	located.Message = s.expander.hideText(located.Message)

	return &located
}

// findNode returns the node at a path such as contracts[0].fields[1], or nil if the file has no
// such node.
func (s *Settings) findNode(path string) ast.Node {
	compiled, err := yaml.PathString("$." + path)
	if err != nil || s.body == nil {
		return nil
	}

	n, err := compiled.FilterNode(s.body)
	if err != nil {
		return nil
	}

	return n
}

// newProblemAt returns the problem of the setting at a path, with the place of a token.
func newProblemAt(at *token.Token, path, format string, args ...any) *weir.SettingProblem {
	p := weir.NewSettingProblem(path, format, args...)
	p.Line, p.Column = at.Position.Line, at.Position.Column
	return p
}
