package host

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

var constraints = map[string]*regexp.Regexp{
	"int":   regexp.MustCompile(`^-?\d{1,10}$`),
	"long":  regexp.MustCompile(`^-?\d{1,19}$`),
	"guid":  regexp.MustCompile(`(?i)^[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}$`),
	"bool":  regexp.MustCompile(`(?i)^(true|false)$`),
	"alpha": regexp.MustCompile(`(?i)^[a-z]*$`),
}

// parseConstraint parses the constraint of a route parameter, such as "int" in {id:int}. The caller
// has replaced doubled braces in the text by single ones.
func parseConstraint(text string) (*regexp.Regexp, error) {
	if known := constraints[text]; known != nil {
		return known, nil
	}

	expression, ok := strings.CutPrefix(text, "regex(")
	if ok {
		expression, ok = strings.CutSuffix(expression, ")")
	}

	if !ok {
		return nil, fmt.Errorf("constraint %q is not supported here", text)
	}

	translated, err := translateRegex(expression)
	if err != nil {
		return nil, fmt.Errorf("constraint %q: %w", text, err)
	}

	check, err := regexp.Compile("(?i)" + translated)
	if err != nil {
		return nil, fmt.Errorf("constraint %q is not supported here: %w", text, err)
	}

	return check, nil
}

// netClasses has the characters that \d and \w match in .NET, as members of a Go character class.
// The key is the letter of the escape.
var netClasses = map[byte]string{'d': `\p{Nd}`, 'w': `\p{L}\p{Mn}\p{Nd}\p{Pc}`}

var errNotInGo = errors.New("not supported here: Go has no expression that means the same")

// translateRegex translates a .NET expression to Go's syntax. It returns errNotInGo if the
// expression would get another meaning.
func translateRegex(expression string) (string, error) {
	var b strings.Builder
	inClass := false
	for i := 0; i < len(expression); i++ {
		c, rest := expression[i], expression[i+1:]
		switch {
		case c == '\\' && rest != "":
			i++
			text, err := translateEscape(rest, inClass)
			if err != nil {
				return "", err
			}

			b.WriteString(text)
			continue

		case c == '[' && inClass: // may be .NET's subtraction of classes, such as [a-z-[aeiou]]
			return "", errNotInGo
		case c == '[':
			inClass = true

			// A closing bracket at the beginning of a class is a member of the class, but this loop
			// would end the class there.
			for _, first := range []string{"^]", "]"} {
				if strings.HasPrefix(rest, first) {
					return "", errNotInGo
				}
			}

		case c == ']':
			inClass = false
		case c == '(' && strings.HasPrefix(rest, "?") && !strings.HasPrefix(rest, "?:"):
			// The group may set options. For example, (?m) changes the meaning of $.
			return "", errNotInGo
		case c == '$' && !inClass:
			text, err := translateEnd(rest)
			if err != nil {
				return "", err
			}
			b.WriteString(text)
			continue
		}

		b.WriteByte(c)
	}

	return b.String(), nil
}

func translateEscape(rest string, inClass bool) (string, error) {
	switch c := rest[0]; {
	case c == 'Z' && !inClass:
		return translateEnd(rest[1:])
	case netClasses[c] != "" && inClass:
		return netClasses[c], nil
	case netClasses[c] != "":
		return "[" + netClasses[c] + "]", nil
	case isLetterOrDigit(c) && !strings.ContainsRune("AztnrfvpPx", rune(c)):
		return "", errNotInGo
	default:
		return `\` + string(c), nil
	}
}

// translateEnd translates $ or \Z. In .NET both also match before a line feed at the end of the
// text; in Go $ does not. The argument "rest" is the expression after the $ or \Z. Only closing
// parentheses may stand between the $ or \Z and the end of the expression or the next |. Otherwise
// translateEnd returns errNotInGo.
func translateEnd(rest string) (string, error) {
	if strings.Trim(rest, ")") != "" && !strings.HasPrefix(strings.TrimLeft(rest, ")"), "|") {
		return "", errNotInGo
	}
	return `(?:\n?\z)`, nil
}
