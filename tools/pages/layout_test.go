package pages_test

import (
	"strings"
	"testing"

	"weir/internal/dashboard/dashboardtest"
	"weir/tools/browser"
)

// TestLayout checks the dashboard's pages for each system that the function "states" returns, such as a busy one. No
// page may be wider than the window, and the browser must report no problem.
func TestLayout(t *testing.T) {
	t.Parallel()
	for name, f := range states() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := openBrowser(t, f.Dashboard())
			for _, screen := range []struct {
				name          string
				width, height int64
				theme         string
			}{{"desktop-light", 1360, 900, "light"}, {"desktop-dark", 1360, 900, "dark"},
				{"phone-light", 390, 844, "light"}, {"phone-dark", 390, 844, "dark"}, {"narrow", 360, 800, "light"}} {
				b.Size(screen.width, screen.height)
				for page, path := range dashboardtest.Pages() {
					separator := "?"
					if strings.Contains(path, "?") {
						separator = "&"
					}
					b.Visit("/api/dashboard" + path + separator + "theme=" + screen.theme)
					if wide := browser.Eval[float64](b,
						"document.documentElement.scrollWidth"); wide > float64(screen.width) {
						t.Errorf("%s on %s is %v wide, want at most %v", page, screen.name, wide, screen.width)
					}
					savePicture(b, name+"-"+page+"-"+screen.name)
				}
			}
			b.Clean()
		})
	}
}
