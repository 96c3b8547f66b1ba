package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

// strictCMS takes at most limit requests in any second, by the time at which they arrive, and
// answers 429 to the others.
type strictCMS struct {
	*httptest.Server
	limit int

	mu       sync.Mutex
	arrivals []time.Time // in order
	refused  []time.Time
}

func newStrictCMS(t *testing.T, limit int) *strictCMS {
	t.Helper()
	c := &strictCMS{limit: limit}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now := time.Now()
		_, _ = io.Copy(io.Discard, r.Body)
		status := c.take(now)
		time.Sleep(20 * time.Millisecond)
		w.WriteHeader(status)
	}))
	t.Cleanup(c.Close)

	return c
}

func (c *strictCMS) take(now time.Time) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, _ := slices.BinarySearchFunc(c.arrivals, now.Add(-time.Second), time.Time.Compare)
	c.arrivals = append(c.arrivals, now)
	slices.SortFunc(c.arrivals, time.Time.Compare)
	if len(c.arrivals)-at > c.limit {
		c.refused = append(c.refused, now)
		return http.StatusTooManyRequests
	}

	return http.StatusOK
}

// countSince returns the requests since a time, and those of them that were refused.
func (c *strictCMS) countSince(at time.Time) (all, refused int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, arrival := range c.arrivals {
		if arrival.After(at) {
			all++
		}
	}

	for _, arrival := range c.refused {
		if arrival.After(at) {
			refused++
		}
	}

	return all, refused
}

// TestRate_FourInstancesKeepIt lets four instances with eight lanes use up the rate of a CMS that
// counts any second. All requests together never come faster than the rate. A busy machine can send
// a request late, beside the next ones, so the test counts no single second, except with RATE_FOR:
// then it measures for this time on a quiet machine, the CMS may refuse nothing after ten seconds,
// and the instances have to use 0.85 of the rate.
func TestRate_FourInstancesKeepIt(t *testing.T) {
	const limit, warm = 7, 10 * time.Second
	cms := newStrictCMS(t, limit)
	s := newSystemIn(t, []string{"WEIR_CMS_URL=" + cms.URL}, 4, "lanes: 1 ", "lanes: 8 ",
		"timeout: 30s", "rate: 7/s\n  timeout: 30s")

	measured, unset := time.ParseDuration(os.Getenv("RATE_FOR"))
	messages := 12 * limit
	if unset == nil {
		messages += int(1.1 * limit * (measured + warm).Seconds())
	}

	postedAt := time.Now()
	for n := range messages {
		body, h := versionedArticle(fmt.Sprint("/rate/", n), 1), http.Header{}
		if status := s.postWith(body, h); status != http.StatusAccepted {
			t.Fatalf("message %d: got %d, want 202", n, status)
		}
	}

	if unset == nil {
		measureRate(t, cms, warm, measured)
		return
	}

	s.awaitCondition("the CMS has all messages", 10*time.Minute, func() bool {
		all, refused := cms.countSince(postedAt)
		return all-refused >= messages
	})
	all, refused := cms.countSince(postedAt)
	most := limit * int(time.Since(postedAt).Seconds()+2)
	t.Logf("%d requests in %s, %d refused", all, time.Since(postedAt), refused)
	if all > most {
		t.Errorf("requests to a CMS that takes %d a second: got %d, want at most %d", limit, all, most)
	}
}

// measureRate fails if the CMS refuses a request after the time warm, or if the instances use too
// little of the rate.
func measureRate(t *testing.T, cms *strictCMS, warm, measured time.Duration) {
	t.Helper()
	time.Sleep(warm)
	began := time.Now()
	time.Sleep(measured)
	all, refused := cms.countSince(began)
	used := float64(all) / float64(cms.limit) / time.Since(began).Seconds()
	t.Logf("%d requests in %s, %d refused, %.3f of the limit used", all, measured, refused, used)
	if refused > 0 || used < 0.85 {
		t.Errorf("got %d requests refused, and %.3f of the limit used; want none, and 0.85 at least",
			refused, used)
	}
}
