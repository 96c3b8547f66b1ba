package dashboard_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/dashboard"
	"weir/internal/dashboard/dashboardtest"
	"weir/internal/weir"
	"weir/internal/wire"
)

// faulty is a source whose methods Lanes and Body panic.
type faulty struct{ *dashboardtest.Source }

func (faulty) Lanes(context.Context) (wire.LaneList, error)                { panic("no lanes") }
func (faulty) Body(context.Context, weir.ID, bool) (dashboard.Body, error) { panic("no body") }

// Each part of a page loads in its own goroutine, in which the HTTP server recovers no panic. A
// panic in a load must not end the process.
func TestDashboard_APanicDoesNotEndTheProcess(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	f := faulty{dashboardtest.NewBusy()}
	d := dashboard.New(dashboard.Config{Source: f, Reads: f, Now: f.Now,
		Log: slog.New(slog.NewJSONHandler(&logged, nil))})

	for path, unread := range map[string]string{"/pauses": "the lanes",
		"/messages/" + dashboardtest.MessageID(1): "the body"} {
		if w := get(d, path); w.Code != 200 ||
			!strings.Contains(w.Body.String(), "Could not be read: "+unread) {
			t.Errorf("GET %s = %d, want 200 with \"Could not be read: %s\"", path, w.Code, unread)
		}
	}

	for _, where := range []string{"faulty.Lanes", "faulty.Body"} {
		if !strings.Contains(logged.String(), where) {
			t.Errorf("got the log %s\nwant %s in it", &logged, where)
		}
	}
}

// slow is a source whose method Lanes blocks until the test closes slow.ends, or until the context
// of the call ends.
type slow struct {
	*dashboardtest.Source
	asked atomic.Int32 // number of calls of Lanes
	ends  chan struct{}
}

func (s *slow) Lanes(ctx context.Context) (wire.LaneList, error) {
	s.asked.Add(1)
	select {
	case <-s.ends:
		return s.Source.Lanes(ctx)
	case <-ctx.Done():
		return wire.LaneList{}, ctx.Err()
	}
}

func (s *slow) newDashboard() *dashboard.Dashboard {
	cfg := s.Source.Dashboard().Config
	cfg.Source = s
	return dashboard.New(cfg)
}

func TestDashboard_ShowsTheRestWhenSomethingHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slow{Source: dashboardtest.NewBusy(), ends: make(chan struct{})}
		began := time.Now()
		w := get(s.newDashboard(), "")
		if took := time.Since(began); w.Code != 200 || took != 10*time.Second {
			t.Errorf("got %d after %s, want status 200 and 10s", w.Code, took)
		}

		body := w.Body.String()
		for _, part := range []string{"Could not be read: the lanes.", "No lane could be read.",
			"Field title: at most", "nightly-report", "Throughput"} {
			if !strings.Contains(body, part) {
				t.Errorf("the page lacks %q, want it", part)
			}
		}

		if strings.Contains(body, "balanced") {
			t.Error("the page says that the counters are balanced, want no such claim without the lanes")
		}
	})
}

func TestDashboard_ReadsOnceForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slow{Source: dashboardtest.NewBusy(), ends: make(chan struct{})}
		d := s.newDashboard()
		for range 20 {
			go func() {
				if w := get(d, ""); strings.Contains(w.Body.String(), "Could not be read") {
					t.Error("a page has \"Could not be read\", want all parts read")
				}
			}()
		}

		synctest.Wait()
		close(s.ends)
		synctest.Wait()
		if n := s.asked.Load(); n != 1 {
			t.Errorf("got %d reads of the lanes for 20 readers, want 1", n)
		}

		get(d, "")
		s.PassTime(time.Second)
		get(d, "")
		get(d, "", "Cache-Control", "no-cache")

		if n := s.asked.Load(); n != 2 {
			t.Errorf("got %d reads of the lanes, want 2: the first one, and one for the reader with "+
				"Cache-Control: no-cache", n)
		}

		s.PassTime(5 * time.Second)

		if get(d, ""); s.asked.Load() != 3 {
			t.Errorf("got %d reads of the lanes, want 3: a third one after five seconds",
				s.asked.Load())
		}
	})
}
