package pages_test

import (
	"fmt"
	"strings"
	"testing"

	"weir/internal/dashboard/dashboardtest"
	"weir/tools/browser"
)

func chooseMessage(b *browser.Tab, id string) {
	b.T.Helper()
	b.Click("input[data-stage][value='" + id + "']")
}

// deadIDs returns the ids of the first n dead messages in the list that the tab shows.
func deadIDs(b *browser.Tab, n int) []string {
	b.T.Helper()
	ids := strings.Fields(browser.Eval[string](b,
		"[...document.querySelectorAll(\"input[data-stage='dead']\")].map((box) => box.value).join(' ')"))
	if len(ids) < n {
		b.T.Fatalf("got %d dead messages in the list, want %d at least", len(ids), n)
	}
	return ids[:n]
}

func TestActions_ReplayChosenMessages(t *testing.T) {
	t.Parallel()
	b, a, _ := openDesk(t)
	visitWithKey(b, "/errors/"+dashboardtest.TitleError)
	ids := deadIDs(b, 3)
	for _, id := range ids[:2] {
		a.setAnswer("POST /api/messages/"+id+"/replay", 202, `{"id":"`+id+`","stage":"dead"}`, nil)
		chooseMessage(b, id)
	}

	a.setAnswer("POST /api/messages/"+ids[2]+"/replay", 409,
		`{"title":"Conflict","detail":"a later one was delivered"}`, nil)
	chooseMessage(b, ids[2])
	b.Until("three are counted", innerText("#replay-chosen button")+" === 'Replay 3 dead'")
	b.Click("#replay-chosen button")
	confirm(b, "Replay the chosen dead messages?")
	enterKey(b, writeKey)
	b.Until("the refusal is shown",
		innerText("#replay-chosen output")+
			fmt.Sprintf(" === %q",
				"2 requests are accepted.\n"+ids[2]+": a later one was delivered"))

	b.Until("the refused message stays chosen",
		innerText("#replay-chosen button")+" === 'Replay 1 dead'")
	checkSent(b, a, "POST /api/messages/"+ids[2]+"/replay")
	b.Clean()
}

func TestActions_DiscardChosenMessages(t *testing.T) {
	t.Parallel()
	b, a, _ := openDesk(t)
	visitWithKey(b, "/messages")
	ids := deadIDs(b, 2)
	for _, id := range ids {
		a.setAnswer("POST /api/messages/"+id+"/discard", 202, `{"id":"`+id+`","stage":"dead"}`, nil)
		chooseMessage(b, id)
	}

	b.Type("#discard-chosen [name=reason]", "a mistaken import")
	b.Click("#discard-chosen button")
	confirm(b, "They are never sent again")
	enterKey(b, writeKey)
	b.Until("both are accepted",
		innerText("#discard-chosen output")+" === '2 requests are accepted.'")
	b.Until("none is chosen any more", innerText("#discard-chosen button")+" === 'Discard 0 dead'")
	checkSent(b, a, "POST /api/messages/"+ids[1]+"/discard reason=a+mistaken+import")
	b.Clean()
}

func TestActions_CancelChosenMessages(t *testing.T) {
	t.Parallel()
	b, a, _ := openDesk(t)
	visitWithKey(b, "/messages")
	b.Click("[data-choose-all]")
	b.Until("waiting messages are counted",
		"!document.querySelector('#cancel-chosen button').disabled")
	b.Click("[data-choose-all]")
	b.Until("none is counted", innerText("#cancel-chosen button")+" === 'Cancel 0 waiting'")
	id := browser.Eval[string](b,
		"document.querySelector('input[data-stage=scheduled], input[data-stage=queued], input[data-stage=retrying]').value")
	a.setAnswer("POST /api/messages/"+id+"/cancel", 200, `{"id":"`+id+`","stage":"cancelled"}`, nil)
	chooseMessage(b, id)
	b.Click("#cancel-chosen button")
	confirm(b, "They will not be delivered")
	enterKey(b, writeKey)
	b.Until("it is accepted", innerText("#cancel-chosen output")+" === '1 request is accepted.'")
	checkSent(b, a, "POST /api/messages/"+id+"/cancel")
	b.Clean()
}
