package dashboard_test

import (
	"testing"

	"weir/tools/browser"
)

// pages are all there are, with the data of newBusy.
var pages = map[string]string{
	"overview": "", "search": "/messages", "story": "/messages/" + id(1), "waiting": "/messages/" + id(3),
	"edited": "/messages/" + id(40),
	"errors": "/errors", "cluster": "/errors/" + titleError, "replays": "/replays", "job": "/replays/r1",
	"pauses": "/pauses", "missing": "/nowhere",
}

// TestLayout holds that no page is wider than its window, in any state, and that the browser
// finds nothing to complain of.
func TestLayout(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]*fake{"busy": newBusy(), "empty": newEmpty(), "broken": newBroken()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t, newDashboard(f))
			for _, screen := range []struct {
				name          string
				width, height int64
				theme         string
			}{{"desktop-light", 1360, 900, "light"}, {"desktop-dark", 1360, 900, "dark"},
				{"phone-light", 375, 800, "light"}, {"phone-dark", 360, 800, "dark"}} {
				b.Size(screen.width, screen.height)
				for page, path := range pages {
					b.Visit("/api/dashboard" + path + "?theme=" + screen.theme)
					if wide := browser.Eval[float64](b,
						"document.documentElement.scrollWidth"); wide > float64(screen.width) {
						t.Errorf("%s on %s is %v wide", page, screen.name, wide)
					}
					keep(b, name+"-"+page+"-"+screen.name)
				}
			}
			b.Clean()
		})
	}
}
