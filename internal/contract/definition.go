package contract

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/beevik/etree"

	"weir/internal/clock"
	"weir/internal/weir"
)

// Definition is one contract in weir.yaml.
type Definition struct {
	Name string `yaml:"name"`
	// Formerly has names that the contract had before. Messages stored with such a name are
	// messages of this contract.
	Formerly []string `yaml:"formerly"`
	// of a document type declaration: pass | drop | refuse; empty = pass
	Doctype string `yaml:"doctype"`
	// root's local name (any namespace), or {uri}local; {}local = no namespace
	Root string `yaml:"root"`
	// Match is a condition over values and headers of a message. Of the contracts with a root, the
	// first whose condition holds takes the message. Empty = it always holds.
	Match     string   `yaml:"match"`
	Key       KeyPaths `yaml:"key"`       // paths to the parts of the ordering key
	Version   string   `yaml:"version"`   // path to the version; empty = none
	DeliverAt string   `yaml:"deliverAt"` // path to the due time; empty = none
	// TimeZone is the zone of versions and due times without an offset, such as Europe/Berlin;
	// empty = they are refused.
	TimeZone string `yaml:"timezone"`
	// path of the parts, for a batch that gives no path itself; empty = none
	Split string `yaml:"split"`
	// If Supersede is true, Weir writes only the newest of several waiting versions of a key.
	// Supersede needs Key and Version.
	Supersede bool `yaml:"supersede"`
	// VersionMax is the highest version that the contract accepts: a number, numbers with dots, or
	// a time. If VersionMax is a duration such as +24h, each version must be a time, at most this
	// duration after the current time. Empty = any version. VersionMax needs Supersede.
	VersionMax string `yaml:"versionMax"`
	// block | skip; empty = block if Key is set, otherwise skip
	OnFailure string `yaml:"onFailure"`
	// regular expression for the body of a 2xx answer; empty = any body
	Success string `yaml:"success"`
	// Answers maps statuses of the CMS's answers (300 to 599) to outcomes: rejected, retry or
	// unavailable.
	Answers map[int]string `yaml:"answers"`
	Fields  []Field        `yaml:"fields"`
	Show    []ShownField   `yaml:"show"`   // columns of lists
	Redact  []string       `yaml:"redact"` // paths of the values to redact
}

// Field is a rule for the values at a path.
type Field struct {
	Path string `yaml:"path"` // etree path; a last step /@name selects an attribute
	// validator/v10 tag for each value; "required" = at least one value is not empty
	Rule string `yaml:"rule"`
	// Type is the type of the values: number, text, or empty = text. Rules such as min, max and gt
	// compare a number by its value, and a text by its number of characters.
	Type string `yaml:"type"`
}

// maxKey limits the bytes of an ordering key, a version and a due time, because rows and headers
// contain these values.
const maxKey = 1 << 10

// maxName limits the bytes of a contract's name, because rows and headers contain the name.
const maxName = 128

// maxProblems limits the problems that are listed for one message. If a message has more problems,
// one additional entry has the number of the remaining problems.
const maxProblems = 100

type compiledContract struct {
	def     Definition
	match   *match  // nil = takes each message with the root
	key     []*path // paths of the key's parts; empty = all messages of the contract have one key
	version *path
	limit   versionLimit
	due     *path
	zone    *time.Location // nil = a time without an offset is refused
	skip    bool           // a failed message does not block its key
	success *regexp.Regexp
	fields  []rule
	shown   []compiledField
	secret  []*path // paths of the values that are redacted
	needs   needs   // the parts of a document that the paths need
	all     []*path // the paths above
}

