package contract

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-playground/validator/v10"

	"weir/internal/clock"
	"weir/internal/weir"
)

// rule is the compiled rule of a field.
type rule struct {
	*path
	tag      string // validator tag, without required
	required bool
}

// validate checks single values; it is safe for concurrent use.
var validate = newValidator()

func newValidator() *validator.Validate {
	v := validator.New(validator.WithRequiredStructEnabled())
	isZone := func(f validator.FieldLevel) bool {
		_, err := clock.LoadZone(f.Field().String())
		return err == nil && f.Field().String() != ""
	}
	if err := v.RegisterValidation("timezone", isZone); err != nil {
		panic(err) // the name is a constant
	}
	return v
}

// ioTags are the validator's tags that open files or resolve names. An upstream's value must not
// cause either.
var ioTags = []string{"file", "filepath", "dir", "dirpath", "image", "uds_exists", "unix_addr", "ip_addr", "ip4_addr",
	"ip6_addr",
	"tcp_addr", "tcp4_addr", "tcp6_addr", "udp_addr", "udp4_addr", "udp6_addr"}

// structTags are the tags that need a struct, a list or another field, besides those whose names
// end in field or begin with required_ or excluded_.
var structTags = []string{"dive", "keys", "endkeys", "structonly", "nostructlevel", "omitnil", "omitzero", "unique",
	"validateFn",
	"skip_unless", "fieldcontains", "fieldexcludes", "-"}

// probeValues have many shapes, so that the validator reads each parameter of a rule at startup.
var probeValues = []string{"", "x", "1", "2006-01-02", "a@b.example", "http://b.example/", "Zm9v"}

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
		if err := checkTag(tag); err != nil {
			return r, fmt.Errorf("path %q: rule %q: %w", f.Path, f.Rule, err)
		}
	}
	r.tag = strings.Join(tags, ",")
	if _, err := findBrokenRule("", r.tag); err != nil {
		return r, fmt.Errorf("path %q: rule %q: %w", f.Path, f.Rule, err)
	}
	return r, nil
}

// checkTag tries one part of a rule alone. Behind another part, an unreadable parameter would show
// only with the first value that passes the part before it.
func checkTag(tag string) error {
	for alternative := range strings.SplitSeq(tag, "|") {
		name, _, _ := strings.Cut(alternative, "=")
		switch {
		case name == "":
			return errors.New("a part of it is empty")
		case slices.Contains(ioTags, name):
			return fmt.Errorf("%s reads files or asks the network, which a message must not cause", name)
		case slices.Contains(structTags, name) || strings.HasSuffix(name, "field") ||
			strings.HasPrefix(name, "required_") || strings.HasPrefix(name, "excluded_"):
			return fmt.Errorf("%q does not apply to a single value", name)
		}
		for _, value := range probeValues {
			if _, err := findBrokenRule(value, alternative); err != nil {
				return err
			}
		}
	}
	return nil
}

// findBrokenRule applies a tag to a value and returns the first rule that the value breaks. The
// validator panics if it cannot read a tag or parameter; findBrokenRule returns an error.
func findBrokenRule(value, tag string) (broken string, err error) {
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

func (r *rule) checkValues(values []string) []weir.Problem {
	if r.required && !slices.ContainsFunc(values, func(v string) bool { return strings.TrimSpace(v) != "" }) {
		return []weir.Problem{{Path: r.given, Rule: "required",
			Message: r.given + " is required and is missing or empty"}}
	}
	var problems []weir.Problem
	for _, v := range values {
		broken, err := findBrokenRule(v, r.tag)
		if err != nil { // a value that cannot be checked is refused
			broken = r.tag
		}
		if broken != "" {
			problems = append(problems, weir.Problem{Path: r.given, Rule: broken,
				Message: fmt.Sprintf("%s is %q and must satisfy %s", r.given, truncate(v), broken)})
		}
	}
	return problems
}

// maxRepeated limits the characters of the input that a problem repeats.
const maxRepeated = 80

func truncate(v string) string {
	count := 0
	for at := range v {
		if count++; count > maxRepeated {
			return v[:at] + "…"
		}
	}
	return v
}
