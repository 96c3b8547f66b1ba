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
	isRead     bool
	firstRead  place   // the first place that reads the remembered id
	hasSetting bool    // a step has the setting remember
	forgets    []place // the rules that forget the id
}

// Remembers reports whether the steps of a contract use remembered ids.
func (s *Sender) Remembers(contract string) bool {
	ch := s.chains[contract]
	return ch != nil && ch.remembering.hasSetting
}

// compileRemember compiles the setting remember.
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

// checkRemembering records mistakes for the uses of remembered ids in a chain without a step that remembers
// one.
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

// rememberID stores the id that a good answer of a step has. The rest of the attempt reads this id, too.
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

// forgetID forgets the id, because the CMS no longer has its item.
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
