package contract

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/beevik/etree"
)

// ShownField is a value of the body that lists of messages show and search. It is stored in the message's row.
type ShownField struct {
	Name string `yaml:"name"` // of the column
	Path string `yaml:"path"` // as in Field; of several values the first one that is not empty counts
}

// The shown fields of one message take at most about 2 KiB of its row, because each list reads them.
const (
	maxShownFields = 8
	maxShownBytes  = 200 // of one value
)

var shownName = regexp.MustCompile(`^[\pL_][\pL\pN_-]{0,31}$`)

// compiledField is a ShownField ready for use.
type compiledField struct {
	name string
	path *path
}

// compileShownFields returns the fields, and every problem of them.
func compileShownFields(given []ShownField) (fields []compiledField, problems []string) {
	if len(given) > maxShownFields {
		problems = append(problems, fmt.Sprintf("show has %d fields and may have %d", len(given), maxShownFields))
	}
	names := map[string]bool{}
	for i, f := range given {
		p, err := compilePath(f.Path)
		switch {
		case err == nil && p == nil:
			err = errors.New("path is missing")
		case err == nil && !shownName.MatchString(f.Name):
			err = fmt.Errorf("name %q must have 1 to 32 letters, digits, _ and -, and begin with a letter", f.Name)
		case err == nil && names[f.Name]:
			err = fmt.Errorf("name %q is taken by an earlier field", f.Name)
		}
		if err != nil {
			problems = append(problems, fmt.Sprintf("show[%d]: %v", i, err))
			continue
		}
		names[f.Name] = true
		fields = append(fields, compiledField{f.Name, p})
	}
	return fields, problems
}

// readShownFields returns the values by name, without empty ones; nil = there are none. Lists show a mark in place of a
// redacted value, so that the message's row never has it.
func (c *compiledContract) readShownFields(doc *etree.Document, redacted redactedPlaces) map[string]string {
	var shown map[string]string
	for _, f := range c.shown {
		for _, v := range f.path.selectPlacedValues(doc) {
			value := shortenValue(v.text)
			if value == "" {
				continue
			}
			if redacted.hasValue(v) {
				value = RedactedMark
			}
			if shown == nil {
				shown = map[string]string{}
			}
			shown[f.name] = value
			break
		}
	}
	return shown
}

// shortenValue returns a value as one line of at most maxShownBytes. A value that was cut ends in an ellipsis.
func shortenValue(value string) string {
	if len(value) > 4*maxShownBytes { // so that the rest costs nothing
		value = strings.ToValidUTF8(value[:4*maxShownBytes], "")
	}
	value = strings.Join(strings.FieldsFunc(value, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	}), " ")
	if len(value) <= maxShownBytes {
		return value
	}
	const ellipsis = "…"
	cut := maxShownBytes - len(ellipsis)
	for !utf8.RuneStart(value[cut]) {
		cut--
	}
	return value[:cut] + ellipsis
}
