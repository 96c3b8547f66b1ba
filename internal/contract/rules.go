package contract

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/beevik/etree"
	"github.com/go-playground/validator/v10"

	"weir/internal/clock"
	"weir/internal/weir"
)

// rule is the compiled rule of a field.
type rule struct {
	*path
	tag      string // validator tags, without required
	required bool
	isNumber bool // true = the values are compared as numbers
}

// validate is safe for concurrent use.
var validate = newValidator()

func newValidator() *validator.Validate {
	v := validator.New(validator.WithRequiredStructEnabled())
	isZone := func(f validator.FieldLevel) bool {
		_, err := clock.LoadZone(f.Field().String())
		return err == nil && f.Field().String() != ""
	}
	if err := v.RegisterValidation("timezone", isZone); err != nil {
		panic(err) // cannot happen, because the tag's name is a valid constant
	}

	return v
}

// numberTags are the tags that a rule with the type "number" can have. All other tags check texts.
var numberTags = []string{"omitempty", "min", "max", "gt", "gte", "lt", "lte", "eq", "ne"}

// probeValues are texts in many shapes. If a rule compares texts, checkTag checks these values with
// each tag of the rule, so that an invalid parameter is found at startup.
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

	switch f.Type {
	case "", "text":
	case "number":
		r.isNumber = true
	default:
		return r, fmt.Errorf("path %q: type is %q and must be text or number", f.Path, f.Type)
	}

	var tags []string
	for tag := range strings.SplitSeq(f.Rule, ",") {
		if tag == "required" {
			r.required = true
			continue
		}

		tags = append(tags, tag)
		if err := r.checkTag(tag); err != nil {
			return r, fmt.Errorf("path %q: rule %q: %w", f.Path, f.Rule, err)
		}
	}

	r.tag = strings.Join(tags, ",")
	if err := r.checkComparisons(); err != nil {
		return r, fmt.Errorf("path %q: rule %q: %w", f.Path, f.Rule, err)
	}

	if _, err := r.findBroken(""); err != nil {
		return r, fmt.Errorf("path %q: rule %q: %w", f.Path, f.Rule, err)
	}

	return r, nil
}

// checkComparisons refuses a rule that is meant for numbers, but that compares the length of the
// text. For example, "numeric,gt=0" and "required,gt=0" would accept -5, because this text has two
// characters.
func (r *rule) checkComparisons() error {
	if r.isNumber {
		return nil
	}

	var forDigits, comparison string
	for part := range strings.FieldsFuncSeq(r.tag,
		func(c rune) bool { return c == ',' || c == '|' }) {
		switch name, limit, _ := strings.Cut(part, "="); name {
		case "number", "numeric":
			forDigits = name
		case "min", "max", "gt", "gte", "lt", "lte":
			comparison = part
			if count, err := strconv.ParseInt(limit, 10, 64); err == nil && count <= 0 {
				return fmt.Errorf("%s compares the number of characters, which is never below 0; "+
					"write type: number beside the rule, or min=1 for a text that is not empty",
					part)
			}
		}
	}

	if forDigits == "" || comparison == "" {
		return nil
	}

	return fmt.Errorf("%s compares the number of characters, not the number; "+
		"write type: number beside the rule, and leave %s out", comparison, forDigits)
}

func (r *rule) probeValues() []string {
	if r.isNumber {
		return []string{"0", "-1", "1.5", "1000000"}
	}
	return probeValues
}

// checkTag checks one part of a rule alone. In a whole rule, the validator reads a later part only
// if the value passes the earlier parts. So an invalid parameter could stay unnoticed.
func (r *rule) checkTag(tag string) error {
	for alternative := range strings.SplitSeq(tag, "|") {
		name, parameter, _ := strings.Cut(alternative, "=")
		switch {
		case !slices.Contains(valueTags, name):
			return explainRefusedTag(name)
		case name == "oneof" && strings.TrimSpace(parameter) == "":
			return errors.New(
				"oneof has no values, so no message could keep the rule; write oneof=a b")
		case r.isNumber && !slices.Contains(numberTags, name):
			return fmt.Errorf("%s does not apply to a number; possible are %s", alternative,
				strings.Join(numberTags, ", "))
		}

		single := rule{tag: alternative, isNumber: r.isNumber}
		for _, value := range r.probeValues() {
			if _, err := single.findBroken(value); err != nil {
				return err
			}
		}
	}

	return nil
}

// decimal matches a number as XML Schema writes decimals and doubles, except INF and NaN.
var decimal = regexp.MustCompile(`^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?$`)

