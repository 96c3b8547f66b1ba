package e2e_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"weir/tools/browser"
)

// TestDashboard_AnOperatorsDay takes the page through a bad day, in a browser, against the
// whole system: messages die, they are found, one is corrected, the rest is replayed, a key
// is paused and resumed.
func TestDashboard_AnOperatorsDay(t *testing.T) { inEachMode(t, testDashboardAnOperatorsDay) }

func testDashboardAnOperatorsDay(t *testing.T) {
	s, hostPort := newBareSystem(t), freePort(t)
	s.weir, s.app = "http://127.0.0.1:"+hostPort, s.stage()
	const key = "the key&1"
	s.start("funchost", append(s.env(), "FUNCTIONS_WORKER_RUNTIME=custom"), "--script-root", s.app, "--port", hostPort, "--give-up-after", "-1",
		"--state-dir", t.TempDir(), "--enableAuth", "--key", key)
	code := "?" + url.Values{"code": {key}}.Encode()
	s.eventually("the system is ready", startLimit, func() bool { return s.status(s.weir+"/api/health"+code) == http.StatusOK })

	s.faults(`{"rejectText":"Broken"}`)
	for n := range 5 {
		s.postWith(code, fmt.Sprintf("/d/%d", n), `Broken &lt;script&gt;alert(1)&lt;/script&gt; ]]&gt;`)
	}
	if status := s.status(s.weir + "/api/dashboard"); status != http.StatusUnauthorized {
		t.Errorf("without a key the page answers %d", status)
	}
	b := browser.Open(t, s.weir)
	b.Visit("/api/dashboard" + code)
	b.Until("five are dead", text("#tiles")+".replace(/\\s/g, '').includes('Dead5')")
	b.Until("the books balance", text("#books-title")+".includes('balanced') && !"+text("#books-title")+".includes('not')")
	b.Until("they died of one thing", "document.querySelectorAll('#errors tbody tr').length === 1")

	s.faults(`{}`)
	b.Click("#errors tbody a")
	b.Until("its messages are listed", "document.querySelectorAll('#messages tbody tr').length === 5")
	b.Click("#messages tbody tr:last-child a.id")
	b.Until("the story is told", "document.querySelector('#story') && "+text("#story")+".includes('Attempt 1: rejected') && "+text("pre.xml")+".includes('<article path=')")
	if got := browser.Eval[string](b, "document.querySelector('a[download]').href"); s.status(got) != http.StatusOK {
		t.Errorf("the body is not at %s", got)
	}
	b.Click("#edit summary")
	b.Until("the body is there", "document.getElementById('edited').value.includes('<title>')")
	browser.Eval[bool](b, "document.getElementById('edited').value = document.getElementById('edited').value.replace(/<title>.*<\\/title>/s, '<title>Mended</title>'); true")
	b.Type("#edit [name=note]", "by hand")
	b.Click("#edit button")
	b.Until("it is delivered", text("#stage")+" === 'delivered'")
	b.Until("the difference is shown", text(".diff")+".includes('+  <title>Mended</title>') && "+text(".diff")+".includes('-  <title>')")

	b.Visit("/api/dashboard/errors" + code)
	b.Click("#errors tbody a")
	b.Until("four are left", text("#error")+".includes('Dead messages\\n4')")
	browser.Eval[bool](b, "document.querySelector('[name=ratePerMinute]').value = 6000; true")
	b.Click("[name=dryRun]")
	b.Until("they are counted", text("output")+".startsWith('4 messages of 4 keys match.')")
	b.Click("[data-after-dry]")
	b.Until("all were delivered", "location.pathname.includes('/replays/') && document.querySelector('#state') && "+text("#state")+" === 'done' && "+text("#progress")+".includes('4 of 4 messages')")

	b.Visit("/api/dashboard/pauses" + code + "&key=" + url.QueryEscape("/d/0"))
	b.Type("[data-action*='/api/pause'] [name=reason]", "looking into it")
	b.Click("[data-action*='/api/pause'] .primary")
	b.Until("the key is paused", text("#pauses")+".includes('key /d/0')")
	m := s.postWith(code, "/d/0", "later")
	b.Visit("/api/dashboard/messages/" + m + code)
	b.Until("the message says what it waits for", text("#story")+".includes('its key is paused')")
	b.Visit("/api/dashboard/pauses" + code)
	b.Click("#pauses tbody button")
	b.Until("it is asked whether it is meant", "document.getElementById('ask').open")
	b.Click("#ask [value=yes]")
	b.Until("nothing is paused", text("#pauses")+".includes('Nothing is paused.')")
	b.Visit("/api/dashboard/messages/" + m + code)
	b.Until("it is delivered", text("#stage")+" === 'delivered'")
	b.Visit("/api/dashboard/messages" + code + "&q=" + url.QueryEscape("/d/"))
	b.Until("all are found", "document.querySelectorAll('.messages tbody tr').length === 6")
	b.Clean()
	if st := s.clean(); st.Writes == 0 {
		t.Errorf("%+v", st)
	}
}

func text(selector string) string {
	return fmt.Sprintf("document.querySelector(%q).innerText", selector)
}

// postWith posts an article with the host's key, and gives its id.
func (s *system) postWith(code, path, title string) string {
	s.t.Helper()
	body := fmt.Sprintf(`<article path="%s" version="1"><title>%s</title></article>`, path, title)
	resp, err := http.Post(s.weir+"/api/messages"+code, "application/xml", strings.NewReader(body))
	if err != nil || resp.StatusCode != http.StatusAccepted {
		s.t.Fatalf("post: %v %v", resp, err)
	}
	defer resp.Body.Close()
	return strings.TrimPrefix(resp.Header.Get("Location"), s.weir+"/api/messages/")
}
