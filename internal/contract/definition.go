package contract

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/beevik/etree"

	"weir/internal/weir"
)

// Definition is one contract as weir.yaml has it.
type Definition struct {
	Name      string         `yaml:"name"`
	Root      string         `yaml:"root"`      // root element: local name, or {uri}local; {}local = in no namespace
	Key       string         `yaml:"key"`       // path to the ordering key; empty = one key for all such contracts
	Version   string         `yaml:"version"`   // path to the version; empty = none
	DeliverAt string         `yaml:"deliverAt"` // path to the moment before which it is not delivered; empty = none
	Supersede bool           `yaml:"supersede"` // a newer version replaces older ones of its key that wait; needs key and version
	OnFailure string         `yaml:"onFailure"` // block | skip; empty = block with a key, skip without
	Success   string         `yaml:"success"`   // regular expression a 2xx answer must match; empty = any 2xx
	Answers   map[int]string `yaml:"answers"`   // by status: rejected | retry | unavailable, for a CMS that uses the status in its own way
	Fields    []Field        `yaml:"fields"`
}

// Field is a rule for the values at a path.
type Field struct {
	Path string `yaml:"path"` // etree path; a last step /@name selects an attribute
	Rule string `yaml:"rule"` // validator/v10 tag, applied to each value; required = at least one that is not empty
}

// maxKey is the size of an ordering key in bytes: it goes into a header and a row.
const maxKey = 1 << 10

// maxName is the size of a contract's name, which does too.
const maxName = 128

// maxProblems is how many problems of one message are named; how many more there are is said.
const maxProblems = 100

// compiled is a contract ready for use.
type compiled struct {
	def     Definition
	key     *path
	version *path
	due     *path
	skip    bool
	success *regexp.Regexp
	fields  []rule
	needs   needs // of all paths
}

var rootName = regexp.MustCompile(`^(?:\{[^{}\s]*\})?[\pL_][\pL\pM\pN._-]*$`)

// compile gives the contract and every problem of its definition.
func compile(def Definition) (*compiled, []string) {
	c := &compiled{def: def}
	var problems []string
	note := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	switch {
	case def.Name == "":
		note("name is missing")
	case len(def.Name) > maxName || strings.ContainsFunc(def.Name, unicode.IsControl):
		note("name may have %d bytes and no control characters", maxName)
	}
	if !rootName.MatchString(def.Root) {
		note("root %q must be a local name or {uri}local", def.Root)
	}
	var err error
	if c.key, err = compilePath(def.Key); err != nil {
		note("key: %v", err)
	}
	if c.version, err = compilePath(def.Version); err != nil {
		note("version: %v", err)
	}
	if c.due, err = compilePath(def.DeliverAt); err != nil {
		note("deliverAt: %v", err)
	}
	if def.Supersede && (def.Version == "" || def.Key == "") {
		note("supersede needs a key and a version to compare")
	}
	switch def.OnFailure {
	case "":
		c.skip = def.Key == ""
	case "block", "skip":
		c.skip = def.OnFailure == "skip"
	default:
		note("onFailure is %q and must be block or skip", def.OnFailure)
	}
	if def.Success != "" {
		if c.success, err = regexp.Compile(def.Success); err != nil {
			note("success: %v", err)
		}
	}
	for _, status := range slices.Sorted(maps.Keys(def.Answers)) {
		if p := answerProblem(status, def.Answers[status]); p != "" {
			note("answers: %s", p)
		}
	}
	for i, f := range def.Fields {
		r, err := compileRule(f)
		if err != nil {
			note("fields[%d]: %v", i, err)
			continue
		}
		c.fields = append(c.fields, r)
	}
	c.gatherNeeds()
	return c, problems
}

func (c *compiled) gatherNeeds() {
	paths := []*path{c.key, c.version, c.due}
	for _, f := range c.fields {
		paths = append(paths, f.path)
	}
	for _, p := range paths {
		if p != nil {
			c.needs.add(p.needs)
		}
	}
}

// answerProblem returns what is wrong with an answer's meaning; empty = nothing.
func answerProblem(status int, means string) string {
	switch {
	case status < 300 || status > 599:
		return fmt.Sprintf("%d is not a status from 300 to 599; for 2xx answers use success", status)
	case !slices.Contains([]weir.Outcome{weir.OutcomeRejected, weir.OutcomeRetry, weir.OutcomeUnavailable}, weir.Outcome(means)):
		return fmt.Sprintf("%d is %q and must be rejected, retry or unavailable", status, means)
	}
	return ""
}

// apply makes the message, or lists every problem.
func (c *compiled) apply(doc *etree.Document) (weir.Message, []weir.Problem) {
	m := weir.Message{Contract: c.def.Name, Supersede: c.def.Supersede, Skip: c.skip}
	var problems []weir.Problem
	if c.key != nil {
		key, p := single(c.key, doc, "ordering key")
		problems = append(problems, p...)
		m.Key = key
	}
	if c.version != nil {
		version, p := single(c.version, doc, "version")
		if len(p) == 0 && c.def.Supersede {
			p = c.comparable(version)
		}
		problems = append(problems, p...)
		m.Version = version
	}
	if c.due != nil && len(c.due.values(doc)) > 0 {
		due, p := c.moment(doc)
		problems = append(problems, p...)
		m.DueAt = due
	}
	for _, r := range c.fields {
		problems = append(problems, r.problems(r.values(doc))...)
	}
	return m, problems
}

// moment reads when a message is to be delivered. An empty one says nothing.
func (c *compiled) moment(doc *etree.Document) (time.Time, []weir.Problem) {
	if values := c.due.values(doc); len(values) == 1 && values[0] == "" {
		return time.Time{}, nil
	}
	text, problems := single(c.due, doc, "due time")
	if len(problems) > 0 {
		return time.Time{}, problems
	}
	due, err := weir.ParseMoment(text)
	if err != nil {
		return time.Time{}, []weir.Problem{{Path: c.due.given, Rule: "deliverAt", Message: "the due time " + err.Error()}}
	}
	return due, nil
}

// comparable says that a version cannot be compared where messages supersede by it.
func (c *compiled) comparable(version string) []weir.Problem {
	if _, err := weir.ParseVersion(version); err != nil {
		return []weir.Problem{{Path: c.version.given, Rule: "version", Message: "the version " + err.Error()}}
	}
	return nil
}

// single gives the one value of a path: the key of a message must be beyond doubt.
func single(s *path, doc *etree.Document, what string) (string, []weir.Problem) {
	problem := func(rule, message string) (string, []weir.Problem) {
		return "", []weir.Problem{{Path: s.given, Rule: rule, Message: "the " + what + " " + message}}
	}
	found := s.values(doc)
	different := map[string]bool{}
	for _, v := range found {
		different[v] = true
	}
	switch {
	case len(different) > 1:
		return problem("one", fmt.Sprintf("has %d different values and must have one", len(different)))
	case len(found) == 0 || found[0] == "":
		return problem("required", "is missing")
	case len(found[0]) > maxKey:
		return problem(fmt.Sprintf("max=%d", maxKey), fmt.Sprintf("has %d bytes and may have %d", len(found[0]), maxKey))
	case strings.ContainsFunc(found[0], unicode.IsControl):
		return problem("printable", "has control characters")
	}
	return found[0], nil
}
