// Package contract decides what is accepted: XML in, a weir.Message out, or every problem
// found. A body goes through three gates, each bounded: its encoding is settled and it is
// turned into UTF-8 (charset.go); it is checked as a stream, so that depth, size and
// doctypes are refused before a tree exists (scan.go, wellformed.go); then its contract's
// rules are applied to the tree (definition.go, path.go, rules.go). The message keeps the
// body as it came.
//
// Where the standards leave a choice: a missing Content-Type is taken for application/xml;
// an encoding we do not know is Unsupported, two sources that name different ones are
// Malformed; UTF-16 needs a byte order mark; a value is an element's own text or an
// attribute, without the space around it; a path's step without prefix fits elements of
// any, an attribute without prefix only one without.
package contract

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"regexp"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sync/semaphore"

	"weir/internal/weir"
)

// Limits bound what parsing one body, and all at once, may cost.
type Limits struct {
	MaxBody    int64 // bytes
	Depth      int   // nested elements; 0 = 256
	Elements   int   // in all; 0 = 100,000
	Attributes int   // of one element; 0 = 100,000
	Memory     int64 // bytes that all bodies being parsed at once may take; a body that weighs more is parsed alone; 0 = 64 MiB
}

// Set is the contracts in force. Safe for concurrent use.
type Set struct {
	contracts []*compiled
	limits    Limits
	parsing   *semaphore.Weighted
}

