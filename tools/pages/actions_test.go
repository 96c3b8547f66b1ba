package pages_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"weir/internal/dashboard/dashboardtest"
	"weir/internal/weir"
	"weir/internal/wire"
	"weir/tools/browser"
)

const viewKey, writeKey = "view &key=1", "write-key"

// keyedAPI answers the page's requests and checks their keys, as the Functions host does. A GET
// needs the key of functions/view. Any other request needs the key of functions/write. keyedAPI
// records the requests other than GET that have the right key, and gives them canned answers.
type keyedAPI struct {
	pages http.Handler

	mu        sync.Mutex
	view      string                  // key of functions/view
	got       []string                // recorded requests as text
	answers   map[string]cannedAnswer // by method and path; other requests get 404
	noneMatch string                  // If-None-Match of the last recorded request
}

type cannedAnswer struct {
	status int
	body   string
	then   func() // called before the answer is sent; nil = no call
}

func (a *keyedAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	want, key := a.viewKey(), r.Header.Get("x-functions-key")
	if r.Method != http.MethodGet {
		want = writeKey
	}

	if key == "" {
		key = r.URL.Query().Get("code")
	}

	if key != want {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}

	if r.Method == http.MethodGet {
		a.pages.ServeHTTP(w, r)
		return
	}

	a.mu.Lock()
	defer a.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	a.noneMatch = r.Header.Get("If-None-Match")
	q := r.URL.Query()
	q.Del("code")
	a.got = append(a.got, strings.TrimSpace(fmt.Sprintf("%s %s %s %s %s", r.Method, r.URL.Path, q.Encode(),
		r.Header.Get("Content-Type"), body)))
	canned, known := a.answers[r.Method+" "+r.URL.Path]
	if !known {
		w.WriteHeader(http.StatusNotFound)
		return
	}

	if canned.then != nil {
		canned.then()
	}

	w.WriteHeader(canned.status)
	io.WriteString(w, canned.body)
}

func (a *keyedAPI) viewKey() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.view
}

// changeKey replaces the key of functions/view.
func (a *keyedAPI) changeKey(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.view = key
}

func (a *keyedAPI) setAnswer(to string, status int, body string, then func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answers[to] = cannedAnswer{status, body, then}
}

func (a *keyedAPI) lastRequest() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.got) == 0 {
		return ""
	}
	return a.got[len(a.got)-1]
}

func (a *keyedAPI) lastNoneMatch() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.noneMatch
}

// openDesk starts the pages of dashboardtest.NewBusy behind a keyedAPI, and opens a browser for
// them.
func openDesk(t *testing.T) (*browser.Tab, *keyedAPI, *dashboardtest.Source) {
	t.Helper()
	f := dashboardtest.NewBusy()
	a := &keyedAPI{pages: f.Dashboard(), view: viewKey, answers: map[string]cannedAnswer{}}
	return openBrowser(t, a), a, f
}

// visitWithKey visits a page with the key of functions/view in the address.
func visitWithKey(b *browser.Tab, path string) {
	b.T.Helper()
	b.Visit("/api/dashboard" + path + "?code=view+%26key%3D1")
}

func enterKey(b *browser.Tab, key string) {
	b.T.Helper()
	b.Until("the key is asked for", "document.getElementById('key').open")
	b.Type("#key-value", key+browser.Enter)
}

// confirm waits for a dialog whose question contains the text of the parameter "asked", and answers
// yes.
func confirm(b *browser.Tab, asked string) {
	b.T.Helper()
	b.Until("the dialog asks: "+asked,
		"document.getElementById('ask').open && "+innerText("#ask-text")+".includes("+
			fmt.Sprintf("%q", asked)+")")
	b.Click("#ask [value=yes]")
}

func innerText(selector string) string {
	return "document.querySelector(" + fmt.Sprintf("%q", selector) + ").innerText"
}

func checkSent(b *browser.Tab, a *keyedAPI, want string) {
	b.T.Helper()
	if got := a.lastRequest(); got != want {
		b.T.Errorf("sent\n%s\nwant\n%s", got, want)
	}
}

