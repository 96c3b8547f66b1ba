package pages_test

import (
	"strings"
	"testing"

	"weir/internal/dashboard/dashboardtest"
	"weir/tools/browser"
)

// TestLayout checks the dashboard's pages for each system that the function "states" returns, such
// as a busy one. No page may be wider than the window, and the browser must report no problem.
func TestLayout(t *testing.T) {
	t.Parallel()
	for name, f := range states() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := openBrowser(t, f.Dashboard())
			for page, path := range dashboardtest.Pages() {
				separator := "?"
				if strings.Contains(path, "?") {
					separator = "&"
				}

				for _, theme := range []string{"light", "dark"} {
					b.Visit("/api/dashboard" + path + separator + "theme=" + theme)
					checkWidths(b, page, name+"-"+page, theme)
				}
			}

			b.Clean()
		})
	}
}

// checkWidths checks that the present page fits into the windows of a desktop and of two phones.
func checkWidths(b *browser.Tab, page, picture, theme string) {
	b.T.Helper()
	for _, screen := range []struct {
		name          string
		width, height int64
	}{{"desktop", 1360, 900}, {"phone", 390, 844}, {"narrow", 360, 800}} {
		b.Size(screen.width, screen.height)
		wide := browser.Eval[float64](b, "document.documentElement.scrollWidth")
		if wide > float64(screen.width) {
			b.T.Errorf("%s, %s, %s is %v wide, want at most %v", page, screen.name, theme, wide,
				screen.width)
		}

		savePicture(b, picture+"-"+screen.name+"-"+theme)
	}
}
