package contract

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/beevik/etree"

	"weir/internal/weir"
)

// KeyPaths are the paths of the parts of an ordering key. In weir.yaml they are one path, or a list
// of paths. nil means that all messages of the contract have one key.
type KeyPaths []string

// maxKeyPaths limits the parts of a key.
const maxKeyPaths = 8

// UnmarshalYAML reads one path, or a list of paths.
func (k *KeyPaths) UnmarshalYAML(decode func(any) error) error {
	var path string
	if decode(&path) == nil {
		*k = nil
		if path != "" {
			*k = KeyPaths{path}
		}
		return nil
	}

	paths := []string{}
	if err := decode(&paths); err != nil {
		return err
	}

	*k = paths

	return nil
}

// settingOf returns the name of the setting that has the path i.
func (k KeyPaths) settingOf(i int) string {
	if len(k) == 1 {
		return "key"
	}
	return fmt.Sprintf("key[%d]", i)
}

// compileKeyPaths returns the compiled paths, and all problems of the setting.
func compileKeyPaths(given KeyPaths) (paths []*path, problems []*weir.SettingProblem) {
	if given != nil && (len(given) == 0 || len(given) > maxKeyPaths) {
		problems = append(problems, weir.NewSettingProblem("key", "has %d paths and must have 1 to %d; "+
			"without key, all messages of the contract have one key", len(given), maxKeyPaths))
	}

	for i, text := range given {
		p, err := compilePath(text)
		switch {
		case err == nil && p == nil:
			err = errors.New("path is missing")
		case slices.Contains(given[:i], text):
			err = fmt.Errorf("path %q is listed twice", text)
		}

		if err != nil {
			problems = append(problems, weir.NewSettingProblem(given.settingOf(i), "%v", err))
			continue
		}

		paths = append(paths, p)
	}

	return paths, problems
}

// The characters that a key of several parts has beside its parts.
const (
	keySeparator = "|"
	keyEscape    = `\`
)

var escapeKeyPart = strings.NewReplacer(keyEscape, keyEscape+keyEscape, keySeparator,
	keyEscape+keySeparator)

// JoinKey returns the ordering key with these parts. A single part is the key, byte for byte.
// Several parts are joined by keySeparator; in each part, keyEscape stands before each separator
// and each escape. So two lists of the same length have the same key only if all their parts are
// equal.
func JoinKey(parts []string) string {
	if len(parts) == 1 {
		return parts[0]
	}

	escaped := make([]string, len(parts))
	for i, part := range parts {
		escaped[i] = escapeKeyPart.Replace(part)
	}

	return strings.Join(escaped, keySeparator)
}

// readKey returns the ordering key of a document, and the problems of its parts. If a part has
// problems, the key is empty.
func (c *compiledContract) readKey(doc *etree.Document, places *places) (string, []weir.Problem) {
	parts := make([]string, len(c.key))
	var problems []weir.Problem
	for i, p := range c.key {
		name := "ordering key"
		if len(c.key) > 1 {
			name = "part " + p.given + " of the ordering key"
		}

		part, found := readSingleValue(p, doc, name)
		places.setPathPlace(found, p, doc)
		parts[i], problems = part, append(problems, found...)
	}

	if len(problems) > 0 || len(parts) == 0 {
		return "", problems
	}

	key := JoinKey(parts)
	if len(key) > maxKey { // readSingleValue has checked each part alone
		problems = []weir.Problem{{Path: strings.Join(c.def.Key, keySeparator),
			Rule: fmt.Sprintf("max=%d", maxKey),
			Message: fmt.Sprintf(
				"the ordering key has %d bytes and may have %d, with all parts and the %s between them",
				len(key), maxKey, keySeparator)}}

		places.setPathPlace(problems, c.key[0], doc)
		return "", problems
	}

	return key, nil
}

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

func compileShownFields(given []ShownField) (fields []compiledField,
	problems []*weir.SettingProblem) {
	if len(given) > maxShownFields {
		problems = append(problems, weir.NewSettingProblem("show", "has %d fields and may have %d",
			len(given), maxShownFields))
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
			problems = append(problems, weir.NewSettingProblem(fmt.Sprintf("show[%d]", i), "%v", err))
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
