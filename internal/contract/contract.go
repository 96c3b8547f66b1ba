// Package contract turns an XML body into a weir.Message, or reports the problems of the body. A
// body passes three steps, each with bounded cost:
//
//  1. Decoding: the package determines the body's encoding, and converts the text to UTF-8
//     (charset.go).
//  2. Parsing: the package checks the text as a stream of tokens. The tokens that the contract
//     needs become a tree. An internal subset of a document type, too many elements or too deep
//     nesting ends this step at once, so the tree stays small (scan.go, wellformed.go).
//  3. Rules: the package applies the rules of the contract to the tree (definition.go, path.go,
//     rules.go).
//
// The field Body of the message has the bytes of the posted body, unchanged, except if the contract
// drops the document type declaration (doctype.go).
//
// The standards leave some choices open. The package makes these choices:
//
//   - A missing Content-Type means application/xml.
//   - A body in an unknown encoding is Unsupported. A body is Malformed if its byte order mark, its
//     charset parameter and its XML declaration name different encodings.
//   - UTF-16 needs a byte order mark, or a charset parameter with the order of the bytes.
//   - A path selects attributes, or elements. The value of an element is its text with the text of
//     all elements inside: the string-value of XPath 1.0. All values are without surrounding space.
//   - In a path, a step without a prefix matches elements with any prefix. But if the step selects
//     an attribute, it matches only attributes without a prefix.
package contract

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sync/semaphore"

	"weir/internal/weir"
)

// Limits bound the cost of parsing one body, and of all bodies that are parsed at the same time.
type Limits struct {
	MaxBody    int64 // bytes of one body; must be above 0
	Depth      int   // depth of nested elements; 0 = 256
	Elements   int   // elements in the document; 0 = 100,000
	Attributes int   // attributes of one element; 0 = 100,000
	// Memory limits the memory in bytes for all bodies that are parsed at the same time; 0 = 64
	// MiB. A body that needs more than Memory is parsed alone.
	Memory int64
	Now    func() time.Time // the clock, for contracts that limit versions; nil = time.Now

	// true = the text of an XML error does not quote the document; see describeProblem
	hidesInput bool
}

// Set is a set of compiled contracts. It is safe for concurrent use.
type Set struct {
	contracts []*compiledContract
	limits    Limits
	memory    *semaphore.Weighted
}

