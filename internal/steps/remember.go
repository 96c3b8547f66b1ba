package steps

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxRememberedID bounds a remembered id in bytes. Weir does not remember a longer text, because it is hardly
// an id.
const maxRememberedID = 512

// rememberedName is the name by which expressions read the id that an earlier message of the key remembered.
const rememberedName = "remembered"

// remembering records the uses of remembered ids in a chain.
type remembering struct {
	isRead     bool    // an expression reads the remembered id
	firstRead  place   // the first place that reads the remembered id
	hasSetting bool    // a step has the setting "remember"
	forgets    []place // places of the steps' own rules that forget the id
}

// Remembers reports whether a step of the contract has the setting "remember".
func (s *Sender) Remembers(contract string) bool {
	ch := s.chains[contract]
	return ch != nil && ch.remembering.hasSetting
}

// compileRemember compiles the setting "remember".
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
		f.addMistake(p.placeOfValue(), "it must have an expression with the id in the answer, such as {{ json.id }}")
	}
	c.chain.remembering.hasSetting = true
}

// checkRemembering records a mistake if expressions or rules of a chain use the remembered id, and no step has the
// setting "remember".
func (c *compiler) checkRemembering() {
	if c.chain == nil || c.chain.remembering.hasSetting {
		return
	}
	r := &c.chain.remembering
	if r.isRead {
		c.file.addMistake(r.firstRead, "no step remembers an id; write remember: \"{{ json.id }}\" in the step that "+
			"creates the item")
	}
	for _, at := range r.forgets {
		c.file.addMistake(at, "there is nothing to forget, because no step has remember")
	}
}

// rememberID takes the id from a good answer of a step, for the result of the attempt and for the later steps. A text
// that cannot be an id is ignored: it is blank, too long, not UTF-8, or has a zero byte.
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
	case strings.TrimSpace(id) == "", len(id) > maxRememberedID, !utf8.ValidString(id), strings.Contains(id, "\x00"):
		return nil
	}
	r.rememberedID, r.learnedID = id, id
	return nil
}

// forgetID forgets the remembered id, because the CMS no longer has its item.
func (r *run) forgetID() {
	r.isForgotten = r.isForgotten || r.rememberedID != ""
	r.rememberedID, r.learnedID = "", ""
}

// isGone reports whether an answer means that the CMS no longer has the item. The step must have addressed the
// item by the remembered id.
func (r *run) isGone(st *step, a *answer) bool {
	return st.addressesRemembered && r.rememberedID != "" &&
		slices.Contains([]int{http.StatusNotFound, http.StatusGone}, a.Status)
}
