package steps

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"weir/internal/contract"
	"weir/internal/signin"
)

// Selections returns the values of a message that the steps of a contract read; nil if the contract
// has no steps.
func (s *Sender) Selections(name string) []contract.Selection {
	if ch := s.chains[name]; ch != nil {
		return slices.Clone(ch.selections)
	}
	return nil
}

// chain has the compiled steps of a contract.
type chain struct {
	isSingle   bool              // the chain of the contracts without steps; see newSingle
	keyPaths   contract.KeyPaths // the parts of the ordering key, in the message
	steps      []*step
	selections []contract.Selection // the values of the message that expressions read
	extractor  *contract.Extractor
	remembering
}

func (c *chain) addSelection(s contract.Selection) {
	if !slices.Contains(c.selections, s) {
		c.selections = append(c.selections, s)
	}
}

// step is one request of a chain or of a sign-in.
type step struct {
	name      string
	label     string // begins the reasons of the step: its name with a colon
	method    string
	isSafe    bool // its request changes nothing in the CMS
	isGraphQL bool
	query     string // of GraphQL
	address   *address
	accept    string // the header Accept, unless the settings have another one
	headers   []header
	body      body
	when      *expression // nil = the step is always sent
	expect    []int       // expected statuses; empty = 2xx
	rules     []rule      // the step's own rules, then the rules for all steps
	success   *expression // condition that an expected answer must also meet; nil = none
	// the request is repeated until this condition holds; nil = no repetition
	until   *expression
	every   time.Duration // pause between two requests of a step that has until
	forTime time.Duration // time limit for all requests of a step that has until
	// name of another header with a delay, beside Retry-After; empty = none
	retryAfter string
	needs      needs     // the parts of the step's answer that expressions read
	remember   *template // the item's id, read from the answer; nil = the step remembers no id
	say        *template // the reason if this step of a sign-in fails; nil = a default reason

	addressesRemembered bool          // the address reads the remembered id
	expressions         []*expression // all expressions of the step's settings and rules
	requested           []*expression // those of the address and the body of its request
}

// header is a header of a step's requests.
type header struct {
	name  string
	value *template
}

