package app

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"weir/internal/weir"
)

// mediaWiki answers like MediaWiki 1.39 to a client that signs in with a bot password. Most answers
// are copied from a real MediaWiki. The answers about an edit conflict, a redirect and a protected
// page are from the documentation. Each answer about a failure has the HTTP status 200.
type mediaWiki struct {
	liberties
	mu       sync.Mutex
	sessions map[string]bool      // by cookie; true = signed in
	signIns  int                  // number of sign-ins that succeeded
	revision int                  // number of the newest revision of all pages
	pages    map[string]*wikiPage // by title
	failures map[string]string    // code of the error for the next request, by action
	partial  bool                 // true = the next error is about a block from one page
	readOnly bool                 // true = each write and each sign-in fails
	find     map[string]any       // fields that replace fields in the answers to look-ups
	before   func()               // is called one time, before the next write; nil = no call
}

// wikiPage is the newest revision of a page.
type wikiPage struct {
	revision int
	text     string
}

const wikiPassword = "abcdefghij0123456789abcdefghij01"

func newMediaWiki(isThere bool) *mediaWiki {
	m := &mediaWiki{sessions: map[string]bool{}, pages: map[string]*wikiPage{},
		failures: map[string]string{}, revision: 1}
	if isThere {
		m.pages["Harbour opens"] = &wikiPage{1, "old"}
	}
	return m
}

