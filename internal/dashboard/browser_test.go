package dashboard_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"weir/internal/dashboard"
	"weir/tools/browser"
)

// newDashboard makes the pages of a fake, at noon.
func newDashboard(f *fake) *dashboard.Dashboard {
	return dashboard.New(dashboard.Config{
		Lanes: f, Past: f, Messages: f, Errors: f, Replays: f, Schedules: f, Contracts: []string{"article", "delete"},
		Now: f.now, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
}

// open starts a browser on the pages of a handler.
func open(t *testing.T, h http.Handler) *browser.Tab {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return browser.Open(t, server.URL)
}

// keep writes a picture of the page, where PICTURES names a folder.
func keep(b *browser.Tab, name string) {
	b.T.Helper()
	dir := os.Getenv("PICTURES")
	if dir == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), b.Picture(), 0o644); err != nil {
		b.T.Fatal(err)
	}
}
