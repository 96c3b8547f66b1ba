package pages_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"weir/internal/dashboard/dashboardtest"
	"weir/tools/browser"
)

// findViolations is a script that checks the page with axe, an accessibility checker, for WCAG 2.1
// AA and best practice. The script sets window.violations to a text. Each line of the text has a
// violated rule and the elements that violate the rule.
const findViolations = `axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}).then((result) => {
	window.violations = result.violations.map((v) => v.id + ": " + v.nodes.map((n) => n.html.slice(0, 120)).join(" | ")).join("\n");
}, (failure) => { window.violations = "axe: " + failure; }), true`

// changingPages names the pages that are not the same for all example systems. The function states
// returns these systems; one of them is named "busy".
var changingPages = []string{"overview", "search", "errors", "replays", "pauses", "audit"}

// TestAccessibility checks WCAG 2.1 AA and axe's best practice in both themes, at the widths of a
// desktop and of a phone. It checks all pages of the system "busy", and only changingPages of the
// other systems.
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
			for page, path := range dashboardtest.Pages() {
				if name != "busy" && !slices.Contains(changingPages, page) {
					continue
				}

				for _, theme := range []string{"light", "dark"} {
					b.Visit("/api/dashboard" + path + "?theme=" + theme)
					browser.Eval[bool](b, string(axe)+";true")
					for _, width := range []int64{1360, 390} {
						b.Size(width, 844)
						checkAccessibility(b, fmt.Sprintf("%s, %d px, %s", page, width, theme))
					}
				}
			}
		})
	}
}

// checkAccessibility runs axe on the present page.
func checkAccessibility(b *browser.Tab, where string) {
	b.T.Helper()
	browser.Eval[bool](b, "delete window.violations")
	browser.Eval[bool](b, findViolations)
	b.Until("axe has ended", "'violations' in window")
	if got := browser.Eval[string](b, "window.violations"); got != "" {
		b.T.Errorf("%s: got %s, want no violation", where, strings.ReplaceAll(got, "\n", "\n\t"))
	}
}
