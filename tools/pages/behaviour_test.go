package pages_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"weir/internal/dashboard/dashboardtest"
	"weir/internal/wire"
	"weir/tools/browser"
)

func TestKeyboard(t *testing.T) {
	t.Parallel()
	b := openBrowser(t, dashboardtest.NewBusy().Dashboard())
	b.Visit("/api/dashboard")
	b.Do(chromedp.KeyEvent(kb.Tab))
	if got := browser.Eval[string](b, "document.activeElement.className"); got != "skip" {
		t.Errorf("the first tab stops at %q, want skip", got)
	}

	if !browser.Eval[bool](b, "getComputedStyle(document.activeElement).outlineStyle !== 'none' && "+
		"document.activeElement.getBoundingClientRect().top >= 0") {
		t.Error("the focused element has no outline or lies above the screen, want it visible")
	}

	b.Do(chromedp.KeyEvent(kb.Enter))
	b.Until("the focus is at the content", "document.activeElement.id === 'main'")

	// The page listens for the press of the key "/". chromedp.KeyEvent would send only a character,
	// so the test itself sends the events of this key.
	browser.Call(b, input.DispatchKeyEvent,
		input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: "/", Text: "/"})
	browser.Call(b, input.DispatchKeyEvent,
		input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyUp, Key: "/"})
	b.Until("the search has the focus", "document.activeElement.id === 'find'")
	b.Do(chromedp.KeyEvent("a/b" + kb.Enter))
	b.Until("it was searched for", "location.search.includes('q=a%2Fb')")

	for name, path := range dashboardtest.Pages() {
		b.Visit("/api/dashboard" + path)
		unreachable := browser.Eval[int](b,
			"[...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, textarea, "+
				"summary')].filter(e => e.tabIndex < 0).length")
		nameless := browser.Eval[string](b,
			`[...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, textarea, progress, section, [role=img], [role=group]')]
			.filter(e => !(e.getAttribute('aria-label') || e.labels?.length || (e.getAttribute('aria-labelledby') && document.getElementById(e.getAttribute('aria-labelledby'))) || e.textContent.trim()))
			.filter(e => e.id !== 'jobs').map(e => e.outerHTML.slice(0, 80)).join(' ')`)
		if unreachable != 0 || nameless != "" {
			t.Errorf("%s: %d cannot be reached; without a name: %s; want none", name,
				unreachable, nameless)
		}

		if n := browser.Eval[int](b,
			"document.querySelectorAll('table:not(:has(caption)), th:not([scope])').length"); n !=
			0 {
			t.Errorf("%s: %d tables without caption or headings without scope, want none", name, n)
		}
	}

	b.Clean()
}

// TestState checks that a reload keeps the filter, the theme and the key, because the page's
// address has them.
func TestState(t *testing.T) {
	t.Parallel()
	f := dashboardtest.NewBusy()
	b := openBrowser(t, f.Dashboard())
	b.Visit("/api/dashboard/messages?theme=dark&code=k%26ey")
	b.Do(chromedp.SetValue(chromedp.CSS(".filter [name=stage]"), "dead"),
		chromedp.SetValue(chromedp.CSS(".filter [name=from]"), "2026-11-20T08:30"))
	b.Type(".filter [name=q]", "title")
	b.Click(".filter .primary")

	// The wait includes readyState, because the browser changes the address before it has loaded
	// the page.
	b.Until("it was searched for",
		"location.search.includes('stage=dead') && document.readyState === 'complete'")

	for range 2 {
		got := browser.Eval[string](b,
			"[...new FormData(document.querySelector('.filter'))].filter(f => f[1]).join(';') + "+
				"document.documentElement.dataset.theme + getComputedStyle(document.body).backgroundColor")
		if want := "code,k&ey;theme,dark;q,title;stage,dead;from,2026-11-20T08:30dark"; !strings.HasPrefix(got, want) {
			t.Errorf("%s\nwant %s", got, want)
		}

		if n := browser.Eval[int](b, "document.querySelectorAll('.messages tbody tr').length"); n ==
			0 {
			t.Error("found no message, want some")
		}

		b.Reload()
	}

	if n := browser.Eval[int](b,
		"[...document.querySelectorAll('a[href^=\"/\"], link[rel=stylesheet], script[src]')].filter(e => !(new "+
			"URL(e.href || e.src)).searchParams.has('code')).length"); n != 0 {
		t.Errorf("%d addresses lack the key, want each with it", n)
	}

	b.Clean()
}