func TestActions_ReplayAsksForTheKeyOnce(t *testing.T) {
	t.Parallel()
	b, a, f := openDesk(t)
	path := "/api/messages/" + dashboardtest.MessageID(1) + "/replay"
	a.setAnswer("POST "+path, 202, `{"id":"x","stage":"dead"}`, func() {
		f.Change(func(d *dashboardtest.Data) {
			i := slices.IndexFunc(d.Messages, func(m wire.MessageLine) bool {
				return m.ID == dashboardtest.MessageID(1)
			})
			d.Messages = slices.Clone(d.Messages)
			d.Messages[i].Stage = weir.Queued
		})
	})

	visitWithKey(b, "/messages/"+dashboardtest.MessageID(1))
	b.Click("#replay button")
	enterKey(b, "wrong")
	b.Until("the key is refused",
		"document.getElementById('key').open && !document.getElementById('key-wrong').hidden")
	enterKey(b, writeKey)
	b.Until("the page reports the replay",
		innerText("#toasts")+".includes('Replay requested.')")
	checkSent(b, a, "POST "+path)
	b.Until("the page shows the new stage",
		innerText("#stage")+" === 'queued' && !document.getElementById('replay') && document.getElementById('cancel')")

	// From here on, the page must not ask for the key again.
	a.setAnswer("POST /api/pause", 200, `{"pauses":[]}`, nil)
	visitWithKey(b, "/pauses")
	b.Type("[data-action*='/api/pause'] [name=lane]", "3")
	b.Type("[data-action*='/api/pause'] [name=reason]", `a "reason"`)
	b.Do(chromedp.SetValue(chromedp.CSS("[data-action*='/api/pause'] [name=for]"), "30m"))
	b.Click("[data-action*='/api/pause'] .primary")
	b.Until("it is paused", innerText("#toasts")+".includes('Paused.')")
	checkSent(b, a, `POST /api/pause  application/json {"lane":3,"reason":"a \"reason\"","for":"30m"}`)
	b.Clean()
}

// The page forgets a key after 15 minutes without use. Otherwise a tab that a user leaves open
// would allow changes for ever.
func TestActions_AnIdleKeyIsForgotten(t *testing.T) {
	t.Parallel()
	b, a, _ := openDesk(t)
	a.setAnswer("POST /api/pause", 200, `{"pauses":[]}`, nil)
	pause := func() {
		visitWithKey(b, "/pauses")
		b.Type("[data-action*='/api/pause'] [name=reason]", "r")
		b.Click("[data-action*='/api/pause'] .primary")
	}

	pause()
	enterKey(b, writeKey)
	b.Until("it is paused", innerText("#toasts")+".includes('Paused.')")
	browser.Eval[float64](b, `Object.keys(sessionStorage).map((name) => {
		const kept = JSON.parse(sessionStorage.getItem(name));
		sessionStorage.setItem(name, JSON.stringify({ ...kept, usedAt: kept.usedAt - 15 * 60 * 1000 }));
	}).length`)

	pause()
	b.Until("the key is asked for", "document.getElementById('key').open")
	if kept := browser.Eval[float64](b, "sessionStorage.length"); kept != 0 {
		t.Errorf("got %v stored keys, want none", kept)
	}

	b.Clean()
}

func TestActions_EscapeInsteadOfAKeyDoesNothing(t *testing.T) {
	t.Parallel()
	b, a, _ := openDesk(t)
	visitWithKey(b, "/messages/"+dashboardtest.MessageID(1))
	b.Click("#replay button")
	b.Until("the key is asked for", "document.getElementById('key').open")
	b.Do(chromedp.KeyEvent(kb.Escape))
	b.Until("the form is ready again",
		"!document.getElementById('key').open && !('busy' in document.getElementById('replay').dataset)")
	if got := a.lastRequest(); got != "" {
		t.Errorf("sent %s, want none", got)
	}

	b.Clean()
}

func TestActions_EditShowsTheContractsProblems(t *testing.T) {
	t.Parallel()
	b, a, _ := openDesk(t)
	path := "/api/messages/" + dashboardtest.MessageID(1) + "/edit"
	a.setAnswer("POST "+path, 422,
		`{"title":"Unprocessable Entity","detail":"the message breaks its contract","problems":[{"path":"./title",`+
			`"rule":"max=200","message":"is too long"}]}`, nil)
	visitWithKey(b, "/messages/"+dashboardtest.MessageID(1))
	b.Click("#edit summary")
	b.Until("the body is there", "document.getElementById('edited').value.startsWith('<?xml')")
	b.Do(chromedp.SetValue(chromedp.CSS("#edited"), "<article>ü</article>"))
	b.Type("#edit [name=note]", "a note")
	b.Click("#edit [name=force]")
	b.Click("#edit button")
	confirm(b, "It would be overwritten.")
	enterKey(b, writeKey)
	b.Until("the problems are shown",
		innerText("#edit output")+".includes('breaks its contract') && "+innerText("#edit output")+
			".includes('./title: is too long')")
	checkSent(b, a, "POST "+path+
		" force=true&note=a+note application/xml; charset=utf-8 <article>ü</article>")

	if got := browser.Eval[string](b, "document.getElementById('edited').value"); got !=
		"<article>ü</article>" {
		t.Errorf("got the text %q in the editor, want it unchanged", got)
	}

	b.Clean()
}

