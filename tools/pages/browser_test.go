// Package pages_test tests the operator's page in a real browser: layout, keyboard, themes,
// updates, actions and hostile content.
package pages_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"weir/internal/dashboard/dashboardtest"
	"weir/tools/browser"
)

func TestMain(m *testing.M) {
	code := m.Run()
	browser.Stop()
	os.Exit(code)
}

// states returns the systems whose pages the tests look at, by the name of their state.
func states() map[string]*dashboardtest.Source {
	return map[string]*dashboardtest.Source{"busy": dashboardtest.NewBusy(),
		"empty":  dashboardtest.NewEmpty(),
		"broken": dashboardtest.NewBroken(), "down": dashboardtest.NewDown(),
		"paused":  dashboardtest.NewPaused(),
		"held up": dashboardtest.NewHeldUp()}
}

// openBrowser starts a browser on the pages of a handler.
func openBrowser(t *testing.T, h http.Handler) *browser.Tab {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return browser.Open(t, server.URL)
}

// savePicture writes a picture of the page into the folder that the environment variable PICTURES
// names. If PICTURES is not set, savePicture does nothing.
func savePicture(b *browser.Tab, name string) {
	b.T.Helper()
	dir := os.Getenv("PICTURES")
	if dir == "" {
		return
	}

	if err := os.WriteFile(filepath.Join(dir, name+".png"), b.Picture(), 0o644); err != nil {
		b.T.Fatal(err)
	}
}