// listMissedRoots returns a problem for each path that cannot match the contract's root element
// (see path.checkRoot).
func (c *compiledContract) listMissedRoots() (problems []*weir.SettingProblem) {
	check := func(name string, p *path) {
		if err := p.checkRoot(c.def.Root); err != nil {
			problems = append(problems, weir.NewSettingProblem(name, "%v", err))
		}
	}

	if c.match != nil {
		for _, p := range c.match.paths {
			check("match", p)
		}
	}

	for _, p := range c.key {
		check(c.def.Key.settingOf(slices.Index(c.def.Key, p.given)), p)
	}

	check("version", c.version)
	check("deliverAt", c.due)
	for _, f := range c.fields {
		check("fields", f.path)
	}

	for _, f := range c.shown {
		check("show", f.path)
	}

	for _, p := range c.secret {
		check("redact", p)
	}

	return problems
}

// listWrongFormerNames returns the problems of the former names of the contract defs[i]. Each
// stored name must lead to one contract.
func listWrongFormerNames(defs []Definition, i int) (problems []*weir.SettingProblem) {
	for j, name := range defs[i].Formerly {
		addProblem := func(format string, args ...any) {
			problems = append(problems,
				weir.NewSettingProblem(fmt.Sprintf("formerly[%d]", j), format, args...))
		}
		for k, other := range defs {
			switch {
			case name == "":
				addProblem("is empty")
			case k == i && other.Name == name:
				addProblem("is the name of this contract")
			case other.Name == name:
				addProblem("there is a contract %q", name)
			case k < i && slices.Contains(other.Formerly, name):
				addProblem("contract %q was formerly %q, too", other.Name, name)

			default:
				continue
			}

			break
		}

		if slices.Contains(defs[i].Formerly[:j], name) {
			addProblem("%q is listed twice", name)
		}
	}

	return problems
}

var rootName = regexp.MustCompile(`^(?:\{[^{}\s]*\})?[\pL_][\pL\pM\pN._-]*$`)

// compileDefinition returns the contract, and all problems of its definition.
func compileDefinition(def Definition) (*compiledContract, []*weir.SettingProblem) {
	c := &compiledContract{def: def}
	var problems []*weir.SettingProblem
	addProblem := func(path, format string, args ...any) {
		problems = append(problems, weir.NewSettingProblem(path, format, args...))
	}

	switch {
	case def.Name == "":
		addProblem("name", "is missing")
	case len(def.Name) > maxName || strings.ContainsFunc(def.Name, unicode.IsControl):
		addProblem("name", "name may have %d bytes and no control characters", maxName)
	}

	if !rootName.MatchString(def.Root) {
		addProblem("root", "root %q must be a local name or {uri}local", def.Root)
	}

	var err error
	var wrong []*weir.SettingProblem
	if c.match, err = compileMatch(def.Match); err != nil {
		addProblem("match", "%v", err)
	}

	c.key, wrong = compileKeyPaths(def.Key)
	problems = append(problems, wrong...)
	if c.version, err = compilePath(def.Version); err != nil {
		addProblem("version", "%v", err)
	}

	if c.due, err = compilePath(def.DeliverAt); err != nil {
		addProblem("deliverAt", "%v", err)
	}

	if def.Split != "" {
		if _, err := CompileSplitPath(def.Split); err != nil {
			addProblem("split", "%v", err)
		}
	}

	if problem := checkDoctype(def.Doctype); problem != "" {
		addProblem("doctype", "%s", problem)
	}

	if def.Supersede && (def.Version == "" || len(def.Key) == 0) {
		addProblem("supersede", "needs a key and a version to compare")
	}

	if c.zone, err = loadZone(def); err != nil {
		addProblem("timezone", "%v", err)
	}

	if c.limit, err = parseVersionLimit(def, c.zone); err != nil {
		addProblem("versionMax", "%v", err)
	}

	switch def.OnFailure {
	case "":
		c.skip = len(def.Key) == 0
	case "block", "skip":
		c.skip = def.OnFailure == "skip"
	default:
		addProblem("onFailure", "is %q and must be block or skip", def.OnFailure)
	}

	if def.Success != "" {
		if c.success, err = regexp.Compile(def.Success); err != nil {
			addProblem("success", "%v", err)
		}
	}

	for _, status := range slices.Sorted(maps.Keys(def.Answers)) {
		if p := checkAnswer(status, def.Answers[status]); p != "" {
			addProblem("answers", "%s", p)
		}
	}

	for i, f := range def.Fields {
		r, err := compileRule(f)
		if err != nil {
			addProblem(fmt.Sprintf("fields[%d]", i), "%v", err)
			continue
		}
		c.fields = append(c.fields, r)
	}

	c.shown, wrong = compileShownFields(def.Show)
	problems = append(problems, wrong...)
	c.secret, wrong = compileRedactedPaths(def)
	problems = append(problems, wrong...)
	if rootName.MatchString(def.Root) {
		problems = append(problems, c.listMissedRoots()...)
	}

	c.collectNeeds()

	return c, problems
}

