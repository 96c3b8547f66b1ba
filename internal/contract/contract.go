// Package contract decides what is accepted: XML in, a weir.Message out, or every problem
// found. A body goes through three gates, each bounded: its encoding is settled and it is
// turned into UTF-8 (charset.go); it is checked as a stream, so that depth, size and
// doctypes are refused before a tree exists (scan.go); then its contract's rules are
// applied to the tree (rules.go). The message keeps the body as it came.
package contract

import (
	"context"
	"fmt"
	"mime"
	"regexp"
	"strings"
	"unicode"

	"github.com/beevik/etree"
	"golang.org/x/sync/semaphore"

	"weir/internal/weir"
)

// Definition is one contract as weir.yaml has it.
type Definition struct {
	Name      string  `yaml:"name"`
	Root      string  `yaml:"root"`      // root element: local name, or {uri}local
	Key       string  `yaml:"key"`       // path to the ordering key; empty = one key for all such contracts
	Version   string  `yaml:"version"`   // path to the version; empty = none
	OnFailure string  `yaml:"onFailure"` // block | skip; empty = block with a key, skip without
	Success   string  `yaml:"success"`   // regular expression a 2xx answer must match; empty = any 2xx
	Fields    []Field `yaml:"fields"`
}

// Field is a rule for the values at a path.
type Field struct {
	Path string `yaml:"path"` // etree path; a last step /@name selects an attribute
	Rule string `yaml:"rule"` // validator/v10 tag, applied to each value; required = at least one
}

// Limits bound what parsing one body, and all at once, may cost.
type Limits struct {
	MaxBody       int64 // bytes
	Depth         int   // nested elements; 0 = 256
	Elements      int   // in all; 0 = 100,000
	ParallelBytes int64 // of bodies being parsed at once; 0 = 32 MiB
}

// maxKey is the size of an ordering key in bytes: it goes into a header and a row.
const maxKey = 1 << 10

// Set is the contracts in force. Safe for concurrent use.
type Set struct {
	contracts []*compiled
	limits    Limits
	parsing   *semaphore.Weighted
}

// New compiles the definitions. The error names every problem, one a line.
func New(defs []Definition, limits Limits) (*Set, error) {
	if limits.Depth == 0 {
		limits.Depth = 256
	}
	if limits.Elements == 0 {
		limits.Elements = 100_000
	}
	if limits.ParallelBytes == 0 {
		limits.ParallelBytes = 32 << 20
	}
	s := &Set{limits: limits, parsing: semaphore.NewWeighted(max(limits.ParallelBytes, limits.MaxBody))}
	var problems []string
	names, roots := map[string]bool{}, map[string]bool{}
	for i, def := range defs {
		c, found := compile(def)
		if names[def.Name] {
			found = append(found, "the name is taken by an earlier contract")
		}
		if roots[def.Root] {
			found = append(found, fmt.Sprintf("root %q is taken by an earlier contract", def.Root))
		}
		names[def.Name], roots[def.Root] = true, true
		for _, p := range found {
			problems = append(problems, fmt.Sprintf("contracts[%d] %q: %s", i, def.Name, p))
		}
		s.contracts = append(s.contracts, c)
	}
	if len(defs) == 0 {
		problems = append(problems, "contracts: at least one is needed, else nothing is accepted")
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("%s", strings.Join(problems, "\n"))
	}
	return s, nil
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

// Accept reads a body. The error is a *weir.Error: Malformed, TooLarge, Unsupported,
// Invalid with all problems found, or Unavailable when ctx ends while it waits its turn.
func (s *Set) Accept(ctx context.Context, contentType string, body []byte) (weir.Message, error) {
	if len(body) == 0 {
		return weir.Message{}, malformed("the body is empty; note that the Functions host drops the body of an upload without Content-Length (chunked)")
	}
	if int64(len(body)) > s.limits.MaxBody {
		return weir.Message{}, &weir.Error{Kind: weir.TooLarge, Op: "accept", Message: fmt.Sprintf("the body has %d bytes and may have %d", len(body), s.limits.MaxBody)}
	}
	charset, err := mediaType(contentType)
	if err != nil {
		return weir.Message{}, err
	}
	if err := s.parsing.Acquire(ctx, int64(len(body))); err != nil {
		return weir.Message{}, &weir.Error{Kind: weir.Unavailable, Op: "accept", Message: "too much is being read at the moment", Err: err}
	}
	defer s.parsing.Release(int64(len(body)))
	text, err := decode(body, charset)
	if err != nil {
		return weir.Message{}, err
	}
	root, err := scan(text, s.limits.Depth, s.limits.Elements)
	if err != nil {
		return weir.Message{}, err
	}
	c := s.match(root)
	if c == nil {
		return weir.Message{}, invalid(weir.Problem{Path: "/", Rule: "contract", Message: fmt.Sprintf("no contract accepts the root element %s", root)})
	}
	doc := etree.NewDocument()
	if err := doc.ReadFromString(text); err != nil {
		return weir.Message{}, malformed("the body is not well-formed XML")
	}
	m, problems := c.apply(doc)
	if len(problems) > 0 {
		return weir.Message{}, invalid(problems...)
	}
	m.ContentType, m.Body, m.Size = contentType, body, len(body)
	if contentType == "" {
		m.ContentType = "application/xml"
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
		if c.def.Root == root.local && byLocal == nil {
			byLocal = c
		}
	}
	return byLocal
}

// mediaType checks that a Content-Type is XML and gives its charset, in lower case. A
// missing one is taken for application/xml, as RFC 9110 lets a recipient do.
func mediaType(contentType string) (charset string, err error) {
	if contentType == "" {
		return "", nil
	}
	if strings.ContainsFunc(contentType, unicode.IsControl) {
		return "", unsupported("the Content-Type has control characters")
	}
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return "", unsupported("the Content-Type cannot be read")
	}
	if kind != "application/xml" && kind != "text/xml" && !strings.HasSuffix(kind, "+xml") {
		return "", unsupported(fmt.Sprintf("the Content-Type is %s and must be XML: application/xml, text/xml or one that ends in +xml", kind))
	}
	return strings.ToLower(params["charset"]), nil
}

func malformed(message string, problems ...weir.Problem) error {
	return &weir.Error{Kind: weir.Malformed, Op: "accept", Message: message, Problems: problems}
}

func unsupported(message string) error {
	return &weir.Error{Kind: weir.Unsupported, Op: "accept", Message: message}
}

func invalid(problems ...weir.Problem) error {
	message := "the message breaks a rule of its contract"
	if len(problems) > 1 {
		message = fmt.Sprintf("the message breaks %d rules of its contract", len(problems))
	}
	return &weir.Error{Kind: weir.Invalid, Op: "accept", Message: message, Problems: problems}
}
