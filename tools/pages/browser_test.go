// Package pages_test holds the operator's page against a real browser: layout, keyboard, themes,
// updates, actions and hostile content.
package pages_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"weir/tools/browser"
)

// openBrowser starts a browser on the pages of a handler.
func openBrowser(t *testing.T, h http.Handler) *browser.Tab {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return browser.Open(t, server.URL)
}

// savePicture writes a picture of the page if PICTURES names a folder.
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