func (c *compiledContract) collectNeeds() {
	paths := slices.Concat(c.key, []*path{c.version, c.due}, c.secret)
	for _, f := range c.fields {
		paths = append(paths, f.path)
	}

	for _, f := range c.shown {
		paths = append(paths, f.path)
	}

	if c.match != nil {
		for _, p := range c.match.paths {
			c.needs.merge(p.needs)
		}
	}

	for _, p := range paths {
		if p != nil {
			c.needs.merge(p.needs)
			c.all = append(c.all, p)
		}
	}
}

// loadZone returns the zone of a contract's times, or nil.
func loadZone(def Definition) (*time.Location, error) {
	switch {
	case def.TimeZone == "":
		return nil, nil
	case def.DeliverAt == "" && !def.Supersede:
		return nil, errors.New("it needs deliverAt or supersede: true; other times are not read")
	}

	zone, err := clock.LoadZone(def.TimeZone)
	if err != nil {
		return nil, fmt.Errorf("%q is no zone of the tz database, such as Europe/Berlin",
			def.TimeZone)
	}

	return zone, nil
}

// checkAnswer returns the problem of one entry of Definition.Answers, or an empty string.
func checkAnswer(status int, means string) string {
	switch {
	case status < 300 || status > 599:
		return fmt.Sprintf("%d is not a status from 300 to 599; for 2xx answers use success",
			status)
	case !slices.Contains([]weir.Outcome{weir.OutcomeRejected, weir.OutcomeRetry,
		weir.OutcomeUnavailable}, weir.Outcome(means)):
		return fmt.Sprintf("%d is %q and must be rejected, retry or unavailable", status, means)
	}

	return ""
}

// buildMessage returns the message, and the problems of the document. If a redacted path selects
// the key, version or due time, buildMessage reports only this mistake.
func (c *compiledContract) buildMessage(doc *etree.Document, now time.Time,
	places *places) (weir.Message, []weir.Problem) {
	for _, p := range c.all {
		if problems := p.checkNested(doc); len(problems) > 0 {
			places.setPathPlace(problems, p, doc)
			return weir.Message{Contract: c.def.Name}, problems
		}
	}

	var redacted redactedPlaces
	var problems []weir.Problem
	if len(c.secret) > 0 {
		redacted = c.findRedactedPlaces(doc)
		if exposed := c.findExposed(doc, redacted); len(exposed) > 0 {
			return weir.Message{Contract: c.def.Name}, exposed
		}
		problems = c.findMarks(doc, places)
	}

	m := weir.Message{Contract: c.def.Name, Supersede: c.def.Supersede, Skip: c.skip,
		Shown: c.readShownFields(doc, redacted)}
	key, wrong := c.readKey(doc, places)
	m.Key, problems = key, append(problems, wrong...)
	if c.version != nil {
		version, p := readSingleValue(c.version, doc, "version")
		if len(p) == 0 && c.def.Supersede {
			version, p = c.checkVersion(version, now)
		}

		places.setPathPlace(p, c.version, doc)
		problems = append(problems, p...)
		m.Version = version
	}

	if c.due != nil && len(c.due.selectValues(doc)) > 0 {
		due, p := c.readDueTime(doc)
		places.setPathPlace(p, c.due, doc)
		problems = append(problems, p...)
		m.DueAt = due
	}

	for _, r := range c.fields {
		problems = append(problems, r.checkDocument(doc, places, redacted)...)
	}

	return m, problems
}

