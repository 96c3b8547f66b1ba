//go:build !race || long

package app

import (
	"fmt"
	"maps"
	"testing"

	"weir/internal/diagnosis"
)

// Whatever a CMS takes for the item of a key, no contract of a recipe writes to the item of another
// key. The rules about keys hold in all contracts: a delete refuses the keys that an article
// refuses, with the same reason. Otherwise the delete would remove the item of another key, out of
// order with the messages of that key.
func TestRecipes_SameGuardInAllContracts(t *testing.T) {
	t.Parallel()
	for name, c := range recipesUnderTest() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, cms := c.open(t, otherItems...)
			if got := diagnosis.WarnLookUps(&r.app.settings, r.app.sender, nil); len(got) > 0 {
				t.Errorf("got the warnings %q, want none", got)
			}

			cms.take(liberties{isFound: isFoundLoosely})
			before := cms.snapshot()
			for _, key := range hostileKeys {
				refusals := map[string]string{}
				for _, contract := range c.listContracts() {
					refusals[contract] = r.sendHostile(fmt.Sprintf(c.messages[contract], key))
					for id, content := range before {
						if got := cms.snapshot()[id]; got != content {
							t.Errorf(
								"%s of the key %q: got the item %s\n%s\nwant it untouched:\n%s",
								contract, key,
								id, got, content)
						}
					}
				}

				for contract, refusal := range refusals {
					if refusal != refusals["article"] {
						t.Errorf("the key %q: %s: got %q, and article: %q; want the same", key,
							contract, refusal, refusals["article"])
					}
				}

				if !maps.Equal(cms.snapshot(), before) { // the item of this key is there
					r, cms = c.open(t, otherItems...)
					cms.take(liberties{isFound: isFoundLoosely})
				}
			}
		})
	}
}
