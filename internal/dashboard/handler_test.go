package dashboard_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"weir/internal/dashboard"
	"weir/internal/dashboard/dashboardtest"
	"weir/internal/weir"
	"weir/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func get(h http.Handler, path string, headers ...string) *httptest.ResponseRecorder {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/api/dashboard"+path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	h.ServeHTTP(w, r)
	return w
}

func TestDashboard_Headers(t *testing.T) {
	t.Parallel()
	d := dashboardtest.NewBusy().Dashboard()
	for name, path := range dashboardtest.Pages() {
		w := get(d, path)
		want := http.StatusOK
		if name == "missing" {
			want = http.StatusNotFound
		}
		h := w.Header()
		if w.Code != want || h.Get("Content-Type") != "text/html; charset=utf-8" ||
			h.Get("Cache-Control") != "no-store" ||
			h.Get("Referrer-Policy") != "no-referrer" || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %v", name, w.Code, h)
		}
		policy := h.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "base-uri 'none'",
			"frame-ancestors 'none'", "form-action 'self'"} {
			if !strings.Contains(policy, part) || strings.Contains(policy, "unsafe") {
				t.Errorf("%s: %s", name, policy)
			}
		}
		if elsewhere := regexp.MustCompile(`(?:src|href|action)="(?:https?:)?//[^"]*`).FindString(
			w.Body.String()); elsewhere != "" {
			t.Errorf("%s loads or links %s", name, elsewhere)
		}
	}
}

func TestDashboard_Assets(t *testing.T) {
	t.Parallel()
	d := dashboardtest.NewEmpty().Dashboard()
	page := get(d, "").Body.String()
	for _, asset := range []struct {
		address,
		kind string
	}{{`href="/api/dashboard(/assets/app\.css\?v=\w+)"`, "text/css"},
		{`src="/api/dashboard(/assets/app\.js\?v=\w+)"`, "text/javascript"}} {
		found := regexp.MustCompile(asset.address).FindStringSubmatch(page)
		if found == nil {
			t.Fatalf("%s is not on the page", asset.address)
		}
		w := get(d, found[1])
		if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), asset.kind) ||
			!strings.Contains(w.Header().Get("Cache-Control"), "immutable") || w.Body.Len() == 0 {
			t.Errorf("%s: %d %v", found[1], w.Code, w.Header())
		}
	}
	for _, path := range []string{"/assets/NOTICE", "/assets/..%2fhandler.go", "/assets/app.css.gz"} {
		if w := get(d, path); w.Code != 404 {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	if w := get(d, "/assets/app.css?v=other"); w.Code != 200 ||
		strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
		t.Errorf("of another version: %d %v", w.Code, w.Header())
	}
}

