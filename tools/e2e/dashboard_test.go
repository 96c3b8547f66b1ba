package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/tools/browser"
)

// TestDashboard_AnOperatorsDay operates the page in a browser, with a complete system behind the
// page. The operator finds dead messages, corrects one, and replays the others. Then the operator
// pauses and resumes a key.
func TestDashboard_AnOperatorsDay(t *testing.T) { inEachMode(t, testDashboardAnOperatorsDay) }

func testDashboardAnOperatorsDay(t *testing.T) {
	s, hostPort := newBareSystem(t), freePort(t)
	s.weir, s.app = "http://127.0.0.1:"+hostPort, s.stageApp()
	const key = "the key&1"
	s.startProgram("funchost", append(s.handlerEnv(), "FUNCTIONS_WORKER_RUNTIME=custom"),
		"--script-root", s.app, "--port", hostPort, "--give-up-after", "-1",
		"--state-dir", t.TempDir(), "--enableAuth", "--key", key)
	code := "?" + url.Values{"code": {key}}.Encode()
	s.awaitCondition("the system is ready", startLimit,
		func() bool { return s.getStatus(s.weir+"/api/health"+code) == http.StatusOK })

	s.setFaults(`{"rejectText":"Broken"}`)

	for n := range 5 {
		s.postTitled(code, fmt.Sprintf("/d/%d", n),
			`Broken &lt;script&gt;alert(1)&lt;/script&gt; ]]&gt;`)
	}

	if status := s.getStatus(s.weir + "/api/dashboard"); status != http.StatusUnauthorized {
		t.Errorf("without a key the page answers %d, want 401", status)
	}

	b := browser.Open(t, s.weir)
	b.Visit("/api/dashboard" + code)
	b.Until("five are dead", innerText("#tiles")+".replace(/\\s/g, '').includes('Dead5')")
	b.Until("the books balance",
		innerText("#books-title")+".includes('balanced') && !"+innerText("#books-title")+
			".includes('not')")
	b.Until("one error is listed", "document.querySelectorAll('#errors tbody tr').length === 1")

	s.setFaults(`{}`)
	b.Click("#errors tbody a")
	b.Until("its messages are listed",
		"document.querySelectorAll('#messages tbody tr').length === 5")
	b.Click("#messages tbody tr:last-child a.id")
	b.Until("the history is shown", "document.querySelector('#story') && "+innerText("#story")+
		".includes('Attempt 1: rejected') && "+innerText("pre.xml")+".includes('<article path=')")
	if got := browser.Eval[string](b, "document.querySelector('a[download]').href"); s.getStatus(got) != http.StatusOK {
		t.Errorf("GET %s = %d, want 200 with the body", got, s.getStatus(got))
	}

	b.Click("#edit summary")
	b.Until("the body is there", "document.getElementById('edited').value.includes('<title>')")
	browser.Eval[bool](b, "document.getElementById('edited').value = "+
		"document.getElementById('edited').value.replace(/<title>.*<\\/title>/s, '<title>Mended</title>'); true")
	b.Type("#edit [name=note]", "by hand")
	b.Click("#edit button")
	b.Until("it is delivered", innerText("#stage")+" === 'delivered'")
	b.Until("the difference is shown",
		innerText(".diff")+".includes('+  <title>Mended</title>') && "+
			innerText(".diff")+".includes('-  <title>')")

	b.Visit("/api/dashboard/errors" + code)
	b.Click("#errors tbody a")
	b.Until("four are left", innerText("#error")+".includes('Dead messages\\n4')")
	browser.Eval[bool](b, "document.querySelector('[name=ratePerMinute]').value = 6000; true")
	b.Click("[name=dryRun]")
	b.Until("they are counted", innerText("output")+".startsWith('4 messages of 4 keys match.')")
	b.Click("[data-after-dry]")
	b.Until("all were delivered",
		"location.pathname.includes('/replays/') && document.querySelector('#state') && "+
			innerText("#state")+" === 'done' && "+innerText("#progress")+
			".includes('4 of 4 messages')")

	b.Visit("/api/dashboard/pauses" + code + "&key=" + url.QueryEscape("/d/0"))
	b.Type("[data-action*='/api/pause'] [name=reason]", "looking into it")
	b.Click("[data-action*='/api/pause'] .primary")
	b.Until("the key is paused", innerText("#pauses")+".includes('key /d/0')")
	m := s.postTitled(code, "/d/0", "later")
	b.Visit("/api/dashboard/messages/" + m + code)
	b.Until("the message says what it waits for",
		innerText("#story")+".includes('its key is paused')")
	b.Visit("/api/dashboard/pauses" + code)
	b.Click("#pauses tbody button")
	b.Until("the page asks for a confirmation", "document.getElementById('ask').open")
	b.Click("#ask [value=yes]")
	b.Until("nothing is paused", innerText("#pauses")+".includes('Nothing is paused.')")
	b.Visit("/api/dashboard/messages/" + m + code)
	b.Until("it is delivered", innerText("#stage")+" === 'delivered'")
	b.Visit("/api/dashboard/messages" + code + "&q=" + url.QueryEscape("/d/"))
	b.Until("all are found", "document.querySelectorAll('.messages tbody tr').length === 6")
	b.Clean()
	if st := s.checkRecord(); st.Writes == 0 {
		t.Errorf("got %+v, want writes", st)
	}
}

