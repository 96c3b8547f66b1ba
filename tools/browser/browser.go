// Package browser drives a headless Chromium in tests of pages. If the browser is
// missing, the test fails.
package browser

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// Tab is a tab of a browser. It records problems of its pages: script dialogs, exceptions and log
// entries. Log entries about the network are no problems.
type Tab struct {
	T   *testing.T
	URL string // address of the site, without a path

	ctx      context.Context
	mu       sync.Mutex
	problems []string
}

// shared is the browser of the test binary. The start of a browser takes more processor time than
// many a test.
var shared struct {
	once sync.Once
	ctx  context.Context
	stop func()
	err  error
}

// startShared starts the browser. It sets no profile folder, so chromedp makes a folder and removes
// it at the end. If child processes of Chromium still write to the folder, chromedp tries the
// removal again.
func startShared() {
	path, err := findBrowser()
	if err != nil {
		shared.err = err
		return
	}

	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path),
		chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.WSURLReadTimeout(5*time.Minute))

	allocated, free := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, closeBrowser := chromedp.NewContext(allocated)
	shared.ctx, shared.err = ctx, chromedp.Do(ctx)
	shared.stop = func() {
		chromedp.Cancel(ctx) // waits until the browser is gone
		closeBrowser()
		free()
	}
}

// findBrowser returns the path of the headless shell, or of Chromium if there is no shell. Chromium
// makes a window with controls for each tab, although it shows none, and needs twice the processor
// time.
func findBrowser() (string, error) {
	if path, err := exec.LookPath("chromium-headless-shell"); err == nil {
		return path, nil
	}

	path, err := exec.LookPath("chromium")
	if err != nil {
		return "", fmt.Errorf("this test needs Chromium (tools/realcms/install-packages.sh): %w",
			err)
	}

	return path, nil
}

// Stop stops the browser that Open has started. The binary's TestMain must call Stop after the
// tests.
func Stop() {
	if shared.stop != nil {
		shared.stop()
	}
}

// tabLimit is how long a tab stays open at most. It only matters if a test hangs.
const tabLimit = 15 * time.Minute

// Open opens a tab for the test. The tabs of a test binary share one browser, but no cookies and no
// stored data: each tab belongs to a profile of its own, which ends with the test.
func Open(t *testing.T, url string) *Tab {
	t.Helper()
	if shared.once.Do(startShared); shared.err != nil {
		t.Fatalf("start the browser: %v", shared.err)
	}

	limited, stop := context.WithTimeout(shared.ctx, tabLimit)
	ctx, closeTab := chromedp.NewContext(limited, chromedp.WithNewBrowserContext())
	t.Cleanup(func() {
		chromedp.Cancel(ctx) // waits until the tab is closed
		closeTab()
		stop()
	})

	b := &Tab{T: t, URL: url, ctx: ctx}
	if err := chromedp.Listen(ctx, b.collectProblem); err != nil {
		t.Fatalf("listen to chromium: %v", err)
	}

	Call(b, log.Enable, cdp.Empty{})
	Call(b, runtime.Enable, cdp.Empty{})

	return b
}

func (b *Tab) collectProblem(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()

	switch e := event.(type) {
	case *page.EventJavascriptDialogOpening:
		b.problems = append(b.problems, "dialog: "+e.Message)
	case *runtime.EventExceptionThrown:
		b.problems = append(b.problems,
			"exception: "+e.ExceptionDetails.Text+" "+e.ExceptionDetails.URL)
	case *log.EventEntryAdded:
		// network entries are no problem, for example a 404
		if e.Entry.Source != log.EntrySourceNetwork {
			b.problems = append(b.problems, "log: "+e.Entry.Text)
		}
	}
}

// Clean fails the test if the tab has recorded a problem; see Tab.
func (b *Tab) Clean() {
	b.T.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.problems {
		b.T.Errorf("the page reported %s, want no problem", p)
	}
}

// Do runs actions in the tab. It fails the test if an action fails.
func (b *Tab) Do(actions ...chromedp.Action[chromedp.Void]) {
	b.T.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.T.Fatal(err)
	}
}

// Call sends a command of the DevTools protocol to the browser. It fails the test if the command
// fails.
func Call[P, R any](b *Tab, command cdp.Command[P, R], params P) {
	b.T.Helper()
	if _, err := chromedp.Call(b.ctx, command, params); err != nil {
		b.T.Fatal(err)
	}
}

// Visit opens the page at URL + path.
func (b *Tab) Visit(path string) {
	b.T.Helper()
	b.Do(chromedp.Navigate(b.URL + path))
}

// Eval returns the value of a JavaScript expression in the page.
func Eval[T any](b *Tab, script string) T {
	b.T.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](script))
	if err != nil {
		b.T.Fatalf("evaluate %s: %v", script, err)
	}
	return v
}

// Until waits until "condition", a JavaScript expression, is true in the page. After 80 s, which
// only a busy machine needs, it fails the test with an error that contains "what".
func (b *Tab) Until(what, condition string) {
	b.T.Helper()

	// chromedp's own wait makes a function from a text, which the page's content security policy
	// forbids.
	ticker, limit := time.NewTicker(30*time.Millisecond), time.After(5*time.Minute)
	defer ticker.Stop()

	for {
		// Ignore errors: during a navigation there is no document.
		if holds, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("Boolean("+condition+")")); err == nil && holds {
			return
		}

		select {
		case <-ticker.C:
		case <-limit:
			b.T.Fatalf("%s: %s is not true after 80 s", what, condition)
		}
	}
}

// Size sets the size of the page's viewport, in CSS pixels.
func (b *Tab) Size(width, height int64) {
	b.T.Helper()
	b.Do(chromedp.EmulateViewport(width, height))
}

// Reload reloads the page.
func (b *Tab) Reload() {
	b.T.Helper()
	b.Do(chromedp.Reload())
}

// Click clicks the element that the CSS selector selects.
func (b *Tab) Click(selector string) {
	b.T.Helper()
	b.Do(chromedp.Click(chromedp.CSS(selector)))
}

// Type types text into the element that the CSS selector selects.
func (b *Tab) Type(selector, text string) {
	b.T.Helper()
	b.Do(chromedp.SendKeys(chromedp.CSS(selector), text))
}

// Enter is the text of the Enter key, for Type.
const Enter = kb.Enter

// Picture returns a screenshot of the whole page as PNG.
func (b *Tab) Picture() []byte {
	b.T.Helper()
	picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		b.T.Fatal(err)
	}
	return picture
}