func TestDashboard_WrongParameters(t *testing.T) {
	t.Parallel()
	d := dashboardtest.NewBusy().Dashboard()
	for path, status := range map[string]int{"/messages?lane=x": 400, "/messages?stage=bogus": 400,
		"/messages?contract=earlier": 200, "/messages?from=yesterday&to=x": 400, "/messages/nonsense": 404,
		"/messages/" + dashboardtest.MessageID(999): 404, "/replays/none": 404, "/errors/none": 200,
		"?span=all&theme=%22": 200} {
		if w := get(d, path); w.Code != status || !strings.Contains(w.Body.String(), "</html>") {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

// A count that was stopped early is shown as "at least". The number of queued messages, which is the rest, is
// shown as "at most".
func TestDashboard_CountsThatAreNotComplete(t *testing.T) {
	t.Parallel()
	f := dashboardtest.NewEmpty()
	f.Data.Report.Lanes = []wire.Lane{{Counts: wire.Counts{Accepted: 70, Waiting: 70}, Scheduled: 50, Retrying: 5,
		Queued: 15}}
	body := get(f.Dashboard(), "").Body.String()
	for name, want := range map[string]string{"Scheduled": "≥ 50", "Retrying": "≥ 5", "Queued": "≤ 15"} {
		if !strings.Contains(body, `<td data-name="`+name+`" class="n">`+want+`</td>`) {
			t.Errorf("%s is not shown as %s", name, want)
		}
	}
}

// A resume of "all" lanes resumes no key, and the page says so.
func TestDashboard_ResumeSaysWhatStays(t *testing.T) {
	t.Parallel()
	body := get(dashboardtest.NewBusy().Dashboard(), "/pauses").Body.String()
	if strings.Contains(body, "everything") ||
		!strings.Contains(body, "Keys that were paused by themselves stay paused") {
		t.Error("to resume all lanes is told as more than it is")
	}
}

// faulty is a source with a defect in it.
type faulty struct{ *dashboardtest.Source }

func (faulty) Lanes(context.Context) (wire.LaneList, error)        { panic("no lanes") }
func (faulty) Body(context.Context, weir.ID, bool) (string, error) { panic("no body") }

// Parts of a page are loaded in other goroutines, whose panics no HTTP server recovers. A panic there must not
// end the process.
func TestDashboard_ADefectIsNotTheProcessesEnd(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	f := faulty{dashboardtest.NewBusy()}
	d := dashboard.New(dashboard.Config{Lanes: f, Past: f, Messages: f, Errors: f, Replays: f, Schedules: f, Now: f.Now,
		Log: slog.New(slog.NewJSONHandler(&logged, nil))})
	for path, unread := range map[string]string{"/pauses": "the lanes",
		"/messages/" + dashboardtest.MessageID(1): "the body"} {
		if w := get(d, path); w.Code != 200 || !strings.Contains(w.Body.String(), "Could not be read: "+unread) {
			t.Errorf("%s: %d, %s is not said to be unread", path, w.Code, unread)
		}
	}
	for _, where := range []string{"faulty.Lanes", "faulty.Body"} {
		if !strings.Contains(logged.String(), where) {
			t.Errorf("%s is not in the log: %s", where, &logged)
		}
	}
}

// slow is a source whose lanes load slowly. It counts the calls.
type slow struct {
	*dashboardtest.Source
	asked atomic.Int32
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

func (s *slow) dashboard() *dashboard.Dashboard {
	cfg := s.Source.Dashboard().Config
	cfg.Lanes = s
	return dashboard.New(cfg)
}

func TestDashboard_ShowsTheRestWhenSomethingHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slow{Source: dashboardtest.NewBusy(), ends: make(chan struct{})}
		began := time.Now()
		w := get(s.dashboard(), "")
		if took := time.Since(began); w.Code != 200 || took != 10*time.Second {
			t.Errorf("%d after %s", w.Code, took)
		}
		body := w.Body.String()
		for _, part := range []string{"Could not be read: the lanes.", "No lane could be read.", "Field title: at most",
			"nightly-report", "Throughput"} {
			if !strings.Contains(body, part) {
				t.Errorf("%q is missing", part)
			}
		}
		if strings.Contains(body, "balanced") {
			t.Error("it knows that the books balance")
		}
	})
}

func TestDashboard_ReadsOnceForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slow{Source: dashboardtest.NewBusy(), ends: make(chan struct{})}
		d := s.dashboard()
		for range 20 {
			go func() {
				if w := get(d, ""); strings.Contains(w.Body.String(), "Could not be read") {
					t.Error("not read")
				}
			}()
		}
		synctest.Wait()
		close(s.ends)
		synctest.Wait()
		if n := s.asked.Load(); n != 1 {
			t.Errorf("asked %d times for 20 readers", n)
		}
		get(d, "")
		s.PassTime(time.Second)
		get(d, "")
		get(d, "", "Cache-Control", "no-cache")
		if n := s.asked.Load(); n != 2 {
			t.Errorf("asked %d times, with one who wants nothing old", n)
		}
		s.PassTime(5 * time.Second)
		if get(d, ""); s.asked.Load() != 3 {
			t.Error("what is five seconds old is shown")
		}
	})
}

func TestDashboard_AnUpdateLeavesOutTheBodyThatIsShown(t *testing.T) {
	t.Parallel()
	d := dashboardtest.NewBusy().Dashboard()
	for path, bodies := range map[string]bool{
		"/messages/" + dashboardtest.MessageID(1):                      true,
		"/messages/" + dashboardtest.MessageID(1) + "?known=accepted":  false,
		"/messages/" + dashboardtest.MessageID(40) + "?known=accepted": true,
	} {
		if got := strings.Contains(get(d, path).Body.String(), `id="bodies"`); got != bodies {
			t.Errorf("%s: %v", path, got)
		}
	}
}
