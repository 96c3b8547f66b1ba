package dashboard_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"weir/internal/dashboard"
	"weir/internal/dashboard/dashboardtest"
	"weir/internal/weir"
)

// reads has room for one body, and counts the bodies that are in memory.
type reads struct{ held atomic.Int32 }

func (r *reads) Take(context.Context) (done func(), err error) {
	if !r.held.CompareAndSwap(0, 1) {
		return func() {}, &weir.Error{Kind: weir.Unavailable,
			Message: "too many bodies are being read"}
	}
	return func() { r.held.Add(-1) }, nil
}

// A page and a text take the memory of one body, and free it when they are written. Without that
// memory, the page shows all of the message except its body.
func TestDashboard_TakesMemoryForABody(t *testing.T) {
	t.Parallel()
	cfg, r := dashboardtest.NewBusy().Dashboard().Config, &reads{}
	cfg.Reads = r
	d, path := dashboard.New(cfg), "/messages/"+dashboardtest.MessageID(1)
	for range 2 {
		for _, p := range []string{path, path + "/text"} {
			if w := get(d, p); w.Code != 200 ||
				strings.Contains(w.Body.String(), "Could not be read") {
				t.Errorf("GET %s = %d, want 200 with the body", p, w.Code)
			}
		}
	}

	r.held.Store(1)

	for p, want := range map[string]struct {
		code int
		text string
	}{path: {200, "Could not be read: the body"}, path + "/text": {503, "too many bodies"}} {
		if w := get(d, p); w.Code != want.code || !strings.Contains(w.Body.String(), want.text) {
			t.Errorf("GET %s = %d without memory, want %d with %q", p, w.Code, want.code, want.text)
		}
	}

	if n := r.held.Load(); n != 1 {
		t.Errorf("got %d bodies in memory after the answers, want 1: that of the test", n)
	}
}
