package pages_test

import (
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"weir/internal/dashboard/dashboardtest"
	"weir/tools/browser"
)

// TestTimes checks that the page shows times in UTC, or in the browser's time zone if the reader
// chooses local times. The page remembers the choice. The chosen zone also applies to times that
// the reader enters. Without JavaScript all times are UTC.
func TestTimes(t *testing.T) {
	t.Parallel()
	b, a, f := openDesk(t)
	browser.Call(b, emulation.SetTimezoneOverride,
		emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kolkata"})
	visitWithKey(b, "")
	const moment, zone, axis, tile, step = "#moment time", "#zone", "#chart-flow .x time",
		"#tiles time",
		"#figures-flow tbody time"
	b.Until("the times are in UTC", innerText(moment)+" === '12:00:07' && "+innerText(zone)+
		" === 'All times are UTC.' && "+innerText(axis)+" === '11:01'")
	b.Click("[data-zone=local]")
	b.Until("the times are local", innerText(moment)+" === '17:30:07' && "+innerText(zone)+
		" === 'Times are Asia/Calcutta.' && "+innerText(axis)+" === '16:31' && "+innerText(tile)+
		" === '17:27' && "+
		"document.querySelector('"+step+"').textContent === '20 Nov 16:31' && "+
		"document.querySelector('rect.hit title').textContent.startsWith('20 Nov 16:31\\n')")

	f.Change(func(*dashboardtest.Data) {})
	b.Until("an update is local, too", innerText(moment)+" === '17:30:12'")

	a.setAnswer("POST /api/pause", 200, `{"pauses":[]}`, nil)
	visitWithKey(b, "/pauses")
	b.Until("the field is local", innerText("label .zone")+" === 'local'")
	b.Type("[data-action*='/api/pause'] [name=reason]", "r")
	b.Do(chromedp.SetValue(chromedp.CSS("[name=until]"), "2026-11-21T01:00"))
	b.Click("[data-action*='/api/pause'] .primary")
	enterKey(b, writeKey)
	b.Until("it is paused", innerText("#toasts")+".includes('Paused.')")
	checkSent(b, a, `POST /api/pause  application/json {"all":true,"reason":"r","until":"2026-11-20T19:30:00.000Z"}`)

	visitWithKey(b, "/messages")
	b.Do(chromedp.SetValue(chromedp.CSS("[name=from]"), "2026-11-20T01:00"))
	b.Click(".filter .primary")
	b.Until("the address has UTC, and the field local time",
		"new URLSearchParams(location.search).get('from') === '2026-11-19T19:30' && "+
			"document.querySelector('[name=from]').value === '2026-11-20T01:00'")
	b.Click("[data-zone='']")
	b.Until("the times are in UTC again", innerText(moment)+".startsWith('12:00:') && "+
		"document.querySelector('[name=from]').value === '2026-11-19T19:30'")
	b.Clean()

	browser.Call(b, emulation.SetScriptExecutionDisabled,
		emulation.SetScriptExecutionDisabledParams{Value: true})
	visitWithKey(b, "")

	if got := browser.Eval[string](b, innerText(moment)+" + "+innerText(zone)); got !=
		"12:00:12All times are UTC." {
		t.Errorf("without a script: got %q, want 12:00:12 and that all times are UTC", got)
	}
}
