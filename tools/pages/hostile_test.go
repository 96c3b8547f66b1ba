package pages_test

import (
	"strings"
	"testing"
	"time"

	"weir/internal/dashboard/dashboardtest"
	"weir/internal/trial"
	"weir/internal/weir"
	"weir/internal/wire"
	"weir/tools/browser"
)

// attacks are texts that can harm a page: scripts, markup, invisible characters, very long words,
// and words that a script can mistake for its own values, such as null.
var attacks = []string{
	`"><img src=x onerror="window.pwned=1">`, `<script>window.pwned=1</script>`,
	`</textarea></pre><script>window.pwned=1</script>`, `'-alert(1)-'`,
	`javascript:alert(1)`, `{{.Key}}${alert(1)}`, `</title><svg onload=alert(1)>`,
	"\u202egnp.exe\u2066\u200b", "null",
	"undefined", "<!--", "]]>", "\x00\x1b[31m", "\xff\xfe",
	strings.Repeat("W", 4000), strings.Repeat("a ", 2000), "🏴‍☠️ ünïcödé",
	`a" style="position:fixed;inset:0" x="`,
}

// newHostile returns example data for the pages. The fields that upstreams, the CMS and operators
// write have attacks in them.
func newHostile() *dashboardtest.Source {
	f := dashboardtest.NewBusy()
	var everything strings.Builder
	for _, a := range attacks {
		everything.WriteString(a)
	}

	all := everything.String()
	huge := strings.Repeat(all, 1+(1<<20)/len(all))
	f.Data.Messages, f.Data.Trials, f.Data.Obstacles = nil, map[string]trial.Trial{},
		map[string]string{}

	for n, a := range attacks {
		m := dashboardtest.BusyMessage(4*n + 1)
		m.Key, m.Version, m.Contract, m.LastError, m.Edited.Note, m.ReplayRefused, m.WaitsFor, m.SupersededBy = a, a, a,
			a,
			a, a, a, a
		m.Edited.At = dashboardtest.Noon
		m.AttemptLog = []wire.Attempt{{Number: 1, At: dashboardtest.Noon, Outcome: weir.Outcome(a),
			Reason: huge, Answer: huge}}
		if n%2 == 0 {
			m.Stage, m.FinishedAt = weir.Superseded, dashboardtest.Noon
		}

		f.Data.Messages = append(f.Data.Messages, m)
		f.Data.Obstacles[m.ID] = a
		f.Data.Bodies[m.ID], f.Data.Edits[m.ID] = "<a b='"+a+"'>"+a+"<![CDATA["+a+"]]><!--"+
			a+"-->"+huge,
			"-"+a+"\n+"+huge
		request := &trial.Request{Method: a, Address: a + huge, Body: huge,
			Headers: []trial.Header{{Name: a, Value: huge}}}
		f.Data.Trials[m.ID] = trial.Trial{Needs: a, Reason: a,
			Steps: []trial.Step{{Name: a, Request: request},
				{Name: a, LeftOut: huge}, {Name: a, Ahead: true, OnlyIf: huge, Request: request},
				{Name: a, Ahead: true, Problem: huge}}}
	}

	for i, a := range attacks {
		f.Data.Clusters.Errors = append(f.Data.Clusters.Errors,
			wire.ErrorCause{Fingerprint: strings.Repeat("f", i+1), Contract: a, Message: a,
				Count: 1, Keys: 1, FirstAt: dashboardtest.Noon, LastAt: dashboardtest.Noon,
				Sample: wire.ErrorSample{ID: dashboardtest.MessageID(1), Key: a, Reason: a}})

		f.Data.Jobs = append(f.Data.Jobs,
			wire.Job{ID: "j" + strings.Repeat("j", i), State: wire.JobState(a), Reason: a,
				StopReason: a, Filter: wire.JobFilter{Key: a, Contract: a, Fingerprint: a},
				StartedAt: dashboardtest.Noon})

		f.Data.Report.Lanes[0].Pauses = append(f.Data.Report.Lanes[0].Pauses,
			wire.Pause{Key: a, Reason: a, Since: dashboardtest.Noon,
				Until: dashboardtest.Noon.Add(time.Hour)})
	}

	l := &f.Data.Report.Lanes[0]
	l.Holder, l.LastError, l.PauseReason, l.PausedBy, l.PausedUntil = all, all, all, "cms",
		dashboardtest.Noon
	f.Data.Report.Lanes[1].PausedBy, f.Data.Report.Lanes[1].PauseReason = "operator", all
	f.Data.Report.Calendar.Closed, f.Data.Report.Calendar.Reason = true, all
	hostile := f.Data.Batches[0]
	hostile.ID, hostile.Split, hostile.Reason = "h", []string{all}, all
	hostile.Format, hostile.Mode = wire.BatchFormat(all), wire.BatchMode(all)
	hostile.Problems = []wire.PartProblem{{Part: 1, File: all, Message: all,
		Problems: []weir.Problem{{Path: all, Message: all}}}}
	f.Data.Batches = append(f.Data.Batches, hostile)
	f.Data.Schedules[0].Cron, f.Data.Schedules[0].TimeZone, f.Data.Schedules[0].Refusal = all, all,
		all

	return f
}

// TestHostileContent checks that no script or element of an attack gets into a page, and that the
// page shows no invisible characters. A page must also be neither wider than the window nor longer
// than 1 MiB.
func TestHostileContent(t *testing.T) {
	t.Parallel()
	f := newHostile()
	b := openBrowser(t, f.Dashboard())
	paths := []string{"", "/messages", "/errors", "/errors/f", "/errors/" + strings.Repeat("f", 9),
		"/replays", "/replays/j", "/replays/jjj", "/pauses", "/batches", "/batches/h",
		"/messages?q=%22%3E%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E&key=%3Cscript%3E",
		"/pauses?key=%22%3E%3Cscript%3Ealert(1)%3C/script%3E&lane=%22x",
		"/%3Cscript%3Ealert(1)%3C/script%3E"}

	for _, m := range f.Data.Messages {
		paths = append(paths, "/messages/"+m.ID)
	}

	b.Size(375, 800)

	for _, path := range paths {
		b.Visit("/api/dashboard" + path)
		if browser.Eval[bool](b, "'pwned' in window") {
			t.Errorf("%s: a script of a message ran, want none", path)
		}

		if n := browser.Eval[int](b,
			"document.querySelectorAll('img, iframe, object, embed, base, script:not([src]), style, [style], "+
				"[onerror], [onload], [x]:not(rect)').length"); n != 0 {
			t.Errorf("%s: %d elements that are none of ours, want 0", path, n)
		}

		if wide := browser.Eval[int](b, "document.documentElement.scrollWidth"); wide > 375 {
			t.Errorf("%s is %d wide, want at most 375", path, wide)
		}

		if browser.Eval[bool](b,
			`/[\u202a-\u202e\u2066-\u2069\u200b\u0000\u001b]/.test(document.body.innerText)`) {
			t.Errorf("%s: the text has invisible characters, want none", path)
		}

		if size := browser.Eval[int](b, "document.documentElement.outerHTML.length"); size > 1<<20 {
			t.Errorf("%s has %d characters, want at most 1 MiB", path, size)
		}
	}

	savePicture(b, "hostile")
	b.Clean()
}