// TestStop_KeepsTheFigures stops hosts shortly after the last delivery, and checks that the page
// still counts all attempts. A host that stops kills its handler 0.3 s later. On a busy machine,
// the handler cannot always write its attempts in that time. So the test stops up to twelve hosts,
// until two handlers have written their attempts. A delivery that is not committed before the kill
// would be repeated, so the test first waits for the last commit.
func TestStop_KeepsTheFigures(t *testing.T) {
	const each, want, most, written = 30, 2, 12, "history: the present minute is written"
	c := newFleetSystem(t, 1)
	inTime, counted := 0, 0
	for round := 0; inTime < want && round < most; round++ {
		before := strings.Count(c.output.String(), written)
		c.postMany(fmt.Sprint("figures", round), each)
		c.awaitWrittenOnce(each*(round+1), time.Minute)
		c.awaitCondition("every delivery is committed", time.Minute,
			func() bool { return c.sumBooks().Delivered == each*(round+1) })

		for _, h := range c.livingHosts() {
			if err := h.Stop(); err != nil {
				t.Fatal(err)
			}
			<-h.Done()
		}

		c.addHost()

		if strings.Count(c.output.String(), written) == before {
			counted = c.countAttempts(counted+each, 10*time.Second)
			continue
		}

		inTime++
		if got := c.countAttempts(counted+each, slowdown*10*time.Second); got != counted+each {
			t.Fatalf("after stop %d the page counts %d attempts, want %d", round, got, counted+each)
		}

		counted += each
	}

	if inTime < want {
		t.Errorf("%d of %d handlers had written their minute when they were killed, want %d at least", inTime,
			most, want)
	}
}

// countAttempts returns the number of attempts that the page shows. It reads the page until the
// number equals want or the time "limit" has passed.
func (c *fleetSystem) countAttempts(want int, limit time.Duration) (shown int) {
	c.t.Helper()
	pattern := regexp.MustCompile(`<dt>Attempts</dt><dd>(\d+)</dd>`)
	over := time.Now().Add(limit)

	// Reads without a pause would take the processor from the handlers.
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()

	for ; time.Now().Before(over) && shown != want; <-ticker.C {
		if found := pattern.FindStringSubmatch(c.readPage("/api/dashboard")); found != nil {
			shown, _ = strconv.Atoi(found[1])
		}
	}

	return shown
}

func (s *system) readPage(path string) string {
	s.t.Helper()
	res, err := http.Get(s.weir + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		s.t.Fatalf("got %d and %v for %s, want 200", res.StatusCode, err, path)
	}

	return string(text)
}

func innerText(selector string) string {
	return fmt.Sprintf("document.querySelector(%q).innerText", selector)
}

// postTitled posts an article and returns the message's id. code is the query string with the
// host's key.
func (s *system) postTitled(code, path, title string) string {
	s.t.Helper()
	body := fmt.Sprintf(`<article path="%s" version="1"><title>%s</title></article>`, path, title)
	resp, err := http.Post(s.weir+"/api/messages"+code, "application/xml", strings.NewReader(body))
	if err != nil || resp.StatusCode != http.StatusAccepted {
		s.t.Fatalf("post: %v %v, want status 202 and no error", resp, err)
	}
	defer resp.Body.Close()

	return strings.TrimPrefix(resp.Header.Get("Location"), s.weir+"/api/messages/")
}
