package pages_test

import (
	"testing"

	"weir/internal/dashboard/dashboardtest"
)

// The page shows marks until the operator reveals the values with the key of functions/write. After
// that, the editor loads the body without marks, because Weir refuses an edited body that contains
// marks.
func TestActions_RevealRedactedValues(t *testing.T) {
	t.Parallel()
	b, a, f := openDesk(t)
	id := dashboardtest.MessageID(1)
	const whole = `<article path="/news/1"><author>Ada <b>K</b></author></article>`
	f.Change(func(d *dashboardtest.Data) {
		d.Bodies = map[string]string{
			id: `<article path="/news/1"><author>[redacted]</author></article>`}
	})

	path := "/api/messages/" + id + "/reveal"
	a.setAnswer("POST "+path, 409, `{"title":"Conflict","detail":"not now"}`, nil)
	visitWithKey(b, "/messages/"+id)
	b.Until("the body has a mark", innerText("#bodies pre.xml")+".includes('[redacted]')")
	b.Click("#reveal button")
	enterKey(b, writeKey)
	b.Until("the refusal is shown", innerText("#reveal output")+" === 'not now'")
	a.setAnswer("POST "+path, 200, whole, nil)
	b.Click("#reveal button")
	b.Until("the whole body is shown as text", innerText("#reveal pre")+" === '"+whole+"'")
	checkSent(b, a, "POST "+path+" as=text&which=accepted")
	b.Click("#edit summary")
	b.Until("the editor has the whole body",
		"document.getElementById('edited').value === '"+whole+"'")
	checkSent(b, a, "POST "+path+" as=text&which=accepted")
	savePicture(b, "revealed")
	b.Clean()
}
