package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/storage/memory"
)

// triggers are the addresses that only the host uses.
var triggers = []string{"/", "/process", "/poison", "/sweep"}

var parameter = regexp.MustCompile(`\{[^}]*\}`)

// TestOpenAPI_DescribesEveryAddress holds the addresses and their methods against the
// document. Which methods an address takes it tells itself, when asked by another.
func TestOpenAPI_DescribesEveryAddress(t *testing.T) {
	t.Parallel()
	document, err := description()
	if err != nil {
		t.Fatal(err)
	}
	var described, served []string
	for _, o := range document.Operations() {
		described = append(described, parameter.ReplaceAllString(o, "x"))
	}
	mux := routesOf(t)
	for _, pattern := range mux.patterns {
		if slices.Contains(triggers, pattern) {
			continue
		}
		path := parameter.ReplaceAllString(pattern, "x")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest("BREW", path, nil))
		if w.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s answers %d to a method it cannot know", pattern, w.Code)
		}
		for method := range strings.SplitSeq(w.Header().Get("Allow"), ", ") {
			served = append(served, method+" "+path)
		}
	}
	for _, s := range served {
		if !slices.Contains(described, s) {
			t.Errorf("%s is not described in internal/openapi/openapi.yaml", s)
		}
	}
	for _, d := range described {
		if !slices.Contains(served, d) {
			t.Errorf("%s is described, and not served", d)
		}
	}
	if len(served) < 30 {
		t.Errorf("only %d operations are served", len(served))
	}
}

// routesOf makes the routes of a program that has storage in memory.
func routesOf(t *testing.T) *router {
	t.Helper()
	p, err := NewProgram(env(t, minimal), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	account := memory.New(time.Now)
	store := &lane.Store{Table: account.Table(), Bodies: account.Blobs(), Lanes: 1, Now: time.Now}
	bell := p.newBell(store)
	routes, _ := p.routes(store, bell, drain.New(p.drainConfig(store, bell)))
	t.Cleanup(func() {
		if err := p.keeper.Load().Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	mux, ok := routes.(*router)
	if !ok {
		t.Fatalf("the routes are a %T", routes)
	}
	return mux
}