func TestActions_ReplayAllOfAnError(t *testing.T) {
	t.Parallel()
	b, a, _ := openDesk(t)
	a.setAnswer("POST /api/replays", 200,
		`{"count":387,"complete":true,"estimatedSeconds":194,"keys":301,"refused":4}`, nil)
	visitWithKey(b, "/errors/"+dashboardtest.TitleError)
	if !browser.Eval[bool](b, "document.querySelector('[data-after-dry]').disabled") {
		t.Error("the replay is enabled before the messages were counted, want it disabled")
	}

	b.Type("[name=reason]", "limit raised")
	b.Click("[name=dryRun]")
	enterKey(b, writeKey)
	b.Until("it was counted", innerText("output")+
		".includes('387 messages of 301 keys match.') && "+innerText("output")+
		".includes('4 of them would be refused') && "+innerText("output")+
		".includes('To replay 383 messages takes about 3 min.')")

	checkSent(b, a, `POST /api/replays  application/json {"filter":{"fingerprint":"`+
		dashboardtest.TitleError+
		`"},"ratePerMinute":60,"stopAtErrorRate":0.5,"reason":"limit raised","dryRun":true}`)
	a.setAnswer("POST /api/replays", 202, `{"id":"r1","state":"running"}`, nil)
	b.Click("[data-after-dry]")
	b.Until("its progress is shown",
		"location.pathname.endsWith('/replays/r1') && "+innerText("h1")+
			".includes('title limit was raised')")
	checkSent(b, a, `POST /api/replays  application/json {"filter":{"fingerprint":"`+
		dashboardtest.TitleError+
		`"},"ratePerMinute":60,"stopAtErrorRate":0.5,"reason":"limit raised"}`)
	a.setAnswer("DELETE /api/replays/r1", 200, `{"id":"r1","state":"cancelled"}`, nil)
	b.Click("#main .danger")
	confirm(b, "Cancel the replay?")
	b.Until("it is cancelled", innerText("#toasts")+".includes('The replay is cancelled')")
	b.Clean()
}

func TestActions_CancelABatch(t *testing.T) {
	t.Parallel()
	b, a, _ := openDesk(t)
	const id = "90523457719920123456789abcdef"
	visitWithKey(b, "/batches")
	b.Click("#batch-" + id + " a")
	b.Until("the batch is shown", "location.pathname.endsWith('/batches/"+id+"') && "+
		innerText("#problems")+".includes('monday/feed.xml')")
	a.setAnswer("DELETE /api/batches/"+id, 202, `{"id":"`+id+`","state":"filing"}`, nil)
	b.Click("#cancel .danger")
	confirm(b, "Cancel the batch?")
	enterKey(b, writeKey)
	b.Until("it is requested", innerText("#toasts")+".includes('Cancellation requested.')")
	checkSent(b, a, "DELETE /api/batches/"+id)
	b.Clean()
}

func TestActions_ReplayByFilter(t *testing.T) {
	t.Parallel()
	b, a, _ := openDesk(t)
	a.setAnswer("POST /api/replays", 200,
		`{"count":4,"complete":true,"estimatedSeconds":0,"keys":1,"refused":4}`, nil)
	visitWithKey(b, "/replays")
	b.Type("[name='filter.key']", "/news/1")
	b.Type("[name='filter.lane']", "2")
	b.Do(chromedp.SetValue(chromedp.CSS("[name='filter.contract']"), "article"))
	b.Do(chromedp.SetValue(chromedp.CSS("[name='filter.from']"), "2026-11-20T01:30"))
	b.Click("[name=dryRun]")
	enterKey(b, writeKey)
	b.Until("the page reports why none can be replayed", innerText("output")+
		".includes('None is left to replay. Tick Force') && document.querySelector('[data-after-dry]').disabled")
	const filter = `"filter":{"key":"/news/1","lane":2,"contract":"article","from":"2026-11-20T01:30:00.000Z"},` +
		`"ratePerMinute":60,"stopAtErrorRate":0.5`
	checkSent(b, a, "POST /api/replays  application/json {"+filter+`,"dryRun":true}`)
	a.setAnswer("POST /api/replays", 200,
		`{"count":4,"complete":true,"estimatedSeconds":4,"keys":1,"refused":0}`, nil)
	b.Click("[name=force]")
	b.Click("[name=dryRun]")
	b.Until("all would be replayed", innerText("[data-after-dry]")+" === 'Replay 4 messages'")
	a.setAnswer("POST /api/replays", 202, `{"id":"r1","state":"running"}`, nil)
	b.Click("[data-after-dry]")
	confirm(b, "would be overwritten")
	b.Until("its progress is shown", "location.pathname.endsWith('/replays/r1')")
	checkSent(b, a, "POST /api/replays  application/json {"+filter+`,"force":true}`)
	b.Clean()
}