var (
	methods = []string{"get", "head", "post", "put", "patch", "delete"}
	// otherKeys are the settings of a step that define neither its request nor its body.
	otherKeys = []string{"name", "when", "headers", "expect", "on", "success", "until", "every",
		"for", "retryAfter", "reads", "remember", "say", "use"}
	stepName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,39}$`)
	// ownHeaders are headers that a step must not set, because Weir or net/http sets them.
	ownHeaders = []string{"Host", "Content-Length", "Transfer-Encoding", "Trailer",
		"Idempotency-Key", "Connection"}
	// reservedName has the keywords of the expression language. They cannot be names of steps.
	reservedName = []string{
		"in",
		"not",
		"and",
		"or",
		"true",
		"false",
		"nil",
		"let",
		"if",
		"else",
		"matches",
		"contains",
		"startsWith",
		"endsWith",
	}
)

const (
	acceptedTypes = "application/json, application/xml;q=0.9, */*;q=0.8"
	defaultEvery  = 2 * time.Second
	defaultFor    = 30 * time.Second
)

// compiler compiles the steps of one contract, or of a sign-in.
type compiler struct {
	file       *File
	chain      *chain // nil = the steps of a sign-in
	base       *url.URL
	common     Source // the setting "delivery.on": rules for the answers of all steps
	retryAfter string // name of another header with a delay, beside Retry-After; empty = none
	timeout    time.Duration
	lookUps    *lookUps // nil = the steps of a sign-in
	// canSignInAnew is true if another sign-in can return a different credential.
	canSignInAnew bool
}

// compileSteps compiles a list of steps. It leaves out each step for which compileStep returns nil.
func (c *compiler) compileSteps(n ast.Node, path string) []*step {
	f := c.file
	items, ok := f.readList(n)
	if !ok || len(items) == 0 {
		f.addMistake(placeOf(n, path),
			"it must be a list of steps, such as - get: /items/{{ key }}")
		return nil
	}

	sources := c.listSteps(items, path)
	names := c.readNames(sources)
	var steps []*step
	for i, source := range sources {
		s := &scope{chain: c.chain, earlier: steps, later: names[i:]}
		if st := c.compileStep(source.node, source.path, names[i], s); st != nil {
			c.checkLookUp(source, st)
			steps = append(steps, st)
		}
	}

	c.checkRemembering()

	return steps
}

// readNames returns the names of the steps, and records a mistake for each invalid name. A step
// without the setting "name" has the name of its look-up, or gets its name from its position:
// step1, step2 and so on.
func (c *compiler) readNames(sources []stepSource) []string {
	f := c.file
	taken := (&scope{chain: c.chain, own: &step{}}).buildPrototype()
	names := make([]string, len(sources))
	for i, source := range sources {
		names[i] = source.name
		set, isSet := f.readSetting(source.node, source.path, "name")
		if !isSet && source.usedAt == nil {
			continue
		}

		at := placeOf(source.node, source.path)
		if isSet {
			names[i], _ = readText(set.value)
			at = set.placeOfValue()
		}

		switch name := names[i]; {
		case !isSet && name == "": // readLookUp has refused the step
		case !stepName.MatchString(name):
			f.addMistake(at, "%q is not a name that expressions can use; write letters, digits and _, such as "+
				"find", name)
		case slices.Contains(names[:i], name):
			if source.usedAt != nil {
				at = *source.usedAt
			}
			f.addMistake(at, "%s is the name of an earlier step, too; each needs its own", name)

		case taken[name] != nil || slices.Contains(reservedName, name):
			f.addMistake(at, "%s has a meaning in expressions; take another name, such as %s_item",
				name, name)
		}
	}

	return names
}

// compileStep compiles one step. It returns nil if the step is not a mapping, or does not have
// exactly one request.
func (c *compiler) compileStep(n ast.Node, path, name string, s *scope) *step {
	f := c.file
	pairs, ok := f.readMapping(n, path)
	if !ok {
		f.addMistake(placeOf(n, path),
			"a step must be a mapping, such as { name: find, get: /items/{{ key }} }")
		return nil
	}

	settings := map[string]pair{}
	for _, p := range pairs {
		settings[p.key] = p
	}

	st := &step{name: name, label: name + ": ", accept: acceptedTypes, needs: needs{},
		retryAfter: c.retryAfter}
	s.compiled = &st.expressions
	c.refuseUnknown(pairs)
	if !c.compileRequest(settings, st, s, placeOf(n, path)) {
		return nil
	}

	st.body = f.compileBody(settings, st, s)
	st.requested = st.expressions
	c.compileReads(settings, st)
	c.compileHeaders(settings, st, s)
	if p, ok := settings["when"]; ok {
		st.when = f.compileCondition(p.value, p.at.path, s)
	}

	c.refuseInSignIn(settings)
	c.compileAnswer(settings, st, s)
	c.compileSay(settings, st, s)
	c.compilePolling(settings, st, s)
	c.compileRemember(settings, st, s)

	return st
}

// compileReads compiles the setting "reads", which marks a POST as a look-up, and sets isSafe. The
// caller calls compileBody first: if isSafe were set, compileBody would refuse the body of the
// POST.
func (c *compiler) compileReads(settings map[string]pair, st *step) {
	p, ok := settings["reads"]
	if !ok {
		return
	}

	value, isBool := p.value.(*ast.BoolNode)
	switch {
	case !isBool:
		c.file.addMistake(p.placeOfValue(), "it must be true or false")
	case st.isGraphQL:
		c.file.addMistake(p.at, "leave reads out: a query of GraphQL reads, and a mutation writes")
	case st.method != http.MethodPost:
		c.file.addMistake(p.at,
			"reads belongs to post: get and head always read, and the other methods write")
	default:
		st.isSafe = value.Value
	}
}

// refuseInSignIn records a mistake for each setting that a step of a sign-in cannot have. Each step
// of a sign-in is sent exactly once. If one step fails, the sign-in fails.
func (c *compiler) refuseInSignIn(settings map[string]pair) {
	if c.chain != nil {
		return
	}

	for _, key := range []string{"when", "on", "until", "retryAfter", "reads", "remember", "use"} {
		if p, ok := settings[key]; ok {
			c.file.addMistake(
				p.at,
				"a step of a sign-in has no %s; it has an address, headers, a body, expect, success and say",
				key,
			)
		}
	}
}

// compileSay compiles the setting "say" of a step of a sign-in. If "say" cannot be evaluated with
// an answer, the default reason is used.
func (c *compiler) compileSay(settings map[string]pair, st *step, s *scope) {
	p, ok := settings["say"]
	if !ok {
		return
	}

	if c.chain != nil {
		c.file.addMistake(p.at, "say belongs to a rule under on, or to a step of delivery.signIn")
		return
	}

	own := *s
	own.own, own.isLenient = st, true
	st.say = c.file.compileTemplate(p.value, p.at.path, &own)
	c.file.requireText(st.say, p.placeOfValue())
}

func (c *compiler) refuseUnknown(pairs []pair) {
	known := slices.Concat(otherKeys, methods, bodyKeys, []string{"variables", "address"})
	for _, p := range pairs {
		if !slices.Contains(known, p.key) {
			hint := SuggestName(p.key, known)
			if hint == "" {
				hint = "; a step has " + strings.Join(known, ", ")
			}
			c.file.addMistake(p.at, "%s is not a setting of a step%s", p.key, hint)
		}
	}
}

// compileRequest compiles the method and the address. It reports whether the step has exactly one
// request.
func (c *compiler) compileRequest(settings map[string]pair, st *step, s *scope, at place) bool {
	f := c.file
	var found []string
	for _, method := range append(slices.Clone(methods), "graphql") {
		if _, ok := settings[method]; ok {
			found = append(found, method)
		}
	}

	switch len(found) {
	case 0:
		f.addMistake(at, "the step has no request; write get, post, put, patch, delete (with an address) or graphql")
		return false
	case 1:
	default:
		f.addMistake(settings[found[1]].at, "a step is one request; make two steps of %s and %s",
			found[0], found[1])
		return false
	}

	st.method = strings.ToUpper(found[0])
	p := settings[found[0]]
	if found[0] == "graphql" {
		query, _ := readText(p.value)
		st.method, st.isGraphQL, st.isSafe, st.query = http.MethodPost, true,
			!isMutation(query), query
		st.needs.addPart(partJSON, needStrict)

		if p, ok := settings["address"]; ok {
			st.address = f.compileAddress(p, s, c.base)
			st.addressesRemembered = st.address != nil && st.address.text.readsRemembered()
		} else {
			st.address = &address{base: c.base, text: &template{}}
		}

		return true
	}

	if p, ok := settings["address"]; ok {
		f.addMistake(p.at, "the address stands behind the method: %s: /items", found[0])
	}

	if p, ok := settings["variables"]; ok {
		f.addMistake(p.at, "variables belong to graphql")
	}

	st.isSafe = st.method == http.MethodGet || st.method == http.MethodHead
	st.address = f.compileAddress(p, s, c.base)
	st.addressesRemembered = st.address != nil && st.address.text.readsRemembered()

	return true
}

var graphQLWrites = regexp.MustCompile(`(?m)(^|\})\s*(mutation|subscription)\b`)

// isMutation reports whether a GraphQL request can change the CMS.
func isMutation(query string) bool { return graphQLWrites.MatchString(query) }

func (c *compiler) compileHeaders(settings map[string]pair, st *step, s *scope) {
	p, ok := settings["headers"]
	if !ok {
		return
	}
	st.headers = c.readHeaders(p, s)
}

func (c *compiler) readHeaders(p pair, s *scope) []header {
	f := c.file
	pairs, ok := f.readMapping(p.value, p.at.path)
	if !ok {
		f.addMistake(p.placeOfValue(), "headers must be a mapping of names to values, such as "+
			"{ If-Match: \"{{ find.headers.etag }}\" }")
	}

	var headers []header
	for _, h := range pairs {
		canonical := http.CanonicalHeaderKey(h.key)
		switch {
		case !signin.IsHeaderName(h.key):
			f.addMistake(h.at, "%q is not the name of a header", h.key)
		case slices.Contains(ownHeaders, canonical) || strings.HasPrefix(canonical, "Weir-"):
			f.addMistake(h.at, "%s is set by Weir; leave it out", h.key)
		}

		t := f.compileTemplate(h.value, h.at.path, s)
		f.requireText(t, h.placeOfValue())
		headers = append(headers, header{canonical, t})
	}

	return headers
}

// compileAnswer compiles the settings "expect", "on", "success" and "retryAfter", and the rules for
// all steps.
func (c *compiler) compileAnswer(settings map[string]pair, st *step, s *scope) {
	f := c.file
	own := *s
	own.own = st
	if p, ok := settings["expect"]; ok {
		st.expect = c.readStatuses(p)
	}

	if p, ok := settings["on"]; ok {
		st.rules = c.compileRules(p.value, p.at.path, &own)
	}

	if c.common.IsSet() && s.chain != nil {
		common := own
		common.isLenient, common.earlier = true, nil
		st.rules = append(st.rules, c.compileRules(c.common.node, "delivery.on", &common)...)
	}

	if p, ok := settings["success"]; ok {
		st.success = f.compileCondition(p.value, p.at.path, &own)
	}

	if p, ok := settings["retryAfter"]; ok {
		name, ok := readText(p.value)
		if !ok || !signin.IsHeaderName(name) {
			f.addMistake(p.placeOfValue(),
				"it must be the name of a header, such as X-RateLimit-Reset")
		}
		st.retryAfter = name
	}
}

// readStatuses reads the setting "expect": one status, or a list of them.
func (c *compiler) readStatuses(p pair) []int {
	f := c.file
	items, isList := f.readList(p.value)
	if !isList {
		items = []ast.Node{p.value}
	}

	var statuses []int
	for _, item := range items {
		text, _ := readText(item)
		status, err := strconv.Atoi(text)
		at := placeOf(item, p.at.path)
		switch {
		case err != nil || status < 200 || status > 599:
			f.addMistake(at, "%q is not a status from 200 to 599; write a list such as [200, 404]",
				text)
		case status == http.StatusUnauthorized:
			f.addMistake(at, "401 is never an answer to a step; Weir signs in anew and repeats it")
		}

		statuses = append(statuses, status)
	}

	return statuses
}

// compilePolling compiles the settings "until", "every" and "for".
func (c *compiler) compilePolling(settings map[string]pair, st *step, s *scope) {
	f := c.file
	own := *s
	own.own = st
	st.every, st.forTime = defaultEvery, min(defaultFor, c.timeout)
	p, polls := settings["until"]
	if polls {
		st.until = f.compileCondition(p.value, p.at.path, &own)
	}

	for name, target := range map[string]*time.Duration{"every": &st.every, "for": &st.forTime} {
		p, ok := settings[name]
		if !ok {
			continue
		}

		text, _ := readText(p.value)
		d, err := time.ParseDuration(text)
		switch {
		case !polls:
			f.addMistake(p.at,
				"%s belongs to until; write until: with the condition that ends the step", name)
		case err != nil || d <= 0:
			f.addMistake(p.placeOfValue(), "%q is not a duration such as 2s or 1m", text)
		case name == "for" && d > c.timeout:
			f.addMistake(p.placeOfValue(),
				"%s is longer than delivery.timeout (%s), the limit of all steps together",
				text, c.timeout)

		default:
			*target = d
		}
	}
}
