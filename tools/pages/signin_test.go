package pages_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"

	"weir/internal/dashboard"
	"weir/internal/dashboard/dashboardtest"
	"weir/internal/door"
	"weir/tools/browser"
)

// newGuardedPages returns the pages of a busy system behind a door, and the key of the function
// view.
func newGuardedPages() (h http.Handler, key string) {
	key = door.NewKey()
	d := door.New(door.Config{Keys: door.Keys{"view": {door.HashKey(key)}}, Page: dashboard.Base,
		Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	mux := http.NewServeMux()
	mux.Handle("/", d.Guard("view", dashboardtest.NewBusy().Dashboard()))
	for path, page := range d.Pages() {
		mux.Handle(path, page)
	}

	return d.Wrap(mux), key
}

// TestSignIn_Page checks the sign-in, without and with the message about a wrong key, in both
// themes: its width, and its accessibility.
func TestSignIn_Page(t *testing.T) {
	t.Parallel()
	axe, err := os.ReadFile("node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Fatalf("this test needs axe-core (make axe): %v", err)
	}

	h, _ := newGuardedPages()
	b := openBrowser(t, h)
	for _, theme := range []string{"light", "dark"} {
		browser.Call(b, emulation.SetEmulatedMedia,
			emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}})
		for _, page := range []string{"sign-in", "sign-in-wrong"} {
			b.Visit(dashboard.Base)
			if page == "sign-in-wrong" {
				submitKey(b, "wrong")
				b.Until("the page refuses the key", "!!document.querySelector('[role=alert]')")
			}

			checkWidths(b, page, page, theme)

			browser.Eval[bool](b, string(axe)+";true")

			for _, width := range []int64{1360, 390} {
				b.Size(width, 844)
				checkAccessibility(b, fmt.Sprintf("%s, %d px, %s", page, width, theme))
			}
		}
	}
}

// TestSignIn_LeadsToThePage checks that a person comes by the sign-in to the page that was asked
// for.
func TestSignIn_LeadsToThePage(t *testing.T) {
	t.Parallel()
	h, key := newGuardedPages()
	b := openBrowser(t, h)
	const wanted = dashboard.Base + "/errors?order=last"
	b.Visit(wanted)
	if got := browser.Eval[string](b, "document.activeElement.id"); got != "sign-in-key" {
		t.Errorf("got the focus on %q, want it on the field of the key", got)
	}

	submitKey(b, key)
	b.Until("the page that was asked for is open",
		fmt.Sprintf("location.pathname + location.search == %q", wanted))
	b.Clean()
}

// submitKey types a key into the sign-in and sends it.
func submitKey(b *browser.Tab, key string) {
	b.T.Helper()
	browser.Eval[bool](b, fmt.Sprintf("document.getElementById('sign-in-key').value = %q, "+
		"document.querySelector('main form button').click(), true", key))
}
