package app

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"

	"weir/internal/weir"
)

// recipeUnderTest is a recipe with a fake CMS.
type recipeUnderTest struct {
	// open returns the recipe and its CMS, which has an item for each slug.
	open func(t *testing.T, slugs ...string) (*recipe, store)
	// messages has a message of each contract, by the contract's name. %s stands for the key.
	messages map[string]string
	// keepsSlug is the reason why the CMS never stores another slug than the requested one. Empty =
	// it can.
	keepsSlug string
	// hasNoDrafts has the contracts whose items the CMS can only publish.
	hasNoDrafts []string
}

var bySlug = map[string]string{
	"article": `<article slug="%s" version="3"><title>T</title><body><p>x</p></body></article>`,
	"delete":  `<delete slug="%s"/>`,
}

var byPath = map[string]string{
	"article": `<article path="/%s" version="3"><title>T</title><body><p>x</p></body></article>`,
	"delete":  `<delete path="/%s"/>`,
}

// hostileKeys are keys that CMSs take for other ones: by case, accents and blanks, by a part of the
// text, as a list, as a value of another type, as a number, as a variable, as a page or an address
// of the CMS's own.
var hostileKeys = []string{"Some Slug!", "some_slug", "some--slug", "X", "x\u0301", "x,some-slug",
	"news-1", "8888",
	"about", "rss", "null", "true", "$NOW", "$CURRENT_USER", "*", "%", "..", "x/news-10",
	"!!!", "x&#10;y",
	"Stra\u00dfe",
	// a mark more, except white space, which Weir trims; another character that looks the same
	"some-slug\u00a0", "\u200bsome-slug", "some\u00adslug", "some\u2011slug",
	"s\u043eme-slug", "\uff58", "s0me-slug",
	// a part of an address, a filter or a pattern more
	"some-slug/", "./some-slug", "some-slug/../x", "x/..", "some%2Dslug", "some-slug%00",
	"some-slug%20",
	"some-slug?x=1",
	"some-slug#x", "some-slug&amp;x=1", "some-slu", "ome-slug", "some-slu_", "some-slu%",
	"some-slug*", "some-slug|x",
	"(some-slug)", "[some-slug]", "some-slug;", "some-slug\\", "'some-slug'",
	"&quot;some-slug&quot;",
	"x' or '1'='1", "some-slug.json"}

// otherItems are the slugs of the items that the CMS has, and that no message of a hostile key may
// touch.
var otherItems = []string{"some-slug", "x", "news-10", "strasse"}

// isFoundLoosely compares as loosely as any CMS: without case, accents and blanks, by a part of the
// text, by a list, and with everything for a text that is no filter.
func isFoundLoosely(stored, asked string) bool {
	fold := func(text string) string {
		var b strings.Builder
		for _, r := range norm.NFD.String(strings.ToLower(strings.TrimSpace(text))) {
			switch {
			case r >= 0x300 && r < 0x370:
			case r == 'ß':
				b.WriteString("ss")
			default:
				b.WriteRune(r)
			}
		}

		return b.String()
	}

	stored, asked = fold(stored), fold(asked)
	return strings.Contains(stored, asked) || slices.Contains(strings.Split(asked, ","), stored) ||
		slices.Contains([]string{"", "null", "*", "%"}, asked)
}

// listContracts returns the names of the contracts. A delete comes first, and again at the end: it
// removes the item that the others have made.
func (c recipeUnderTest) listContracts() []string {
	names := slices.Sorted(maps.Keys(c.messages))
	if _, hasDelete := c.messages["delete"]; !hasDelete {
		return names
	}
	others := slices.DeleteFunc(names, func(name string) bool { return name == "delete" })
	return slices.Concat([]string{"delete"}, others, []string{"delete"})
}

// sendHostile makes one attempt for a message, and returns why the message is refused because of
// its key: by the contract, or by a look-up. An empty text means that it is not refused so.
func (r *recipe) sendHostile(body string) string {
	r.t.Helper()
	if _, err := r.app.contracts.Accept(r.t.Context(), "application/xml", []byte(body)); err !=
		nil {
		return "not accepted"
	}

	got := r.sendBody(body)
	isOther := func(s weir.Step) bool { return s.Name != "find" && s.Name != "live" }
	if got.Outcome == weir.OutcomeDelivered || slices.ContainsFunc(got.Steps, isOther) {
		return ""
	}

	return fmt.Sprint(got.Outcome, ": ", got.Reason)
}

// A CMS can store another slug than the one that it is asked for, with a status of success. The
// recipe then refuses the message, and leaves nothing behind: nothing that visitors could see
// meanwhile, and nothing for each replay.
func TestRecipes_NoSideEffectBeforeTheCheck(t *testing.T) {
	t.Parallel()
	for name, c := range recipesUnderTest() {
		if c.keepsSlug != "" {
			continue
		}

		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for contract, message := range c.messages {
				if contract == "delete" {
					continue
				}

				r, cms := c.open(t)
				cms.take(liberties{rename: func(asked string) string { return asked + "-2" }})
				before := cms.snapshot()
				for range 3 {
					got := r.sendBody(fmt.Sprintf(message, "harbour-opens"))
					if got.Outcome != weir.OutcomeRejected ||
						!strings.Contains(got.Reason, "harbour-opens-2") {
						t.Errorf(
							"%s: got %+v, want it rejected, and the slug that the CMS made as reason", contract,
							got)
					}

					if got := cms.snapshot(); !maps.Equal(got, before) {
						t.Errorf("%s: got the items %v, want only %v", contract, got, before)
					}
				}

				if got := cms.listPublished(); len(got) > 0 &&
					!slices.Contains(c.hasNoDrafts, contract) {
					t.Errorf("%s: got %v published, want none", contract, got)
				}
			}
		})
	}
}

// Each recipe must be among those that the tests over all recipes try.
func TestRecipes_AllAreTried(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../recipes/*/weir.yaml")
	if err != nil {
		t.Fatal(err)
	}

	all := recipesUnderTest()
	for _, file := range files {
		if _, isTried := all[filepath.Base(filepath.Dir(file))]; !isTried {
			t.Errorf("%s is not among the recipes under test, want all of recipes/", file)
		}
	}
}
