package pages_test

import (
	"testing"

	"weir/internal/dashboard/dashboardtest"
	"weir/tools/browser"
)

// TestLayout holds that no page is wider than its window, in any state, and that the browser
// reports no problem.
func TestLayout(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]*dashboardtest.Source{"busy": dashboardtest.NewBusy(),
		"empty": dashboardtest.NewEmpty(), "broken": dashboardtest.NewBroken()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := openBrowser(t, f.Dashboard())
			for _, screen := range []struct {
				name          string
				width, height int64
				theme         string
			}{{"desktop-light", 1360, 900, "light"}, {"desktop-dark", 1360, 900, "dark"},
				{"phone-light", 375, 800, "light"}, {"phone-dark", 360, 800, "dark"}} {
				b.Size(screen.width, screen.height)
				for page, path := range dashboardtest.Pages() {
					b.Visit("/api/dashboard" + path + "?theme=" + screen.theme)
					if wide := browser.Eval[float64](b,
						"document.documentElement.scrollWidth"); wide > float64(screen.width) {
						t.Errorf("%s on %s is %v wide", page, screen.name, wide)
					}
					savePicture(b, name+"-"+page+"-"+screen.name)
				}
			}
			b.Clean()
		})
	}
}
