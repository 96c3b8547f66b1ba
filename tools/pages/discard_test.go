package pages_test

import (
	"testing"

	"weir/internal/dashboard/dashboardtest"
)

func TestActions_DiscardADeadMessage(t *testing.T) {
	t.Parallel()
	b, a, _ := openDesk(t)
	id := dashboardtest.MessageID(1)
	path := "/api/messages/" + id + "/discard"
	a.setAnswer("POST "+path, 202, `{"id":"`+id+`","stage":"dead"}`, nil)
	visitWithKey(b, "/messages/"+id)
	b.Type("#discard [name=reason]", "gone")
	b.Click("#discard .danger")
	confirm(b, "It is never sent again")
	enterKey(b, writeKey)
	b.Until("it is asked for", innerText("#toasts")+".includes('Discard requested')")
	checkSent(b, a, "POST "+path+" reason=gone")
	b.Clean()
}

func TestActions_DiscardAllOfAnError(t *testing.T) {
	t.Parallel()
	b, a, _ := openDesk(t)
	a.setAnswer("POST /api/discards", 202,
		`{"selected":387,"asked":387,"tooLate":0,"complete":true}`, nil)
	visitWithKey(b, "/errors/"+dashboardtest.TitleError)
	b.Type("#discard [name=reason]", "a mistaken import")
	b.Click("#discard .danger")
	confirm(b, "Discard all dead messages of this error?")
	enterKey(b, writeKey)
	b.Until("it is asked for",
		innerText("#toasts")+".includes('Discard of 387 messages requested')")
	checkSent(b, a, `POST /api/discards  application/json {"filter":{"fingerprint":"`+
		dashboardtest.TitleError+`"},"reason":"a mistaken import"}`)
	b.Clean()
}