// findBroken returns the first tag of the rule that a value breaks, or "" if the value breaks none.
// If a rule for numbers gets a value that is not a number, findBroken returns "number". findBroken
// returns an error if the validator cannot read the rule.
func (r *rule) findBroken(value string) (broken string, err error) {
	if !r.isNumber {
		return findBrokenTag(value, r.tag)
	}

	text := strings.TrimSpace(value)
	if text == "" && slices.Contains(strings.Split(r.tag, ","), "omitempty") {
		return "", nil
	}

	number, err := strconv.ParseFloat(text, 64)
	if err != nil || !decimal.MatchString(text) {
		return "number", nil
	}

	// omitempty would skip the checks of the number 0, although the text "0" is not empty.
	tag := strings.Join(slices.DeleteFunc(strings.Split(r.tag, ","),
		func(t string) bool { return t == "omitempty" }), ",")

	return findBrokenTag(number, tag)
}

// findBrokenTag applies validator tags to a string or a float64. The validator panics if it cannot
// read a tag or a parameter, or if a tag does not apply to the type. findBrokenTag returns such a
// panic as an error.
func findBrokenTag(value any, tag string) (broken string, err error) {
	if tag == "" {
		return "", nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = explainPanic(tag, p)
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

// explainPanic returns a panic of the validator as an error for the author of the rule.
func explainPanic(tag string, panicked any) error {
	said := fmt.Sprint(panicked)
	if strings.Contains(said, "invalid syntax") {
		return fmt.Errorf("%s needs a number", tag)
	}

	return errors.New(said)
}

// checkDocument returns a problem for each selected value that breaks the rule. If the rule
// requires a value, but all values are missing or empty, checkDocument returns one problem for
// this, and no other problem.
func (r *rule) checkDocument(doc *etree.Document, places *places,
	redacted redactedPlaces) []weir.Problem {
	values := r.selectPlacedValues(doc)
	if r.lacksRequired(values) {
		problems := []weir.Problem{{Path: r.given, Rule: "required",
			Message: r.given + " is required and is missing or empty"}}
		places.setPathPlace(problems, r.path, doc)
		return problems
	}

	var problems []weir.Problem
	for _, v := range values {
		if problem, isBroken := r.checkValue(v, redacted); isBroken {
			places.setPlace(&problem, v.element)
			problems = append(problems, problem)
		}
	}

	return problems
}

// lacksRequired reports whether the rule requires a value, but all values are empty.
func (r *rule) lacksRequired(values []placedValue) bool {
	return r.required &&
		!slices.ContainsFunc(values,
			func(v placedValue) bool { return strings.TrimSpace(v.text) != "" })
}

// checkValue returns the problem of one value. The problem does not repeat a redacted value.
func (r *rule) checkValue(v placedValue, redacted redactedPlaces) (problem weir.Problem,
	isBroken bool) {
	broken, err := r.findBroken(v.text)
	if err != nil { // refuse a value that cannot be checked
		broken = r.tag
	}

	if broken == "" {
		return weir.Problem{}, false
	}

	if redacted.hasValue(v) {
		return weir.Problem{Path: r.given, Rule: broken,
				Message: fmt.Sprintf("%s must satisfy %s; its value is redacted", r.given, broken)},
			true
	}

	return weir.Problem{Path: r.given, Rule: broken,
		Message: r.given + " " + r.describeBroken(v.text, broken)}, true
}

// describeBroken returns the end of a sentence that begins with the rule's path, such as "is 9 and
// must be at least 10".
func (r *rule) describeBroken(value, broken string) string {
	name, limit, _ := strings.Cut(broken, "=")
	words := map[string]string{"min": "at least", "gte": "at least", "max": "at most",
		"lte": "at most", "gt": "more than", "lt": "less than", "len": "exactly"}
	switch comparison := words[name]; {
	case name == "number" || name == "numeric":
		return fmt.Sprintf("is %q, which is not a number (rule: %s)", truncate(value), name)
	case comparison == "":
		return fmt.Sprintf("is %q and must satisfy %s", truncate(value), broken)
	case r.isNumber:
		return fmt.Sprintf("is %s and must be %s %s", truncate(strings.TrimSpace(value)),
			comparison, limit)
	default:
		return fmt.Sprintf("is %q with %d characters, and must have %s %s", truncate(value),
			utf8.RuneCountInString(value), comparison, limit)
	}
}

// maxRepeated limits the characters that a problem repeats from a value or name.
const maxRepeated = 80

// maxShown limits the characters that a problem repeats from a text outside the root element.
const maxShown = 20

func truncate(v string) string { return truncateAt(v, maxRepeated) }

func shorten(v string) string { return truncateAt(v, maxShown) }

func truncateAt(v string, most int) string {
	count := 0
	for at := range v {
		if count++; count > most {
			return v[:at] + "…"
		}
	}
	return v
}
