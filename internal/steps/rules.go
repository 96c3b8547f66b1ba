package steps

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// action is the effect of an answer on the chain.
type action string

const (
	actionOK          action = "ok"          // the next step
	actionAgain       action = "again"       // the chain from its first step
	actionDone        action = "done"        // delivered, without the other steps
	actionRetry       action = "retry"       // the attempt has failed, and counts
	actionReject      action = "reject"      // the message is dead
	actionUnavailable action = "unavailable" // the CMS has failed: the attempt does not count
)

var actions = []action{actionOK, actionAgain, actionDone, actionRetry, actionReject, actionUnavailable}

// rule says what an answer means.
type rule struct {
	when *expression
	do   action
	say  *template // nil = the CMS's words
}

// compileRules compiles on.
func (c *compiler) compileRules(n ast.Node, path string, s *scope) []rule {
	f := c.file
	items, ok := f.readList(n)
	if !ok {
		f.refuse(placeOf(n, path), "on must be a list of rules, such as - { when: status == 409, do: again }")
		return nil
	}
	var rules []rule
	for i, item := range items {
		if r, ok := c.compileRule(item, fmt.Sprintf("%s[%d]", path, i), s); ok {
			rules = append(rules, r)
		}
	}
	return rules
}

func (c *compiler) compileRule(n ast.Node, path string, s *scope) (rule, bool) {
	f := c.file
	pairs, ok := f.readMapping(n, path)
	if !ok {
		f.refuse(placeOf(n, path), "a rule must be a mapping, such as { when: status == 409, do: again }")
		return rule{}, false
	}
	r := rule{}
	for _, p := range pairs {
		switch p.key {
		case "when":
			r.when = f.compileCondition(p.value, p.at.path, s)
		case "do":
			text, _ := readText(p.value)
			r.do = action(text)
			if !slices.Contains(actions, r.do) {
				f.refuse(p.place(), "%q is not something to do; write ok, again, done, retry, reject or "+
					"unavailable%s", text, suggest(text, actionNames()))
			}
		case "say":
			r.say = f.compileTemplate(p.value, p.at.path, s)
			f.requireText(r.say, p.place())
		default:
			f.refuse(p.at, "%s is not a setting of a rule; it has when, do and say", p.key)
		}
	}
	if !slices.ContainsFunc(pairs, func(p pair) bool { return p.key == "when" }) {
		f.refuse(placeOf(n, path), "the rule has no when; write the condition, such as when: status == 409")
	}
	if !slices.ContainsFunc(pairs, func(p pair) bool { return p.key == "do" }) {
		f.refuse(placeOf(n, path), "the rule has no do; write ok, again, done, retry, reject or unavailable")
	}
	return r, r.when != nil
}

func actionNames() []string {
	names := make([]string, len(actions))
	for i, a := range actions {
		names[i] = string(a)
	}
	return names
}

// firstRule returns the first rule that holds, or nil. A rule that cannot be evaluated does not hold;
// its problem is returned if no other does.
func firstRule(rules []rule, env map[string]any) (*rule, error) {
	var problem error
	for i := range rules {
		held, err := rules[i].when.holds(env)
		switch {
		case held:
			return &rules[i], nil
		case err != nil && problem == nil:
			problem = err
		}
	}
	return nil, problem
}

// words returns the reason that a rule gives; empty = the CMS's words.
func (r *rule) words(env map[string]any) string {
	if r.say == nil {
		return ""
	}
	text, err := r.say.text(env)
	if err != nil {
		return strings.TrimSpace(r.say.literal())
	}
	return text
}
