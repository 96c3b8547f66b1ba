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
	actionOK     action = "ok"     // continue with the next step
	actionForget action = "forget" // forget the remembered id, and start again
	actionAgain  action = "again"  // start again at the first step
	actionSignIn action = "signIn" // sign in anew, and start again
	actionDone   action = "done"   // delivered; the later steps are not sent
	// the attempt fails, and counts against the message's limit of attempts
	actionRetry  action = "retry"
	actionReject action = "reject" // the message is dead
	// the CMS refuses this message, or all; other keys go on
	actionRefuse action = "refuse"
	// the CMS has failed; the attempt does not count against the limit
	actionUnavailable action = "unavailable"

	// actionForbid is refuse for an answer that can also mean the end of the session. No rule can
	// choose it.
	actionForbid action = "forbid"
)

var actions = []action{actionOK, actionDone, actionAgain, actionForget, actionSignIn, actionRetry,
	actionRefuse, actionUnavailable, actionReject}

// actionList has the actions for the texts of mistakes.
const actionList = "ok, done, again, forget, signIn, retry, refuse, unavailable or reject"

// rule has the action for the answers that fit a condition.
type rule struct {
	when *expression
	do   action
	say  *template // the reason; nil = status and error text of the CMS
}

func (c *compiler) compileRules(n ast.Node, path string, s *scope) []rule {
	f := c.file
	items, ok := f.readList(n)
	if !ok {
		f.addMistake(placeOf(n, path),
			"on must be a list of rules, such as - { when: status == 409, do: again }")
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
		f.addMistake(placeOf(n, path),
			"a rule must be a mapping, such as { when: status == 409, do: again }")
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
				f.addMistake(p.placeOfValue(),
					"%q is not something to do; write "+actionList+"%s", text,
					SuggestName(text, actionNames()))
			}

			if r.do == actionSignIn && !c.canSignInAnew {
				f.addMistake(p.placeOfValue(),
					"signIn needs a delivery.signIn by oauth2, jwt, azure or steps, "+
						"because no other way has a new credential; write unavailable")
			}

			if r.do == actionForget && c.chain != nil && !s.isLenient {
				c.chain.forgets = append(c.chain.forgets, p.placeOfValue())
			}

		case "say":
			r.say = f.compileTemplate(p.value, p.at.path, s)
			f.requireText(r.say, p.placeOfValue())
		default:
			f.addMistake(p.at, "%s is not a setting of a rule; it has when, do and say", p.key)
		}
	}

	if !slices.ContainsFunc(pairs, func(p pair) bool { return p.key == "when" }) {
		f.addMistake(placeOf(n, path),
			"the rule has no when; write the condition, such as when: status == 409")
	}

	if !slices.ContainsFunc(pairs, func(p pair) bool { return p.key == "do" }) {
		f.addMistake(placeOf(n, path),
			"the rule has no do; write "+actionList)
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

// isFinal reports whether the rule ends the step or the message: a mistake cannot be undone by
// another attempt.
func (r *rule) isFinal() bool {
	return slices.Contains([]action{actionOK, actionDone, actionReject, actionForget}, r.do)
}

// firstRule returns the first rule whose condition is true. If there is no such rule, firstRule
// returns nil and the error of the first condition that cannot be evaluated.
//
// The argument isPage means that the answer is a page of HTML. A proxy or a deployment in front of
// the CMS sends such pages with any status. So a final rule does not hold for a page, except if its
// condition reads the text of the page.
func firstRule(rules []rule, env map[string]any, isPage bool) (*rule, error) {
	var problem error
	for i := range rules {
		if isPage && rules[i].isFinal() && !rules[i].when.readsText {
			continue
		}

		holds, err := rules[i].when.evaluateCondition(env)
		switch {
		case holds:
			return &rules[i], nil
		case err != nil && problem == nil:
			problem = err
		}
	}

	return nil, problem
}

// evaluateReason returns the text of the rule's setting "say". If the rule has no "say", the text
// is empty. If an expression in "say" fails, the text has only the literal parts.
func (r *rule) evaluateReason(env map[string]any) string {
	if r.say == nil {
		return ""
	}

	text, err := r.say.evaluateText(env)
	if err != nil {
		return strings.TrimSpace(r.say.literalText())
	}

	return text
}
