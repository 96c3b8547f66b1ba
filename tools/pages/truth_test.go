package pages_test

import (
	"strings"
	"testing"
	"time"

	"weir/internal/dashboard/dashboardtest"
	"weir/tools/browser"
)

// TestOverview_CMS checks the badge of the CMS. After a failed attempt, the badge may show "OK"
// only if the CMS has since accepted or rejected a message.
func TestOverview_CMS(t *testing.T) {
	t.Parallel()
	answered := dashboardtest.NewPaused() // the CMS has answered another lane after the failures
	answered.Data.History.Sum.AnsweredAt = dashboardtest.Noon.Add(-10 * time.Second)
	const failed = "The CMS failed when it was last asked"
	for name, c := range map[string]struct {
		source      *dashboardtest.Source
		badge       string
		has, hasNot []string
	}{
		"Unavailable": {dashboardtest.NewDown(), "unavailable", []string{"The CMS is unavailable."},
			[]string{failed}},
		"NotAskedSince": {dashboardtest.NewPaused(), "failed when last asked",
			[]string{failed, "40 s ago",
				"503 Service Unavailable", "All lanes are paused by an operator",
				"the CMS is being upgraded"}, nil},
		"AnsweredSince": {answered, "OK", []string{"All lanes are paused by an operator"},
			[]string{failed}},
		"Empty": {dashboardtest.NewEmpty(), "no requests", nil, []string{failed, "paused"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := openBrowser(t, c.source.Dashboard())
			b.Visit("/api/dashboard")
			if got := browser.Eval[string](b, innerText("#cms-title .badge")); got != c.badge {
				t.Errorf("got the badge %q, want %q", got, c.badge)
			}

			text := browser.Eval[string](b, innerText("#banners"))
			for _, want := range c.has {
				if !strings.Contains(text, want) {
					t.Errorf("got the banners %q without %q", text, want)
				}
			}

			for _, unwanted := range c.hasNot {
				if strings.Contains(text, unwanted) {
					t.Errorf("got the banners %q, want none with %q", text, unwanted)
				}
			}
		})
	}
}

// TestOverview_OneNumber checks that a number has the same value in each place of the page that
// shows it, and that the page names the time for which the number was counted.
func TestOverview_OneNumber(t *testing.T) {
	t.Parallel()
	f := dashboardtest.NewBusy()
	b := openBrowser(t, f.Dashboard())
	b.Visit("/api/dashboard")

	for script, want := range map[string]string{
		innerText("#tiles .tile:nth-child(1) b"):           "2,050",
		innerText("#chart-depth .legend b"):                "2,050",
		innerText("#chart-depth figcaption span"):          "messages that wait, now",
		innerText("#tiles .tile:nth-child(2) b"):           "807",
		innerText("#tiles .tile:nth-child(2) time"):        "11:57",
		innerText("#tiles .tile:nth-child(2) time + time"): "11:58",
		innerText("#chart-flow figcaption span"):           "messages per minute, 11:57–11:58",
		innerText("#chart-attempts figcaption span"):       "time of an attempt, 11:57–11:58",
		innerText("#lanes thead small"):                    "11:57–11:58",
		innerText("#chart-flow .s-accepted b") +
			" === document.querySelectorAll('#figures-flow td')[3*56].textContent": "true",
	} {
		if got := browser.Eval[string](b, "String("+script+").replace(/\u202f/g, ',')"); got !=
			want {
			t.Errorf("%s: got %q, want %q", script, got, want)
		}
	}

	b.Clean()
}