// New compiles the definitions. The error names every problem, one a line.
func New(defs []Definition, limits Limits) (*Set, error) {
	s := &Set{limits: limits.orDefaults()}
	s.parsing = semaphore.NewWeighted(s.limits.Memory)
	var problems []error
	if limits.MaxBody <= 0 || min(limits.Depth, limits.Elements, limits.Attributes) < 0 || limits.Memory < 0 {
		problems = append(problems, errors.New("limits: none may be negative, and the largest body must be above 0"))
	}
	if len(defs) == 0 {
		problems = append(problems, errors.New("contracts: at least one is needed, else nothing is accepted"))
	}
	names, roots := map[string]bool{}, map[string]bool{}
	for i, def := range defs {
		c, found := compile(def)
		if def.Name != "" && names[def.Name] {
			found = append(found, "the name is taken by an earlier contract")
		}
		if def.Root != "" && roots[def.Root] {
			found = append(found, fmt.Sprintf("root %q is taken by an earlier contract", def.Root))
		}
		names[def.Name], roots[def.Root] = true, true
		for _, p := range found {
			problems = append(problems, fmt.Errorf("contracts[%d] %q: %s", i, def.Name, p))
		}
		s.contracts = append(s.contracts, c)
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return s, nil
}

func (l Limits) orDefaults() Limits {
	if l.Depth == 0 {
		l.Depth = 256
	}
	if l.Elements == 0 {
		l.Elements = 100_000
	}
	if l.Attributes == 0 {
		l.Attributes = 100_000
	}
	if l.Memory == 0 {
		l.Memory = 64 << 20
	}
	return l
}

// SuccessRules gives, by contract name, what the body of a successful answer must match.
func (s *Set) SuccessRules() map[string]*regexp.Regexp {
	rules := map[string]*regexp.Regexp{}
	for _, c := range s.contracts {
		if c.success != nil {
			rules[c.def.Name] = c.success
		}
	}
	return rules
}

// Answers returns, by contract name and status, the outcomes that contracts define for answers of
// the CMS.
func (s *Set) Answers() map[string]map[int]weir.Outcome {
	answers := map[string]map[int]weir.Outcome{}
	for _, c := range s.contracts {
		for status, means := range c.def.Answers {
			if answers[c.def.Name] == nil {
				answers[c.def.Name] = map[int]weir.Outcome{}
			}
			answers[c.def.Name][status] = weir.Outcome(means)
		}
	}
	return answers
}

// Accept reads a body, which the message then holds: it must not be changed any more. The
// error is a *weir.Error: Malformed, TooLarge, Unsupported, Invalid with all problems
// found, or Unavailable when ctx ends while it waits its turn.
func (s *Set) Accept(ctx context.Context, contentType string, body []byte) (weir.Message, error) {
	if len(body) == 0 {
		return weir.Message{}, malformed("the body is empty")
	}
	if size := int64(len(body)); size > s.limits.MaxBody {
		return weir.Message{}, refuse(weir.TooLarge, fmt.Sprintf("the body has %d bytes and may have %d", size, s.limits.MaxBody))
	}
	if contentType == "" {
		contentType = "application/xml"
	}
	charset, err := mediaType(contentType)
	if err != nil {
		return weir.Message{}, err
	}
	weight := min(weigh(body), s.limits.Memory)
	if err := s.parsing.Acquire(ctx, weight); err != nil {
		return weir.Message{}, &weir.Error{Kind: weir.Unavailable, Op: "accept", Message: "too much is being read at the moment", RetryAfter: time.Second, Err: err}
	}
	defer s.parsing.Release(weight)
	m, err := s.parse(charset, body)
	if err != nil {
		return weir.Message{}, err
	}
	m.ContentType, m.Body, m.Size = contentType, body, len(body)
	return m, nil
}

// parse takes the body through the three gates.
func (s *Set) parse(charset string, body []byte) (weir.Message, error) {
	text, err := decode(body, charset)
	if err != nil {
		return weir.Message{}, err
	}
	var c *compiled
	root, doc, err := scan(text, s.limits, func(root name) needs {
		if c = s.match(root); c == nil {
			return needs{}
		}
		return c.needs
	})
	if err != nil {
		return weir.Message{}, err
	}
	if c == nil {
		return weir.Message{}, invalid(weir.Problem{Path: "/", Rule: "contract", Message: fmt.Sprintf("no contract accepts the root element %s", short(root.String()))})
	}
	m, problems := c.apply(doc)
	if len(problems) > 0 {
		return weir.Message{}, invalid(problems...)
	}
	return m, nil
}

// match finds the contract of a root element; one that names the namespace goes first.
func (s *Set) match(root name) *compiled {
	var byLocal *compiled
	for _, c := range s.contracts {
		if c.def.Root == "{"+root.uri+"}"+root.local {
			return c
		}
		if c.def.Root == root.local {
			byLocal = c
		}
	}
	return byLocal
}

// maxContentType is the size of a Content-Type, which is kept in a row and sent on.
const maxContentType = 256

// mediaType checks that a Content-Type is XML and gives its charset, in lower case.
func mediaType(contentType string) (charset string, err error) {
	if len(contentType) > maxContentType || strings.ContainsFunc(contentType, func(r rune) bool { return r > unicode.MaxASCII || unicode.IsControl(r) }) {
		return "", unsupported(fmt.Sprintf("the Content-Type may have %d characters, of printable ASCII", maxContentType))
	}
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return "", unsupported("the Content-Type cannot be read")
	}
	major, minor, _ := strings.Cut(kind, "/")
	isXML := kind == "application/xml" || kind == "text/xml" || (strings.HasSuffix(minor, "+xml") && minor != "+xml" && major != "")
	if !isXML {
		return "", unsupported(fmt.Sprintf("the Content-Type is %s and must be XML: application/xml, text/xml or one that ends in +xml", kind))
	}
	return strings.ToLower(params["charset"]), nil
}

func refuse(kind weir.Kind, message string, problems ...weir.Problem) error {
	return &weir.Error{Kind: kind, Op: "accept", Message: message, Problems: problems}
}

func malformed(message string, problems ...weir.Problem) error {
	return refuse(weir.Malformed, message, problems...)
}

func unsupported(message string) error { return refuse(weir.Unsupported, message) }

func invalid(problems ...weir.Problem) error {
	message := "the message breaks a rule of its contract"
	if len(problems) > 1 {
		message = fmt.Sprintf("the message breaks %d rules of its contract", len(problems))
	}
	if more := len(problems) - maxProblems; more > 0 {
		problems = append(problems[:maxProblems:maxProblems], weir.Problem{Message: fmt.Sprintf("and %d more", more)})
	}
	return refuse(weir.Invalid, message, problems...)
}