// New compiles the definitions. The error has one line for each problem.
func New(defs []Definition, limits Limits) (*Set, error) {
	s := &Set{limits: limits.orDefaults()}
	s.memory = semaphore.NewWeighted(s.limits.Memory)
	var problems []error
	if limits.MaxBody <= 0 || min(limits.Depth, limits.Elements, limits.Attributes) < 0 ||
		limits.Memory < 0 {
		problems = append(problems,
			errors.New("limits: none may be negative, and the largest body must be above 0"))
	}

	if len(defs) == 0 {
		problems = append(problems,
			weir.NewSettingProblem("contracts", "at least one is needed, else nothing is accepted"))
	}

	// roots has those of the contracts without match
	names, roots := map[string]bool{}, map[string]bool{}
	for i, def := range defs {
		c, found := compileDefinition(def)
		if def.Name != "" && names[def.Name] {
			found = append(found,
				&weir.SettingProblem{Path: "name", Message: "the name is taken by an earlier contract"})
		}

		if def.Root != "" && roots[def.Root] {
			found = append(found,
				weir.NewSettingProblem("root", "root %q is taken by an earlier contract; let that contract have a "+
					"match, or stand behind this one", def.Root))
		}

		names[def.Name] = true
		roots[def.Root] = roots[def.Root] || c.match == nil
		found = append(found, listWrongFormerNames(defs, i)...)
		for _, p := range found {
			path := fmt.Sprintf("contracts[%d]", i)
			problems = append(problems, &weir.SettingProblem{Path: path + "." + p.Path,
				Message: fmt.Sprintf("%s %q: %s", path, def.Name, p.Message)})
		}

		s.contracts = append(s.contracts, c)
		s.limits.hidesInput = s.limits.hidesInput || len(c.secret) > 0
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

	if l.Now == nil {
		l.Now = time.Now
	}

	return l
}

// FormerNames returns the former names of each contract, by its name.
func (s *Set) FormerNames() map[string][]string {
	names := map[string][]string{}
	for _, c := range s.contracts {
		names[c.def.Name] = c.def.Formerly
	}
	return names
}

// SuccessRules returns, by contract name, the regular expression that the body of a 2xx answer must
// match. The map leaves out contracts without such an expression.
func (s *Set) SuccessRules() map[string]*regexp.Regexp {
	rules := map[string]*regexp.Regexp{}
	for _, c := range s.contracts {
		if c.success != nil {
			rules[c.def.Name] = c.success
		}
	}
	return rules
}

// Answers returns, by contract name and HTTP status, the outcomes that the contracts define for the
// CMS's answers.
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

// Accept parses a body. Message.Body is the given slice, so the caller must not change the slice
// any more; if the contract drops a document type declaration, Message.Body is a new slice. The
// error is a *weir.Error of the kind Malformed, TooLarge, Unsupported or Invalid. An Invalid error
// lists at most 100 problems, and the number of the remaining problems. If ctx ends while Accept
// waits for memory, the kind is Unavailable.
func (s *Set) Accept(ctx context.Context, contentType string, body []byte) (weir.Message, error) {
	m, err := s.acceptBody(ctx, contentType, body, nil)
	if err == nil {
		return m, nil
	}

	if weir.KindOf(err) == weir.Invalid { // only refused bodies pay for the lines of their problems
		places := &places{left: maxProblems}
		if _, located := s.acceptBody(ctx, contentType, body, places); located != nil &&
			weir.KindOf(located) == weir.Invalid {
			err = located
		}
	}

	return weir.Message{}, err
}

// acceptBody does the work of Accept. If a body breaks rules of its contract, acceptBody returns an
// error, and also a message with the values that acceptBody could read. If places is not nil, the
// problems have lines and columns.
func (s *Set) acceptBody(ctx context.Context, contentType string, body []byte,
	places *places) (weir.Message, error) {
	if len(body) == 0 {
		return weir.Message{}, malformedError("the body is empty")
	}

	if size := int64(len(body)); size > s.limits.MaxBody {
		return weir.Message{}, newError(weir.TooLarge,
			fmt.Sprintf("the body has %d bytes and may have %d (maxBody in weir.yaml)", size,
				s.limits.MaxBody))
	}

	if contentType == "" {
		contentType = "application/xml"
	}

	charset, err := parseContentType(contentType)
	if err != nil {
		return weir.Message{}, err
	}

	weight := min(estimateMemory(body)+places.estimateMemory(body), s.limits.Memory)
	if err := s.memory.Acquire(ctx, weight); err != nil {
		return weir.Message{}, &weir.Error{Kind: weir.Unavailable, Op: "accept",
			Message: "too much is being read at the moment", RetryAfter: time.Second, Err: err}
	}
	defer s.memory.Release(weight)
	m, err := s.parseBody(ctx, charset, body, places)
	m.ContentType, m.Size = contentType, len(m.Body)

	return m, err
}

// parseBody does the three steps in the package comment. The message has the body that the CMS
// gets.
func (s *Set) parseBody(ctx context.Context, charset string, body []byte,
	places *places) (weir.Message, error) {
	unread := weir.Message{Body: body}
	text, encoding, err := decodeKnown(body, charset)
	if err != nil {
		return unread, err
	}

	var candidates []*compiledContract
	one, err := scanWithPlaces(text, s.limits, places, func(root qualifiedName) needs {
		candidates = s.findCandidates(root)
		return needsOf(candidates)
	})
	if err != nil {
		return unread, err
	}

	c, missed := chooseContract(ctx, candidates, one)
	if c == nil {
		for i := range missed {
			places.setPlace(&missed[i], one.doc.Root())
		}
		return unread, invalidError(missed...)
	}

	m, problems := c.buildMessage(one.doc, s.limits.Now(), places)
	kept, refused := c.applyDoctype(body, one, encoding, places)
	m.Body, problems = kept, append(refused, problems...)
	if len(problems) > 0 {
		refusal := invalidError(problems...)
		refusal.Contract = c.def.Name
		return m, refusal
	}

	return m, nil
}

// SplitPaths returns the paths by which the contracts divide a document into the parts of a batch
// (Definition.Split). It returns each path once.
func (s *Set) SplitPaths() (paths []string) {
	for _, c := range s.contracts {
		if c.def.Split != "" && !slices.Contains(paths, c.def.Split) {
			paths = append(paths, c.def.Split)
		}
	}
	return paths
}

// IsXML reports whether a Content-Type is a type of XML. For an empty Content-Type IsXML returns
// false, although Accept treats an empty Content-Type as application/xml.
func IsXML(contentType string) bool {
	_, err := parseContentType(contentType)
	return err == nil
}

// maxContentType limits the bytes of a Content-Type, because rows and requests to the CMS contain
// the Content-Type.
const maxContentType = 256

// extendedParameter matches an extended parameter (RFC 2231). Such a parameter has a * in its name,
// for example charset*0.
var extendedParameter = regexp.MustCompile(`;[^=;"]*\*[^=;"]*=`)

// parseContentType checks that a Content-Type is a type of XML, and returns the charset parameter
// in lower case.
func parseContentType(contentType string) (charset string, err error) {
	if len(contentType) > maxContentType ||
		strings.ContainsFunc(contentType,
			func(r rune) bool { return r > unicode.MaxASCII || unicode.IsControl(r) }) {
		return "", unsupportedError(
			fmt.Sprintf("the Content-Type may have %d characters, of printable ASCII",
				maxContentType))
	}

	// mime also reads extended parameters. A CMS that ignores extended parameters would decode the
	// body with another charset than Weir.
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil || extendedParameter.MatchString(contentType) {
		return "", unsupportedError("the Content-Type cannot be read")
	}

	major, minor, _ := strings.Cut(kind, "/")
	isXML := kind == "application/xml" || kind == "text/xml" ||
		(strings.HasSuffix(minor, "+xml") && minor != "+xml" && major != "")
	if !isXML {
		return "", unsupportedError(fmt.Sprintf(
			"the Content-Type is %s and must be XML: application/xml, text/xml or one that ends in +xml", kind))
	}

	return strings.ToLower(params["charset"]), nil
}

func newError(kind weir.Kind, message string, problems ...weir.Problem) *weir.Error {
	return &weir.Error{Kind: kind, Op: "accept", Message: message, Problems: problems}
}

func malformedError(message string, problems ...weir.Problem) error {
	return newError(weir.Malformed, message, problems...)
}

func unsupportedError(message string) error { return newError(weir.Unsupported, message) }

func invalidError(problems ...weir.Problem) *weir.Error {
	message := "the message breaks a rule of its contract"
	if len(problems) > 1 {
		message = fmt.Sprintf("the message breaks %d rules of its contract", len(problems))
	}

	if more := len(problems) - maxProblems; more > 0 {
		problems = append(problems[:maxProblems:maxProblems],
			weir.Problem{Message: fmt.Sprintf("and %d more", more)})
	}

	return newError(weir.Invalid, message, problems...)
}
