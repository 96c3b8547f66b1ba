package contract

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-playground/validator/v10"

	"weir/internal/weir"
)

// rule is a field's rule, ready for use.
type rule struct {
	*path
	tag      string // without required
	required bool
}

// validate checks single values; it is safe for concurrent use.
var validate = validator.New(validator.WithRequiredStructEnabled())

// reachOut lists the tags that would have an upstream's value open files of ours, or look up names.
var reachOut = []string{"file", "filepath", "dir", "dirpath", "image", "uds_exists", "unix_addr", "ip_addr", "ip4_addr", "ip6_addr",
	"tcp_addr", "tcp4_addr", "tcp6_addr", "udp_addr", "udp4_addr", "udp6_addr"}

// notForValues lists the tags that need a struct, a list or another field, besides those
// whose names end in field or begin with required_ or excluded_.
var notForValues = []string{"dive", "keys", "endkeys", "structonly", "nostructlevel", "omitnil", "omitzero", "unique", "validateFn",
	"skip_unless", "fieldcontains", "fieldexcludes", "-"}

// probes are values of many shapes, to have each rule's parameter read before the first message is.
var probes = []string{"", "x", "1", "2006-01-02", "a@b.example", "http://b.example/", "Zm9v"}

func compileRule(f Field) (rule, error) {
	r := rule{}
	var err error
	if r.path, err = compilePath(f.Path); err != nil {
		return r, err
	}
	if r.path == nil {
		return r, errors.New("path is missing")
	}
	if strings.TrimSpace(f.Rule) == "" {
		return r, fmt.Errorf("path %q: rule is missing", f.Path)
	}
	var tags []string
	for tag := range strings.SplitSeq(f.Rule, ",") {
		if tag == "required" {
			r.required = true
			continue
		}
		tags = append(tags, tag)
		if err := usable(tag); err != nil {
			return r, fmt.Errorf("path %q: rule %q: %w", f.Path, f.Rule, err)
		}
	}
	r.tag = strings.Join(tags, ",")
	if _, err := check("", r.tag); err != nil {
		return r, fmt.Errorf("path %q: rule %q: %w", f.Path, f.Rule, err)
	}
	return r, nil
}

// usable tries one part of a rule alone. Behind another part, its unreadable parameter
// would show only with the first value that gets that far.
func usable(tag string) error {
	for alternative := range strings.SplitSeq(tag, "|") {
		name, _, _ := strings.Cut(alternative, "=")
		switch {
		case name == "":
			return errors.New("a part of it is empty")
		case slices.Contains(reachOut, name):
			return fmt.Errorf("%s reads files or asks the network, which a message must not cause", name)
		case slices.Contains(notForValues, name) || strings.HasSuffix(name, "field") ||
			strings.HasPrefix(name, "required_") || strings.HasPrefix(name, "excluded_"):
			return fmt.Errorf("%q does not apply to a single value", name)
		}
		for _, value := range probes {
			if _, err := check(value, alternative); err != nil {
				return err
			}
		}
	}
	return nil
}

// check applies a tag to a value and gives the first rule it breaks. The validator panics
// on tags and parameters it cannot read; here that is an error.
func check(value, tag string) (broken string, err error) {
	if tag == "" {
		return "", nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	err = validate.Var(value, tag)
	var found validator.ValidationErrors
	if !errors.As(err, &found) {
		return "", err
	}
	broken = found[0].Tag()
	if found[0].Param() != "" {
		broken += "=" + found[0].Param()
	}
	return broken, nil
}

func (r *rule) problems(values []string) []weir.Problem {
	if r.required && !slices.ContainsFunc(values, func(v string) bool { return v != "" }) {
		return []weir.Problem{{Path: r.given, Rule: "required", Message: r.given + " is required and is missing or empty"}}
	}
	var problems []weir.Problem
	for _, v := range values {
		broken, err := check(v, r.tag)
		if err != nil { // what cannot be checked is not let through
			broken = r.tag
		}
		if broken != "" {
			problems = append(problems, weir.Problem{Path: r.given, Rule: broken, Message: fmt.Sprintf("%s is %q and must satisfy %s", r.given, short(v), broken)})
		}
	}
	return problems
}

// maxRepeated is how many characters of what was sent a problem repeats.
const maxRepeated = 80

func short(v string) string {
	count := 0
	for at := range v {
		if count++; count > maxRepeated {
			return v[:at] + "…"
		}
	}
	return v
}