func (m *mediaWiki) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var session string
	if c, err := r.Cookie("wiki_session"); err == nil {
		session = c.Value
	}

	reply := func(value map[string]any) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		if failure, ok := value["error"].(map[string]any); ok {
			w.Header().Set("MediaWiki-API-Error", fmt.Sprint(failure["code"]))
		}
		_ = json.NewEncoder(w).Encode(value)
	}

	action := r.FormValue("action")
	if m.before != nil && (action == "edit" || action == "delete") {
		m.before()
		m.before = nil
	}

	switch {
	case action == "query" && r.FormValue("type") == "login":
		session = fmt.Sprint("session-", len(m.sessions))
		m.sessions[session] = false
		http.SetCookie(w, &http.Cookie{Name: "wiki_session", Value: session, Path: "/",
			HttpOnly: true})
		reply(map[string]any{"query": map[string]any{"tokens": map[string]any{"logintoken": "login-" + session + `+\`}}})

	case action == "login":
		reply(m.login(r, session))
	case r.FormValue("assert") != "user" || !m.sessions[session]:
		reply(newWikiError("assertuserfailed",
			"You are no longer logged in, so the action could not be completed."))
	case m.failures[action] != "":
		code := m.failures[action]
		delete(m.failures, action)
		if code == "maxlag" {
			w.Header().Set("Retry-After", "5")
		}

		answer := newWikiError(code, "the words of "+code)
		if m.partial {
			answer["error"].(map[string]any)["blockinfo"] = map[string]any{"blockid": 1,
				"blockpartial": true}
		}

		if code == "captcha" {
			captcha := map[string]any{"type": "simple"}
			answer = map[string]any{"edit": map[string]any{"captcha": captcha, "result": "Failure"}}
		}

		reply(answer)

	case action == "query":
		reply(m.findPage(r.FormValue("titles"), session))
	default:
		reply(m.write(action, r, session))
	}
}

func newWikiError(code, info string) map[string]any {
	return map[string]any{"error": map[string]any{"code": code, "info": info,
		"docref": "See the API."}}
}

func (m *mediaWiki) login(r *http.Request, session string) map[string]any {
	_, isThere := m.sessions[session]
	switch {
	case m.readOnly:
		return newWikiError("readonly", "The wiki is currently in read-only mode.")
	case r.Method != http.MethodPost || !isThere ||
		r.PostFormValue("lgtoken") != "login-"+session+`+\`:
		return map[string]any{"login": map[string]any{"result": "WrongToken"}}
	case r.PostFormValue("lgname") != "Weir@weir" || r.PostFormValue("lgpassword") != wikiPassword:
		return map[string]any{"login": map[string]any{"result": "Failed",
			"reason": "Incorrect username or password entered. Please try again."}}
	}

	m.signIns++
	m.sessions[session] = true

	return map[string]any{"login": map[string]any{"result": "Success", "lguserid": 2,
		"lgusername": "Weir"}}
}

func (m *mediaWiki) findPage(title, session string) map[string]any {
	query := map[string]any{"tokens": map[string]any{"csrftoken": "csrf-" + session + `+\`}}
	page := map[string]any{"ns": 0, "title": title, "contentmodel": "wikitext", "missing": true}
	for _, stored := range slices.Sorted(maps.Keys(m.pages)) {
		if m.finds(stored, title) {
			page = map[string]any{"ns": 0, "title": stored, "contentmodel": "wikitext", "pageid": 2,
				"lastrevid": m.pages[stored].revision}
		}
	}

	query["pages"] = []any{page}
	for name, value := range m.find {
		query[name] = value
	}

	return map[string]any{"batchcomplete": true, "curtimestamp": "2026-01-31T08:00:03Z",
		"query": query}
}

func (m *mediaWiki) write(action string, r *http.Request, session string) map[string]any {
	title := r.PostFormValue("title")
	found := m.pages[title]
	switch {
	case r.PostFormValue("token") != "csrf-"+session+`+\`:
		return newWikiError("badtoken", "Invalid CSRF token.")
	case m.readOnly:
		return newWikiError("readonly", "The wiki is currently in read-only mode.")
	case action == "delete" && found == nil, r.PostForm.Has("nocreate") && found == nil:
		return newWikiError("missingtitle", "The page you specified doesn't exist.")
	case action == "delete":
		delete(m.pages, title)
		return map[string]any{"delete": map[string]any{"title": title, "reason": "withdrawn",
			"logid": 4}}

	case r.PostForm.Has("createonly") && found != nil:
		return newWikiError("articleexists",
			"The article you tried to create has been created already.")
	case found != nil && r.PostFormValue("baserevid") != fmt.Sprint(found.revision):
		return newWikiError("editconflict", "Edit conflict: Harbour opens")
	}

	m.revision++
	m.pages[title] = &wikiPage{m.revision, r.PostFormValue("text")}
	m.recordPublished(title)

	return map[string]any{"edit": map[string]any{"result": "Success", "pageid": 2, "title": title,
		"newrevid": m.revision}}
}

func (m *mediaWiki) listArticles() (states []string) {
	for range m.pages {
		states = append(states, nameState(true))
	}
	return states
}

func (m *mediaWiki) snapshot() map[string]string { return printItems(m.pages) }

func openMediaWiki(t *testing.T, cms http.Handler, password string) *recipe {
	t.Helper()
	return openRecipe(t, "mediawiki", cms,
		map[string]string{"WIKI_URL": "", "WIKI_USER": "Weir@weir", "WIKI_PASSWORD": password})
}

func TestRecipe_MediaWiki(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		isThere bool
		happens func(m *mediaWiki) // is called before the write; nil = nothing happens
		steps   string
	}{
		"New":   {false, nil, "find create"},
		"There": {true, nil, "find update"},
		"CreatedMeanwhile": {
			false, func(m *mediaWiki) { m.pages["Harbour opens"] = &wikiPage{1, "other"} },
			"find create find update",
		},
		"ChangedMeanwhile": {
			true, func(m *mediaWiki) { m.pages["Harbour opens"].revision = 9 },
			"find update find update",
		},
		"RemovedMeanwhile": {true, func(m *mediaWiki) { delete(m.pages, "Harbour opens") },
			"find update find create"},
		"SessionEnds": {true, func(m *mediaWiki) { clear(m.sessions) },
			"find update find update"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMediaWiki(c.isThere)
			if c.happens != nil {
				m.before = func() { c.happens(m) }
			}

			r := openMediaWiki(t, m, wikiPassword)
			checkResult(t, r.sendBody(r.readSample("article.xml")), weir.OutcomeDelivered,
				"", c.steps)
			page := m.pages["Harbour opens"]
			if page == nil || len(m.pages) != 1 ||
				!strings.Contains(page.text, "'''harbour''' opens <ref>Port office</ref> &") {
				t.Fatalf("got the page %+v, want one page with the text of the message", page)
			}

			checkResult(t, r.sendBody(r.readSample("delete.xml")), weir.OutcomeDelivered, "",
				"find remove")
			checkResult(t, r.sendBody(r.readSample("delete.xml")), weir.OutcomeDelivered,
				"", "find")
		})
	}
}

// A filter of the extension AbuseFilter can warn: it wants the same edit a second time, in the same
// session.
func TestRecipe_MediaWikiConfirmsAWarning(t *testing.T) {
	t.Parallel()
	m := newMediaWiki(false)
	m.failures["edit"] = "abusefilter-warning"
	r := openMediaWiki(t, m, wikiPassword)
	checkResult(t, r.sendBody(r.readSample("article.xml")), weir.OutcomeDelivered, "",
		"find create find create")
	if m.signIns != 1 {
		t.Errorf("got %d sign-ins, want 1", m.signIns)
	}
}

// A session can end between two messages. MediaWiki then answers 200 with an error. The attempt
// must sign in anew and deliver the message.
func TestRecipe_MediaWikiSignsInAnew(t *testing.T) {
	t.Parallel()
	m := newMediaWiki(true)
	r := openMediaWiki(t, m, wikiPassword)
	checkResult(t, r.sendBody(r.readSample("article.xml")), weir.OutcomeDelivered, "",
		"find update")
	clear(m.sessions)
	checkResult(t, r.sendBody(r.readSample("article.xml")), weir.OutcomeDelivered, "",
		"find find update")
	if m.signIns != 2 {
		t.Errorf("got %d sign-ins, want 2", m.signIns)
	}
}

func TestRecipe_MediaWikiFails(t *testing.T) {
	t.Parallel()
	type page = map[string]any

	for name, c := range map[string]struct {
		change func(m *mediaWiki)
		want   weir.Outcome
		reason string
		steps  string
	}{
		"ReadOnlyAtSignIn": {func(m *mediaWiki) { m.readOnly = true }, weir.OutcomeUnavailable,
			"find: sign-in: login: 200: The wiki is currently in read-only mode.", "find"},
		"ReadOnlyAtEdit": {func(m *mediaWiki) { m.before = func() { m.readOnly = true } },
			weir.OutcomeUnavailable,
			"create: 200: readonly: The wiki is currently in read-only mode.", "find create"},
		"Lag": {func(m *mediaWiki) { m.failures["query"] = "maxlag" }, weir.OutcomeUnavailable,
			"find: 200: maxlag", "find"},
		"BlockedUser": {func(m *mediaWiki) { m.failures["edit"] = "blocked" },
			weir.OutcomeUnavailable, "create: 200: blocked", "find create"},
		"BlockedAddress": {func(m *mediaWiki) { m.failures["edit"] = "autoblocked" },
			weir.OutcomeUnavailable, "create: 200: autoblocked", "find create"},
		"BlockedEverywhere": {
			func(m *mediaWiki) { m.failures["edit"] = "globalblocking-blockedtext-ip" },
			weir.OutcomeUnavailable, "create: 200: globalblocking", "find create"},
		"BlockedPage": {func(m *mediaWiki) { m.failures["edit"], m.partial = "blocked", true },
			weir.OutcomeRejected, "create: 200: blocked: the words of blocked", "find create"},
		"TitleBlacklist": {func(m *mediaWiki) { m.failures["edit"] = "titleblacklist-forbidden" },
			weir.OutcomeRejected, "create: 200: titleblacklist-forbidden", "find create"},
		"Filter": {func(m *mediaWiki) { m.failures["edit"] = "abusefilter-disallowed" },
			weir.OutcomeRejected, "create: 200: abusefilter-disallowed", "find create"},
		"UnknownErrorOfAnEdit": {func(m *mediaWiki) { m.failures["edit"] = "unknown_code" },
			weir.OutcomeRetry, "unknown_code", "find create"},
		"UnknownErrorOfALookUp": {func(m *mediaWiki) { m.failures["query"] = "unknown_code" },
			weir.OutcomeUnavailable, "unknown_code", "find"},
		"FaultInALookUp": {func(m *mediaWiki) { m.failures["query"] = "internal_api_error_DBQueryError" },
			weir.OutcomeUnavailable, "internal_api_error_DBQueryError", "find"},
		"Captcha": {func(m *mediaWiki) { m.failures["edit"] = "captcha" }, weir.OutcomeUnavailable,
			"MediaWiki wants a captcha solved", "find create"},
		"NoDatabase": {func(m *mediaWiki) { m.failures["edit"] = "internal_api_error_DBConnectionError" },
			weir.OutcomeUnavailable, "create: 200: internal_api_error_DBConnectionError",
			"find create"},
		"OtherForm": {func(m *mediaWiki) {
			m.pages["Harbour Opens"], m.isFound = &wikiPage{1, "old"}, strings.EqualFold
		},
			weir.OutcomeRejected, "MediaWiki writes this title as Harbour Opens", "find"},
		"Protected": {func(m *mediaWiki) { m.failures["edit"] = "protectedpage" },
			weir.OutcomeRejected, "create: 200: protectedpage", "find create"},
		"NoRight": {func(m *mediaWiki) { m.failures["edit"] = "permissiondenied" },
			weir.OutcomeUnavailable, "create: 200: permissiondenied", "find create"},
		"Fault": {func(m *mediaWiki) { m.failures["edit"] = "internal_api_error_DBQueryError" },
			weir.OutcomeRetry, "internal_api_error_DBQueryError", "find create"},
		"InvalidTitle": {func(m *mediaWiki) {
			m.find = page{"pages": []any{page{"title": "a/../b", "invalid": true, "invalidreason": "a relative path"}}}
		}, weir.OutcomeRejected, "find: 200: a relative path", "find"},
		"OtherSpelling": {func(m *mediaWiki) {
			m.find = page{"normalized": []any{page{"from": "harbour_opens", "to": "Harbour opens"}}}
		}, weir.OutcomeRejected,
			"find: 200: MediaWiki writes this title as Harbour opens; send that one", "find"},
		"OtherNamespace": {func(m *mediaWiki) {
			m.find = page{"pages": []any{page{"ns": 8, "title": "MediaWiki:Common.css", "missing": true}}}
		}, weir.OutcomeRejected, "find: 200: the title is in another namespace", "find"},
		"OtherWiki": {func(m *mediaWiki) {
			m.find = page{"pages": nil,
				"interwiki": []any{page{"title": "wikipedia:Foo", "iw": "wikipedia"}}}
		}, weir.OutcomeRejected, "find: 200: the title is in another namespace or wiki", "find"},
		"Moved": {func(m *mediaWiki) {
			m.find = page{"pages": []any{page{"pageid": 3, "ns": 0, "title": "Harbour opens", "redirect": true}}}
		}, weir.OutcomeRejected, "find: 200: the page is a redirect now", "find"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMediaWiki(false)
			c.change(m)
			r := openMediaWiki(t, m, wikiPassword)
			checkResult(t, r.sendBody(r.readSample("article.xml")), c.want, c.reason, c.steps)
			if m.pages["Harbour opens"] != nil {
				t.Errorf("got the pages %v, want none of the title", m.pages)
			}
		})
	}

	r := openMediaWiki(t, newMediaWiki(false), "wrong")
	checkResult(t, r.sendBody(r.readSample("article.xml")), weir.OutcomeUnavailable,
		"find: sign-in: login: 200: Incorrect username or password entered. Please try again.",
		"find")
}
