//go:build !race || long

package fold_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"

	"weir/internal/fold"
)

func TestRules_Fold(t *testing.T) {
	t.Parallel()
	const composed, decomposed = "caf\u00e9", "cafe\u0301"
	for _, c := range []struct {
		rules     fold.Rules
		a, b      string
		wantEqual bool
	}{
		{0, "Cafe", "cafe", false},
		{0, composed, decomposed, false},
		{fold.Case, "Cafe", "cafe", true},
		{fold.Case, "/News/Ä", "/news/ä", true},
		{fold.Case, "Straße", "STRASSE", true},
		{fold.Case, "ΣΊΣΥΦΟΣ", "σίσυφος", true},
		{fold.Case, "cafe", composed, false},
		{fold.Case, "Caf\u00c9", decomposed, false},
		{fold.Case | fold.NFC, "Caf\u00c9", decomposed, true},
		{fold.NFC, composed, decomposed, true},
		{fold.NFC, composed, "cafe", false},
		{fold.NFC, "q\u0307\u0323", "q\u0323\u0307", true}, // the order of the marks
		{fold.NFC, "\u212b", "\u00c5", true},               // the Ångström sign
		{fold.NFC, "Cafe", "cafe", false},
		{fold.Accents, composed, "cafe", true},
		{fold.Accents, composed, decomposed, true},
		{fold.Accents, "x\u0301", "x", true},
		{fold.Accents, "Cafe", "cafe", false},
		{fold.All, "CAF\u00c9", "cafe", true},
		{fold.All, "İ", "i", true},
		// alpha with an iota below: the case folding of the mark is a letter
		{fold.All, "\u1fb3", "\u03b1", true},
		// What folding keeps apart, although some databases do not:
		{fold.All, "ı", "i", false},
		{fold.All, "æ", "ae", false},
		{fold.All, "ø", "o", false},
		{fold.All, "ł", "l", false},
		{fold.All, "ａ", "a", false}, // full width
		{fold.All, "ﬀ", "ff", true}, // but the case folding of this ligature has two letters
		{fold.All, "²", "2", false},
		{fold.All, "a b", "a  b", false},
		{fold.All, "x", "x0", false},
	} {
		a, b := c.rules.Fold(c.a), c.rules.Fold(c.b)
		if (a == b) != c.wantEqual {
			t.Errorf("%v: got %q for %q and %q for %q, want them equal: %v", c.rules, a, c.a, b,
				c.b, c.wantEqual)
		}
	}
}

// A key of marks alone does not become the empty key, which messages without a key have.
func TestRules_Fold_NeverEmpty(t *testing.T) {
	t.Parallel()
	for rules := range fold.All + 1 {
		if got := rules.Fold("\u0301"); got != "\u0301" {
			t.Errorf("%v: got %q, want the mark as it is", rules, got)
		}
		if got := rules.Fold(""); got != "" {
			t.Errorf("%v: got %q, want the empty key", rules, got)
		}
	}
}

// drawText returns a text of few characters that differ in case, accents or form only.
func drawText(r *rand.Rand) string {
	letters := []rune("aAeE\u00e9\u00c9\u0301\u0323\u0345\u1fb3\u0390\u0130\u0131\u00df\u1e9eΣσς\ufb00ǅ|\\ " +
		"\u212b\u0e33\uac00가")
	text := ""
	for range 1 + r.IntN(5) {
		text += string(letters[r.IntN(len(letters))])
	}
	return text
}

// A folded key is its own folded key, and equivalent texts have the same one. Otherwise two
// spellings of one key could be in two lanes.
func TestRules_Fold_IsStable(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	for range 100_000 {
		text := drawText(r)
		for rules := range fold.All + 1 {
			folded := rules.Fold(text)
			if again := rules.Fold(folded); again != folded {
				t.Fatalf("%v: %+q folds to %+q, and that to %+q, want no further change", rules,
					text, folded, again)
			}

			if rules&(fold.NFC|fold.Accents) == 0 {
				continue
			}

			for _, form := range []norm.Form{norm.NFC, norm.NFD} {
				if other := rules.Fold(form.String(text)); other != folded {
					t.Fatalf("%v: got %+q for %+q and %+q for an equivalent text, want one key",
						rules, folded, text, other)
				}
			}
		}
	}
}

// The folding of each character stays as it is: stored messages lie in the lanes of their folded
// keys. If an update of the tables makes this test fail, keep the former folding of the characters
// that changed.
func TestRules_NeverChange(t *testing.T) {
	t.Parallel()
	const lastLetter = 0x323af // of planes 0 to 3; the others have no characters that fold
	for rules, want := range map[fold.Rules]string{
		fold.Case:            "b14225a22ebc4c0c",
		fold.Accents:         "12cf95e770232acd",
		fold.NFC:             "d2daf4a103a08dae",
		fold.Case | fold.NFC: "a27f54263de039ad",
		fold.All:             "300ddfcf0ee042df",
	} {
		t.Run(rules.String(), func(t *testing.T) {
			t.Parallel()
			sum := sha256.New()
			for c := rune(0); c <= lastLetter; c++ {
				if folded := rules.Fold(string(c)); folded != string(c) {
					fmt.Fprintf(sum, "%x %x\n", string(c), folded)
				}
			}

			if got := hex.EncodeToString(sum.Sum(nil)[:8]); got != want {
				t.Errorf("the hash of all foldings is %s, want %s", got, want)
			}
		})
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	r, err := fold.Parse([]string{"nfc", "case"})
	if err != nil || r != fold.Case|fold.NFC || r.String() != "[case, nfc]" {
		t.Errorf("got %v, %v, want [case, nfc]", r, err)
	}

	for rules := range fold.All + 1 {
		fromText, err := fold.ParseText(rules.Text())
		if err != nil || fromText != rules {
			t.Errorf("got %v, %v from the text %q, want %v", fromText, err, rules.Text(), rules)
		}

		data, err := json.Marshal(rules)
		var fromJSON fold.Rules
		if err == nil {
			err = json.Unmarshal(data, &fromJSON)
		}

		if err != nil || fromJSON != rules {
			t.Errorf("got %v, %v from the JSON %s, want %v", fromJSON, err, data, rules)
		}
	}

	if _, err := fold.Parse([]string{"case", "width"}); err == nil ||
		!strings.Contains(err.Error(), `"width"`) {
		t.Errorf("got %v, want an error that names width", err)
	}

	if got := fold.Rules(0).Names(); got == nil || !slices.Equal(got, []string{}) {
		t.Errorf("got %#v, want an empty list", got)
	}
}