func TestActions_ResumeNamesThePausedKey(t *testing.T) {
	t.Parallel()
	b, a, _ := openDesk(t)
	a.setAnswer("POST /api/resume", 200, `{"pauses":[]}`, nil)
	visitWithKey(b, "/pauses")
	b.Click("#pauses tbody tr:nth-child(1) button")
	confirm(b, "Resume key /news/politics/1?")
	enterKey(b, writeKey)
	b.Until("it is resumed", innerText("#toasts")+".includes('Resumed.')")
	checkSent(b, a, `POST /api/resume  application/json {"key":"/news/politics/1"}`)
	b.Click("#pauses tbody tr:nth-child(3) button")
	b.Until("the CMS is tried", innerText("#toasts")+".includes('Lane 3 tries the CMS at once.')")
	checkSent(b, a, `POST /api/resume  application/json {"lane":3}`)

	// Remove the old toasts, so that the wait for a new toast does not find an old one.
	browser.Eval[bool](b, "document.querySelectorAll('#toasts .toast').forEach(t => t.remove()); true")
	b.Click("[data-action*='/api/resume'][data-one-of] .primary")
	confirm(b, "What waits is sent at once.")
	b.Until("all is resumed", "document.querySelector('#toasts .toast')")
	checkSent(b, a, `POST /api/resume  application/json {"all":true}`)
	b.Clean()
}

func TestActions_CancelAndItsRefusal(t *testing.T) {
	t.Parallel()
	b, a, _ := openDesk(t)
	path := "/api/messages/" + dashboardtest.MessageID(3) + "/cancel"
	a.setAnswer("POST "+path, 409, `{"title":"Conflict","detail":"the message is delivered"}`, nil)
	visitWithKey(b, "/messages/"+dashboardtest.MessageID(3))
	b.Type("#cancel [name=reason]", "sent twice")
	b.Click("#cancel button")
	b.Until("the dialog asks, with the focus on No",
		"document.getElementById('ask').open && document.activeElement.textContent === 'No'")
	b.Type("#ask :focus", browser.Enter)
	awaitReady := func() {
		b.Until("the form is ready again",
			"!document.getElementById('ask').open && !('busy' in document.getElementById('cancel').dataset)")
	}

	awaitReady()
	if got := a.lastRequest(); got != "" {
		t.Errorf("sent %s, want none", got)
	}

	b.Click("#cancel button")
	confirm(b, "cannot be undone")
	enterKey(b, writeKey)
	b.Until("the refusal is shown", innerText("#cancel output")+" === 'the message is delivered'")
	a.setAnswer("POST "+path, 202, `{"stage":"queued"}`, nil)
	awaitReady() // a form that is not ready ignores clicks
	b.Click("#cancel button")
	confirm(b, "cannot be undone")
	b.Until("the page reports the request",
		innerText("#toasts")+".includes('Cancellation requested.') && "+
			innerText("#cancel output")+" === ''")
	a.setAnswer("POST "+path, 200, `{"stage":"cancelled"}`, nil)
	awaitReady()
	b.Click("#cancel button")
	confirm(b, "cannot be undone")
	b.Until("the page reports the cancellation",
		innerText("#toasts")+".includes('The message is cancelled.')")
	checkSent(b, a, "POST "+path+" reason=sent+twice")
	b.Clean()
}

// If the API does not answer a request, the page must not show the action as done.
func TestActions_WithoutAnAnswer(t *testing.T) {
	t.Parallel()
	b, a, _ := openDesk(t)
	a.setAnswer("POST /api/messages/"+dashboardtest.MessageID(1)+"/replay", 0, "",
		func() { panic(http.ErrAbortHandler) })
	visitWithKey(b, "/messages/"+dashboardtest.MessageID(1))
	b.Click("#replay button")
	enterKey(b, writeKey)
	b.Until("the outcome is unknown",
		innerText("#replay output")+".includes('Nothing is known of what became of it')")
}