// readDueTime returns the due time. An empty value means that the message has no due time.
func (c *compiledContract) readDueTime(doc *etree.Document) (time.Time, []weir.Problem) {
	if values := c.due.selectValues(doc); len(values) == 1 && values[0] == "" {
		return time.Time{}, nil
	}

	text, problems := readSingleValue(c.due, doc, "due time")
	if len(problems) > 0 {
		return time.Time{}, problems
	}

	due, err := weir.ParseMomentIn(text, c.zone)
	if err != nil {
		return time.Time{}, []weir.Problem{{Path: c.due.given, Rule: "deliverAt",
			Message: "the due time " + err.Error()}}
	}

	return due, nil
}

// checkVersion returns the version as it is stored. It also returns the problem of a version that
// is not comparable, or that the contract's limit refuses. A time without an offset gets its
// offset, so that later versions are compared with the same instant, also if the contract's zone
// changes.
func (c *compiledContract) checkVersion(version string, now time.Time) (string, []weir.Problem) {
	v, err := weir.ParseVersionIn(version, c.zone)
	if err != nil {
		return version, []weir.Problem{{Path: c.version.given, Rule: "version",
			Message: "the version " + err.Error()}}
	}

	if problem := c.limit.checkVersion(v, now); problem != "" {
		return version, []weir.Problem{{Path: c.version.given,
			Rule: "versionMax=" + c.def.VersionMax, Message: "the version " + problem}}
	}

	if _, err := weir.ParseVersion(version); err != nil {
		return v.String(), nil
	}

	return version, nil
}

// isInvisible reports whether a character changes the direction of text, or separates lines. An
// operator would misread a key with such a character.
func isInvisible(r rune) bool { return unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp) }

// readSingleValue returns the value at a path. If the path selects different values,
// readSingleValue refuses the document instead of choosing a value: a wrong key would break the
// order of messages.
func readSingleValue(s *path, doc *etree.Document, what string) (string, []weir.Problem) {
	problem := func(rule, message string) (string, []weir.Problem) {
		return "", []weir.Problem{{Path: s.given, Rule: rule,
			Message: "the " + what + " " + message}}
	}

	var found []string
	different := map[string]bool{}
	for _, v := range s.selectPlacedValues(doc) {
		// A text with markup in it is no name of an item, and no version. Two keys could become
		// one.
		if inner := firstElement(v.element); v.attribute == "" && inner != nil {
			return problem("text", fmt.Sprintf("has the element <%s> in it, and must be plain text",
				truncate(inner.FullTag())))
		}

		found, different[v.text] = append(found, v.text), true
	}

	switch {
	case len(different) > 1:
		return problem("one", fmt.Sprintf("has %d different values and must have one",
			len(different)))
	case len(found) == 0 || found[0] == "":
		return problem("required", "is missing")
	case len(found[0]) > maxKey:
		return problem(fmt.Sprintf("max=%d", maxKey),
			fmt.Sprintf("has %d bytes and may have %d", len(found[0]), maxKey))
	case strings.ContainsFunc(found[0], unicode.IsControl):
		return problem("printable", "has control characters")
	case strings.ContainsFunc(found[0], isInvisible):
		return problem("printable",
			"has characters that change the direction of text, or separate lines")
	case strings.TrimSpace(found[0]) != found[0]:
		return problem("printable", "begins or ends with a space that is no white space of XML")
	}

	return found[0], nil
}
