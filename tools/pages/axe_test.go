package pages_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"weir/internal/dashboard/dashboardtest"
	"weir/tools/browser"
)

// findViolations is a script that runs axe's rules of WCAG 2.1 AA and of best practice on the page. It sets
// window.violations to a text with a line for each violation: the rule and the elements.
const findViolations = `axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}).then((result) => {
	window.violations = result.violations.map((v) => v.id + ": " + v.nodes.map((n) => n.html.slice(0, 120)).join(" | ")).join("\n");
}, (failure) => { window.violations = "axe: " + failure; }), true`

// changingPages are the pages that differ between the states of a system.
var changingPages = []string{"overview", "search", "errors", "replays", "pauses", "audit"}

// TestAccessibility checks WCAG 2.1 AA and axe's best practice in both themes, on a desktop and on a phone. It looks
// at each page of a busy system. For each other state of a system it looks at changingPages.
func TestAccessibility(t *testing.T) {
	t.Parallel()
	axe, err := os.ReadFile("node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Fatalf("this test needs axe-core (make axe): %v", err)
	}
	for name, f := range states() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := openBrowser(t, f.Dashboard())
			for _, width := range []int64{1360, 390} {
				b.Size(width, 844)
				for page, path := range dashboardtest.Pages() {
					if name != "busy" && !slices.Contains(changingPages, page) {
						continue
					}
					for _, theme := range []string{"light", "dark"} {
						b.Visit("/api/dashboard" + path + "?theme=" + theme)
						browser.Eval[bool](b, string(axe)+";true")
						browser.Eval[bool](b, findViolations)
						b.Until("axe has ended", "'violations' in window")
						if got := browser.Eval[string](b, "window.violations"); got != "" {
							t.Errorf("%s, %d px, %s: got %s, want no violation", page, width, theme,
								strings.ReplaceAll(got, "\n", "\n\t"))
						}
					}
				}
			}
		})
	}
}
