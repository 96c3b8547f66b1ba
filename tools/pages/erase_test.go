package pages_test

import (
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"weir/internal/dashboard/dashboardtest"
	"weir/internal/wire"
	"weir/tools/browser"
)

func changeMessage(f *dashboardtest.Source, id string, change func(*wire.MessageLine)) {
	f.Change(func(d *dashboardtest.Data) {
		d.Messages = slices.Clone(d.Messages)
		change(&d.Messages[slices.IndexFunc(d.Messages, func(m wire.MessageLine) bool { return m.ID == id })])
	})
}

func TestActions_Erase(t *testing.T) {
	t.Parallel()
	b, a, f := openDesk(t)
	id := dashboardtest.MessageID(1)
	path := "/api/messages/" + id + "/erase"
	a.setAnswer("POST "+path, 409,
		`{"title":"Conflict","detail":"a replay of the message is waiting"}`, nil)
	visitWithKey(b, "/messages/"+id)
	b.Click("#erase summary")
	b.Click("#erase button")
	b.Until("the page asks for a confirmation", "document.getElementById('ask').open && "+
		innerText("#ask-text")+".includes('That cannot be undone.')")
	b.Do(chromedp.KeyEvent(kb.Escape))
	b.Until("the form is ready again",
		"!document.getElementById('ask').open && !('busy' in document.querySelector('#erase form').dataset)")
	if got := a.lastRequest(); got != "" {
		t.Errorf("sent %s without a confirmation, want no request", got)
	}

	b.Click("#erase button")
	confirm(b, "Erase body, answers, notes and key")
	enterKey(b, writeKey)
	b.Until("the refusal is shown",
		innerText("#erase output")+" === 'a replay of the message is waiting'")
	a.setAnswer("POST "+path, 200, `{"stage":"dead"}`, func() {
		changeMessage(f, id, func(m *wire.MessageLine) {
			m.ErasedAt, m.Key, m.LastError = dashboardtest.Noon, "sha256:00ff", "erased"
		})
	})

	b.Click("#erase button")
	confirm(b, "Erase body, answers, notes and key")
	b.Until("the page reports the erasure",
		innerText("#toasts")+".includes('The content of the message is erased.')")
	checkSent(b, a, "POST "+path)
	b.Until("the page shows the erasure, and offers neither replay nor erasure",
		innerText("#erased")+".includes('The content of this message was erased at')"+
			" && !document.getElementById('erase') && !document.getElementById('replay')"+
			" && "+innerText("#facts")+".includes('sha256:00ff')")

	b.Until("the page shows the body no longer",
		"!document.querySelector('pre.xml, a[download]') && "+
			innerText("#bodies")+".includes('not kept')")
	savePicture(b, "erased")
	b.Clean()
}

// Only a final message can be erased, so the page of any other message offers no erasure.
func TestActions_EraseIsForFinalMessages(t *testing.T) {
	t.Parallel()
	b, _, _ := openDesk(t)

	// message 1 is dead, message 3 is retrying
	for n, want := range map[int]bool{1: true, 3: false} {
		visitWithKey(b, "/messages/"+dashboardtest.MessageID(n))
		if got := browser.Eval[bool](b, "document.getElementById('erase') !== null"); got != want {
			t.Errorf("message %d: erasure offered is %v, want %v", n, got, want)
		}
	}

	b.Clean()
}

func TestActions_ForgetVersion(t *testing.T) {
	t.Parallel()
	b, a, f := openDesk(t)
	id := dashboardtest.MessageID(1)
	const key = `/news/"1" & <b>`
	changeMessage(f, id, func(m *wire.MessageLine) {
		m.Key, m.VersionWarning = key, "1767960000000 is a hundred times 17"
		m.AcceptedAt = m.AcceptedAt.Add(-time.Second)
	})

	a.setAnswer("POST /api/versions/forget", 404,
		`{"title":"Not Found","detail":"no version is remembered"}`, nil)
	visitWithKey(b, "/messages/"+id)
	b.Until("the warning is shown",
		innerText("#version-warning")+".includes('1767960000000 is a hundred times 17')")
	savePicture(b, "version-warning")
	b.Click("#version-warning button")
	confirm(b, "Forget the delivered version of this key?")
	enterKey(b, writeKey)
	b.Until("the refusal is shown",
		innerText("#version-warning output")+" === 'no version is remembered'")
	a.setAnswer("POST /api/versions/forget", 202, `{"key":"k","lane":0,"versions":[]}`, nil)
	b.Click("#version-warning button")
	confirm(b, "Forget the delivered version of this key?")
	b.Until("the page reports the request",
		innerText("#toasts")+".includes('Weir was asked to forget the version')")
	checkSent(b, a, `POST /api/versions/forget  application/json {"key":"/news/\"1\" & <b>","contract":"article"}`)
	b.Clean()
}
