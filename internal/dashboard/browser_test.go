package dashboard_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"weir/internal/dashboard"
)

// newDashboard makes the pages of a fake, at noon.
func newDashboard(f *fake) *dashboard.Dashboard {
	return dashboard.New(dashboard.Config{
		Lanes: f, Past: f, Messages: f, Errors: f, Replays: f, Schedules: f, Contracts: []string{"article", "delete"},
		Now: f.now, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
}

// browser is a tab, and all it complained of.
type browser struct {
	t   *testing.T
	ctx context.Context
	url string

	mu       sync.Mutex
	problems []string
}

// open starts a browser with a profile of its own on the pages of a handler.
func open(t *testing.T, h http.Handler) *browser {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return openAt(t, server.URL)
}

func openAt(t *testing.T, url string) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("these tests need Debian's chromium (apt-get install -y chromium): %v", err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.UserDataDir(t.TempDir()), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.WSURLReadTimeout(time.Minute))
	limited, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	allocated, free := chromedp.NewExecAllocator(limited, options...)
	ctx, closeTab := chromedp.NewContext(allocated)
	t.Cleanup(func() {
		chromedp.Cancel(ctx) // waits until the browser is gone
		closeTab()
		free()
		stop()
	})
	b := &browser{t: t, ctx: ctx, url: url}
	if err := chromedp.Listen(ctx, b.listen); err != nil {
		t.Fatalf("chromium: %v", err)
	}
	call(b, log.Enable, cdp.Empty{})
	call(b, runtime.Enable, cdp.Empty{})
	return b
}

// listen notes what a page of ours must never cause: dialogs of scripts, exceptions, and what
// the content security policy refused.
func (b *browser) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *page.EventJavascriptDialogOpening:
		b.problems = append(b.problems, "dialog: "+e.Message)
	case *runtime.EventExceptionThrown:
		b.problems = append(b.problems, "exception: "+e.ExceptionDetails.Text+" "+e.ExceptionDetails.URL)
	case *log.EventEntryAdded:
		if e.Entry.Source != log.EntrySourceNetwork { // a page that is not there is no harm
			b.problems = append(b.problems, "log: "+e.Entry.Text)
		}
	}
}

// clean fails the test where the pages caused something.
func (b *browser) clean() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.problems {
		b.t.Error(p)
	}
}

func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

func call[P, R any](b *browser, command cdp.Command[P, R], params P) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, command, params); err != nil {
		b.t.Fatal(err)
	}
}

func (b *browser) visit(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.url + path))
}

// eval gives a value of the page.
func eval[T any](b *browser, script string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](script))
	if err != nil {
		b.t.Fatalf("%s: %v", script, err)
	}
	return v
}

// until waits for a condition of the page. chromedp's own way to wait makes a function from
// a text in the page, which the page's policy forbids.
func (b *browser) until(what, condition string) {
	b.t.Helper()
	ticker, limit := time.NewTicker(30*time.Millisecond), time.After(20*time.Second)
	defer ticker.Stop()
	for {
		// While a page goes and another comes there is nothing to ask.
		if holds, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("Boolean("+condition+")")); err == nil && holds {
			return
		}
		select {
		case <-ticker.C:
		case <-limit:
			b.t.Fatalf("%s: %s does not come to hold", what, condition)
		}
	}
}

func (b *browser) size(width, height int64) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(width, height))
}

// keep writes a picture of the whole page, where PICTURES names a folder.
func (b *browser) keep(name string) {
	b.t.Helper()
	dir := os.Getenv("PICTURES")
	if dir == "" {
		return
	}
	picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}
