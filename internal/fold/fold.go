// Package fold compares ordering keys as a CMS compares them that ignores case, accents, or the
// form in which a text writes its characters. Keys with the same folded key share a lane and an
// order.
//
// The folded key of a stored message must never change, because the message lies in the lane of its
// folded key. So the rules must not change either. Unicode never changes them for assigned
// characters, but a later version assigns further characters. TestRules_NeverChange fails if an
// update of the tables changes the folding of any character.
package fold

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// Rules are the differences between keys that folding removes. The zero value removes none: each
// key is its own folded key. The values are stored, so they never change.
type Rules uint8

// The single rules. Their bits are combined by |.
const (
	Case    Rules = 1 << iota // Unicode's full case folding: A = a, ß = ss
	Accents                   // removes the marks (category Mn) of the decomposed text (NFD): é = e
	// one form of canonically equivalent texts: é as one character = e with U+0301
	NFC
)

// All are the rules together.
const All = Case | Accents | NFC

// None is the value of the flag --fold for no rules.
const None = "none"

// names has the names of the rules in weir.yaml, in the order of their bits.
var names = []string{"case", "accents", "nfc"}

// Parse returns the rules with these names.
func Parse(given []string) (Rules, error) {
	var r Rules
	for _, name := range given {
		i := slices.Index(names, name)
		if i < 0 {
			return 0, fmt.Errorf("%q is not one of %s", name, strings.Join(names, ", "))
		}
		r |= 1 << i
	}

	return r, nil
}

// ParseFlag parses the flag --fold of `weir lanes`: names separated by commas, or None.
func ParseFlag(text string) (Rules, error) {
	if text == None {
		return 0, nil
	}
	return Parse(strings.Split(text, ","))
}

// Names returns the names of the rules.
func (r Rules) Names() []string {
	found := []string{}
	for i, name := range names {
		if r&(1<<i) != 0 {
			found = append(found, name)
		}
	}
	return found
}

// String returns the rules as weir.yaml writes them, such as [case, accents].
func (r Rules) String() string { return "[" + strings.Join(r.Names(), ", ") + "]" }

// Flag returns the rules as the flag --fold of `weir lanes` takes them.
func (r Rules) Flag() string {
	if r == 0 {
		return None
	}
	return strings.Join(r.Names(), ",")
}

// Text returns the names of the rules, separated by spaces, as they are stored. It is empty for the
// zero value.
func (r Rules) Text() string { return strings.Join(r.Names(), " ") }

// ParseText parses a result of Text.
func ParseText(text string) (Rules, error) { return Parse(strings.Fields(text)) }

// MarshalJSON implements json.Marshaler.
func (r Rules) MarshalJSON() ([]byte, error) { return json.Marshal(r.Names()) }

// UnmarshalJSON implements json.Unmarshaler.
func (r *Rules) UnmarshalJSON(data []byte) error {
	var given []string
	if err := json.Unmarshal(data, &given); err != nil {
		return err
	}

	parsed, err := Parse(given)
	*r = parsed
	return err
}

// Fold returns the folded key. A key of marks alone keeps its marks, because a message without a
// key has the empty one.
func (r Rules) Fold(key string) string {
	folded := r.foldText(key)
	if folded == "" {
		return norm.NFC.String(key)
	}
	return folded
}

func (r Rules) foldText(key string) string {
	switch {
	case r == 0:
		return key
	case isASCII(key) && r&Case == 0:
		return key
	case isASCII(key):
		return strings.ToLower(key)
	}

	// Case folding of a text with composed characters, or with several marks, can have another
	// result than that of an equivalent text. So the text is decomposed first, if equivalent texts
	// are equal to one of the rules.
	text := key
	if r&(Accents|NFC) != 0 {
		text = norm.NFD.String(text)
	}

	if r&Accents != 0 {
		text = removeMarks(text)
	}

	if r&Case != 0 {
		text = cases.Fold().String(text)
	}

	if r&(Accents|NFC) != 0 {
		text = norm.NFC.String(text)
	}

	return text
}

// removeMarks removes the characters of the category Mn, which combine with the character before
// them.
func removeMarks(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return r
	}, text)
}

func isASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf })
}
