package pages_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"weir/internal/dashboard"
	"weir/internal/dashboard/dashboardtest"
	"weir/tools/browser"
)

func openSchedule(b *browser.Tab) {
	b.T.Helper()
	b.Visit("/api/dashboard/schedule?name=nightly-report&code=view+%26key%3D1")
}

func setPaused(f *dashboardtest.Source, name string, isPaused bool) {
	f.Change(func(d *dashboardtest.Data) {
		d.Schedules = slices.Clone(d.Schedules)
		i := slices.IndexFunc(d.Schedules,
			func(s dashboard.Schedule) bool { return s.Name == name })
		d.Schedules[i].Paused = isPaused
	})
}

func TestSchedules_Lists(t *testing.T) {
	t.Parallel()
	b, _, _ := openDesk(t)
	visitWithKey(b, "/schedules")

	for what, want := range map[string]string{"#recurring": "nightly-report",
		"#scheduled": "/news/politics/204"} {
		if got := browser.Eval[string](b, innerText(what)); !strings.Contains(got, want) {
			t.Errorf("%s shows %q, want %q", what, got, want)
		}
	}

	first := browser.Eval[string](b, innerText("#scheduled tbody tr"))
	if !strings.Contains(first, "/news/politics/200") || !strings.Contains(first, "in 1 h") {
		t.Errorf("the first scheduled message is %q, want the one that is due next", first)
	}

	b.Click("#recurring tbody tr:nth-child(2) a")
	b.Until("the schedule is shown", innerText("h1")+".includes('nightly-report')")

	if got := browser.Eval[string](b, innerText("#runs")); !strings.Contains(got, "2026-11-21 03:00:07 +01:00") ||
		!strings.Contains(got, "does not exist") {
		t.Errorf("the next runs are %q, want them with the change of clocks", got)
	}

	b.Clean()
}

func TestSchedules_PauseResumeRunDelete(t *testing.T) {
	t.Parallel()
	b, a, f := openDesk(t)
	const address = "/api/schedules/nightly-report"
	a.setAnswer("POST "+address+"/pause", 200, `{"name":"nightly-report"}`,
		func() { setPaused(f, "nightly-report", true) })
	a.setAnswer("POST "+address+"/resume", 200, `{"name":"nightly-report"}`,
		func() { setPaused(f, "nightly-report", false) })
	openSchedule(b)
	b.Click("#pause button")
	b.Until("the key of the function schedules is asked for",
		innerText("#key-function")+" === 'schedules'")
	enterKey(b, writeKey)
	b.Until("the page shows that it is paused", innerText("#state")+" === 'paused'")
	checkSent(b, a, "POST "+address+"/pause")
	b.Click("#resume button")
	b.Until("the page shows that it is resumed", innerText("#state")+".startsWith('next run')")
	checkSent(b, a, "POST "+address+"/resume")

	a.setAnswer("POST "+address+"/run", 422,
		`{"detail":"the message breaks a rule of its contract"}`, nil)
	b.Click("#run button")
	confirm(b, "File a message of this schedule now?")
	b.Until("the refusal is shown", innerText("#run output")+".includes('breaks a rule')")
	a.setAnswer("POST "+address+"/run", 202, `{"id":"m1","stage":"queued"}`, nil)
	b.Until("the form is ready again", "!('busy' in document.getElementById('run').dataset)")
	b.Click("#run button")
	confirm(b, "File a message of this schedule now?")
	b.Until("the page names the filed message",
		innerText("#toasts")+".includes('Message m1 is filed.')")
	checkSent(b, a, "POST "+address+"/run")

	a.setAnswer("DELETE "+address, 200, `{"name":"nightly-report","deleted":true}`, nil)
	b.Click("#delete button")
	confirm(b, "Delete this schedule?")
	b.Until("the list is shown", innerText("h1")+" === 'Schedules'")
	checkSent(b, a, "DELETE "+address)
	b.Clean()
}

func TestSchedules_PreviewAndCreate(t *testing.T) {
	t.Parallel()
	b, a, f := openDesk(t)
	visitWithKey(b, "/schedules")
	b.Type("#create [name=name]", "new.one")
	b.Type("#create [name=cron]", "30 2 * * *")
	b.Type("#create [name=timeZone]", "Europe/Berlin")
	b.Do(chromedp.SetValue(chromedp.CSS("#create [name=message]"), "<a v='{{.Run}}'/>"))
	b.Do(chromedp.SetValue(chromedp.CSS("#create [name=overlap]"), "skip"))
	a.setAnswer("POST /api/schedules/new.one/preview", 200,
		`{"runs":[{"dueAt":"2026-11-21T01:30:00Z",`+
			`"localTime":"2026-11-21T02:30:00","offset":"+01:00"}],"skipped":[{"localTime":"2027-03-28T02:30:00",`+
			`"clocksChangeAt":"2027-03-28T01:00:00Z","runs":0,"note":"clocks are set forward"}],"doubled":[]}`, nil)

	b.Click("#create [data-preview]")
	enterKey(b, writeKey)
	b.Until("the next runs are shown",
		innerText("#create output")+".includes('2026-11-21 01:30:00Z = ') && "+
			innerText("#create output")+".includes('2027-03-28 02:30:00: clocks are set forward')")
	const definition = `{"cron":"30 2 * * *","timeZone":"Europe/Berlin","message":"<a v='{{.Run}}'/>",` +
		`"overlap":"skip","missed":"one"}`
	checkSent(b, a, "POST /api/schedules/new.one/preview count=10 application/json "+definition)

	a.setAnswer("PUT /api/schedules/new.one", 412,
		`{"detail":"there is a schedule of this name"}`, nil)
	b.Click("#create .primary")
	b.Until("the refusal is shown",
		innerText("#create output")+".includes('there is a schedule of this name')")
	a.setAnswer("PUT /api/schedules/new.one", 201, `{"name":"new.one"}`, func() {
		f.Change(func(d *dashboardtest.Data) {
			d.Schedules = append(slices.Clone(d.Schedules),
				dashboard.Schedule{Name: "new.one", Cron: "30 2 * * *"})
		})
	})

	b.Until("the form is ready again", "!('busy' in document.getElementById('create').dataset)")
	b.Click("#create .primary")
	b.Until("the new schedule is shown", innerText("h1")+".includes('new.one')")
	checkSent(b, a, "PUT /api/schedules/new.one  application/json "+definition)
	if got := a.lastNoneMatch(); got != "*" {
		t.Errorf("If-None-Match is %q, want * so that no schedule is replaced", got)
	}

	b.Clean()
}
