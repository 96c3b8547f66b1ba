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

// ShownField is a value of the body that Weir stores in the message's row. Lists show this value,
// and searches compare it.
type ShownField struct {
	Name string `yaml:"name"` // name of the column
	Path string `yaml:"path"` // path as in Field; the first value that is not empty is shown
}

// These limits keep the shown fields of a message below about 2 KiB, because each list reads the
// fields.
const (
	maxShownFields = 8
	maxShownBytes  = 200 // bytes of one value
)

var shownName = regexp.MustCompile(`^[\pL_][\pL\pN_-]{0,31}$`)

type compiledField struct {
	name string
	path *path
}

func compileShownFields(given []ShownField) (fields []compiledField, problems []string) {
	if len(given) > maxShownFields {
		problems = append(problems,
			fmt.Sprintf("show has %d fields and may have %d", len(given), maxShownFields))
	}

	names := map[string]bool{}
	for i, f := range given {
		p, err := compilePath(f.Path)
		switch {
		case err == nil && p == nil:
			err = errors.New("path is missing")
		case err == nil && !shownName.MatchString(f.Name):
			err = fmt.Errorf("name %q must have 1 to 32 letters, digits, _ and -, and begin with a letter or _", f.Name)
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

// readShownFields returns the shown values by name, without empty values. If there are none, the
// map is nil. RedactedMark replaces a redacted value, so that the message's row never has the
// redacted value.
func (c *compiledContract) readShownFields(doc *etree.Document,
	redacted redactedPlaces) map[string]string {
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

// shortenValue returns a value as one line of at most maxShownBytes. If the value is cut, the
// result ends in an ellipsis.
func shortenValue(value string) string {
	// a first cut, because the next statement reads the whole value
	if len(value) > 4*maxShownBytes {
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
