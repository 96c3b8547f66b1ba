package steps

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxRememberedID is the maximum length of a remembered id in bytes. A longer text is hardly an id,
// so Weir does not remember the text.
const maxRememberedID = 512

// rememberedName is the name by which expressions read the remembered id.
const rememberedName = "remembered"

// remembering records the uses of remembered ids in a chain.
type remembering struct {
	isRead     bool    // an expression reads the remembered id
	firstRead  place   // place of the first expression that reads the remembered id
	hasSetting bool    // a step has the setting "remember"
	forgets    []place // places of "do: forget" in the steps' own rules
}

func (c *compiler) compileRemember(settings map[string]pair, st *step, s *scope) {
	p, ok := settings["remember"]
	if !ok || c.chain == nil {
		return
	}

	f := c.file
	own := *s
	own.own = st
	st.remember = f.compileTemplate(p.value, p.at.path, &own)
	f.requireText(st.remember, p.placeOfValue())

	if st.remember.isConstant() && len(st.remember.parts) > 0 {
		f.addMistake(p.placeOfValue(),
			"it must have an expression with the id in the answer, such as {{ json.id }}")
	}

	c.chain.remembering.hasSetting = true
}

// checkRemembering records mistakes if the chain reads or forgets a remembered id, but no step has
// the setting "remember".
func (c *compiler) checkRemembering() {
	if c.chain == nil || c.chain.remembering.hasSetting {
		return
	}

	r := &c.chain.remembering
	if r.isRead {
		c.file.addMistake(r.firstRead,
			"no step remembers an id; write remember: \"{{ json.id }}\" in the step that "+
				"creates the item")
	}

	for _, at := range r.forgets {
		c.file.addMistake(at, "there is nothing to forget, because no step has remember")
	}
}

// rememberID keeps the id from a good answer of a step, for the attempt's result and for a further
// run of the chain in this attempt. A text that is blank, too long, not UTF-8 or has a zero byte is
// not an id, and is ignored.
func (r *run) rememberID(st *step, a *answer) error {
	if st.remember == nil {
		return nil
	}

	value, err := st.remember.evaluateLeaf(r.ownEnv(a))
	if err != nil {
		return fmt.Errorf("remember: %w", err)
	}

	id, err := toText(value)
	switch {
	case err != nil:
		return fmt.Errorf("remember: %w", err)
	case strings.TrimSpace(id) == "", len(id) > maxRememberedID, !utf8.ValidString(id),
		strings.Contains(id, "\x00"):
		return nil
	}

	r.rememberedID, r.learnedID = id, id

	return nil
}

// forgetID drops the remembered id, because the CMS no longer has the item.
func (r *run) forgetID() {
	r.isForgotten = r.isForgotten || r.rememberedID != ""
	r.rememberedID, r.learnedID = "", ""
}

// isGone reports whether the answer shows that the CMS no longer has the item of the remembered id.
// An answer shows this if its status is 404 or 410 and the step's address has the id.
func (r *run) isGone(st *step, a *answer) bool {
	return st.addressesRemembered && r.rememberedID != "" &&
		slices.Contains([]int{http.StatusNotFound, http.StatusGone}, a.Status)
}