func TestThemes(t *testing.T) {
	t.Parallel()
	b := openBrowser(t, dashboardtest.NewBusy().Dashboard())
	background := func() string {
		return browser.Eval[string](b, "getComputedStyle(document.documentElement).backgroundColor")
	}
	prefer := func(scheme string) {
		browser.Call(b, emulation.SetEmulatedMedia,
			emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	}

	seen := map[string]string{}
	for _, system := range []string{"light", "dark"} {
		prefer(system)
		for _, theme := range []string{"", "light", "dark"} {
			b.Visit("/api/dashboard?theme=" + theme)
			seen[system+"/"+theme] = background()
		}
	}

	light, dark := seen["light/"], seen["dark/"]
	if light == dark || seen["light/dark"] != dark || seen["dark/light"] != light ||
		seen["dark/dark"] != dark ||
		seen["light/light"] != light {
		t.Errorf("got backgrounds %v, want those of the theme, else those of the system", seen)
	}

	for _, theme := range []string{"light", "dark"} {
		for _, page := range []string{"overview", "story", "edited", "pauses"} {
			b.Visit("/api/dashboard" + dashboardtest.Pages()[page] + "?theme=" + theme)
			if low := browser.Eval[[]string](b, lowContrast); len(low) > 0 {
				t.Errorf("%s, %s: contrast is too low: %v, want none", page, theme, low)
			}
		}
	}

	b.Clean()
}

// lowContrast is a script that lists elements whose text has a contrast of less than 4.5:1 to the
// background (WCAG 2, AA). The script skips charts, dialogs, and elements that are hidden or
// disabled.
const lowContrast = `(() => {
	const parse = (c) => { const m = c.match(/[\d.]+/g).map(Number); return c.startsWith("color(") ? [m[0]*255, m[1]*255, m[2]*255, m[3] ?? 1] : [m[0], m[1], m[2], m[3] ?? 1]; };
	const over = (a, b) => [0, 1, 2].map(i => a[i]*a[3] + b[i]*(1-a[3])).concat(1);
	const light = (c) => { const f = c.slice(0, 3).map(v => (v /= 255) <= .03928 ? v/12.92 : ((v+.055)/1.055)**2.4); return .2126*f[0] + .7152*f[1] + .0722*f[2]; };
	const behind = (e) => { const layers = []; for (; e; e = e.parentElement) layers.push(parse(getComputedStyle(e).backgroundColor)); return layers.reverse().reduce((under, c) => over(c, under), [255, 255, 255, 1]); };
	const low = new Set();
	for (const e of document.body.querySelectorAll("*")) {
		if (![...e.childNodes].some(n => n.nodeType === 3 && n.nodeValue.trim()) || e.closest("svg, noscript, dialog, .unseen, .skip, :disabled") || !e.getClientRects().length) continue;
		const bg = behind(e), fg = over(parse(getComputedStyle(e).color), bg), a = light(fg), b = light(bg);
		const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
		if (ratio < 4.5) low.add(e.tagName + "." + e.className + " " + ratio.toFixed(2));
	}
	return [...low];
})()`

// TestUpdate_LeavesTheReaderAlone checks that an update of the page shows new data, but keeps the
// reader's focus, input and selection. While a panel contains the selection, the page does not
// update this panel.
func TestUpdate_LeavesTheReaderAlone(t *testing.T) {
	t.Parallel()
	f := dashboardtest.NewBusy()
	d := f.Dashboard()
	b := openBrowser(t, d)
	b.Visit("/api/dashboard")

	// The event makes the page update at once, as if the reader returned to the tab. So the test
	// need not wait for the page's timer.
	update := "document.dispatchEvent(new Event('visibilitychange'))"
	browser.Eval[bool](b, `document.querySelector("#figures-flow").open = true; document.querySelector("#lane-2 a").focus(); document.querySelector("#find").value = "typed";
		const s = getSelection(); s.selectAllChildren(document.querySelector("#books-title")); true`)
	f.Change(func(d *dashboardtest.Data) {
		d.Report.Lanes = append(slices.Clone(d.Report.Lanes), wire.Lane{Number: 9, Exact: true})
		busy := &d.Report.Lanes[2]
		busy.Accepted += 77_777 - busy.Waiting
		busy.Waiting = 77_777
	})

	browser.Eval[bool](b, update)
	b.Until("the lane is new",
		"document.querySelector('#lane-9') && "+innerText("#lane-2")+
			".replace(/\\s/g, '').includes('77777')")

	if got := browser.Eval[string](b,
		`[document.querySelector("#figures-flow").open,`+
			` document.activeElement === document.querySelector("#lane-2 a"), document.querySelector("#find").value,`+
			` getSelection().toString().includes("Books"),`+
			` document.querySelector("#panels").innerText.replace(/\s/g,`+
			` "").includes("79677")].join()`); got != "true,true,typed,true,false" {
		t.Errorf("figures open, focus, typed text, selection, and the selected panels left as they are: %s, want "+
			"true,true,typed,true,false", got)
	}

	browser.Eval[bool](b, "getSelection().removeAllRanges(); "+update)
	b.Until("the panels are new, too",
		innerText("#panels")+".replace(/\\s/g, '').includes('79677')")
	b.Clean()
}

// TestUpdate_AnErrorThatIsGone checks that the page of an error stops showing messages as dead when
// the error has no dead messages any more.
func TestUpdate_AnErrorThatIsGone(t *testing.T) {
	t.Parallel()
	f := dashboardtest.NewBusy()
	b := openBrowser(t, f.Dashboard())
	b.Visit("/api/dashboard/errors/" + dashboardtest.TitleError)

	if !browser.Eval[bool](b, innerText("#error")+
		".includes('Dead messages') && document.querySelectorAll('#messages tbody tr').length > 0") {
		t.Error("the page lacks the error or its messages, want both before it is gone")
	}

	f.Change(func(d *dashboardtest.Data) { d.Clusters = wire.ErrorList{Complete: true} })
	browser.Eval[bool](b, "document.dispatchEvent(new Event('visibilitychange'))")
	b.Until("it is gone, and its messages",
		innerText("#error")+" === 'No dead message with this error was found.' && !document.querySelector('#messages "+
			"tbody')")
	b.Clean()
}

// TestUpdate_SaysWhyNot checks that the page names the reason of a failed update. In this test the
// server answers, but refuses the key.
func TestUpdate_SaysWhyNot(t *testing.T) {
	t.Parallel()
	b, a, _ := openDesk(t)
	visitWithKey(b, "")
	a.changeKey("another key")
	browser.Eval[bool](b, "document.dispatchEvent(new Event('visibilitychange'))")
	b.Until("the page names the reason",
		innerText("#pulse")+".includes('the key is not accepted any more')")
	b.Clean()
}

func TestWithoutScript(t *testing.T) {
	t.Parallel()
	b := openBrowser(t, dashboardtest.NewBusy().Dashboard())
	browser.Call(b, emulation.SetScriptExecutionDisabled,
		emulation.SetScriptExecutionDisabledParams{Value: true})

	for name, path := range dashboardtest.Pages() {
		b.Visit("/api/dashboard" + path)
		if shown := browser.Eval[string](b,
			"[...document.querySelectorAll('form[data-action]')].filter(f => f.getClientRects().length).map(f => "+
				"f.dataset.action).join()"); shown != "" {
			t.Errorf("%s shows the actions %s, want none without a script to send them",
				name, shown)
		}

		if words := browser.Eval[int](b, "document.querySelector('main').innerText.length"); words <
			20 {
			t.Errorf("%s has %d characters of text, want at least 20", name, words)
		}
	}

	b.Visit("/api/dashboard/messages?" + url.Values{"q": {"politics/3"}}.Encode())
	if n := browser.Eval[int](b, "document.querySelectorAll('.messages tbody tr').length"); n == 0 {
		t.Error("found no message, want some")
	}

	b.Clean()
}

// TestUpdate_NotWhileHidden checks that a hidden page stops its timer and sends no requests. When
// the reader looks at the page again, the page updates.
func TestUpdate_NotWhileHidden(t *testing.T) {
	t.Parallel()
	b := openBrowser(t, dashboardtest.NewBusy().Dashboard())
	b.Visit("/api/dashboard")
	browser.Eval[bool](b, `const set = setTimeout, clear = clearTimeout, ask = fetch; window.waiting = new Set(); window.asked = 0; let hidden = false;
		window.setTimeout = (f, ms) => { // the timer of five seconds never fires, however slow this test is
			const id = set(f, ms === 5000 ? 1e9 : ms);
			if (ms === 5000) waiting.add(id);
			return id;
		};
		window.clearTimeout = (id) => { waiting.delete(id); clear(id); };
		window.fetch = (...a) => { asked++; return ask(...a); };
		Object.defineProperty(document, "hidden", { get: () => hidden });
		window.look = (away) => { hidden = away; document.dispatchEvent(new Event("visibilitychange")); };
		look(false); true`)

	b.Until("it was updated, and will be again", "asked === 1 && waiting.size === 1")
	browser.Eval[bool](b, "look(true); true")

	if got := browser.Eval[string](b, "asked + ' asked, ' + waiting.size + ' waiting'"); got !=
		"1 asked, 0 waiting" {
		t.Errorf("hidden: %s, want \"1 asked, 0 waiting\"", got)
	}

	browser.Eval[bool](b, "look(false); true")
	b.Until("it goes on", "asked === 2 && waiting.size === 1")
	b.Clean()
}
