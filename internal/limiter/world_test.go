package limiter_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"weir/internal/limiter"
	"weir/internal/storage"
	"weir/internal/storage/memory"
)

// world has a store, whose clock is not that of the processes, and a CMS that counts requests.
type world struct {
	t       *testing.T
	table   *memory.Table
	latency time.Duration // of each way to storage and back, at most
	rate    limiter.Rate
	ahead   time.Duration // of the clock of storage

	mu       sync.Mutex
	arrivals []time.Time
	calls    map[string][]time.Time // transactions of each process
	isAway   bool                   // storage is away
	// the limit of the CMS, if it is not the rate; 0 = the rate
	limit int
}

func newWorld(t *testing.T, rate limiter.Rate) *world {
	w := &world{t: t, rate: rate, ahead: 3 * time.Hour, latency: 30 * time.Millisecond,
		calls: map[string][]time.Time{}}
	w.table = memory.New(func() time.Time {
		w.mu.Lock()
		defer w.mu.Unlock()
		return time.Now().Add(w.ahead)
	}).Table()

	return w
}

// start starts a process, whose clock is wrong by a constant.
func (w *world) start(name string) *limiter.Limiter {
	skew := time.Duration(len(name)) * time.Minute
	l := limiter.New(limiter.Config{Table: &slowTable{w, name, w.table}, CMS: "cms", Rate: w.rate,
		Now: func() time.Time { return time.Now().Add(skew) },
		Log: slog.New(slog.DiscardHandler)})
	w.t.Cleanup(l.Close)

	return l
}

// slowTable is the table of one process.
type slowTable struct {
	w     *world
	name  string
	inner storage.Table
}

func (s *slowTable) pass() error {
	s.w.mu.Lock()
	s.w.calls[s.name] = append(s.w.calls[s.name], time.Now())
	isAway := s.w.isAway
	s.w.mu.Unlock()
	s.wait()
	if isAway {
		return &storage.Error{Op: "test", Kind: storage.Unavailable, Index: -1}
	}

	return nil
}

func (s *slowTable) wait() {
	time.Sleep(time.Duration(rand.Float64() * float64(s.w.latency) / 2))
}

func (s *slowTable) Get(ctx context.Context, p, k string) (storage.Row, error) {
	if err := s.pass(); err != nil {
		return storage.Row{}, err
	}
	row, err := s.inner.Get(ctx, p, k)
	s.wait()

	return row, err
}

func (s *slowTable) Range(ctx context.Context, q storage.Query) (storage.Page, error) {
	return s.inner.Range(ctx, q)
}

func (s *slowTable) Transact(ctx context.Context, p string,
	ops []storage.Op) ([]storage.ETag, error) {
	if err := s.pass(); err != nil {
		return nil, err
	}
	etags, err := s.inner.Transact(ctx, p, ops)
	s.wait()

	return etags, err
}

// RoundTrip is the CMS, which takes 20 to 60 ms.
func (w *world) RoundTrip(req *http.Request) (*http.Response, error) {
	time.Sleep(time.Duration(rand.Float64() * float64(10*time.Millisecond))) // the way to the CMS
	status := http.StatusOK
	w.mu.Lock()
	now := time.Now()
	w.arrivals = append(w.arrivals, now)
	limit := w.limit
	if limit == 0 {
		limit = w.rate.Count
	}
	if w.countSince(now.Add(-w.rate.Per)) > limit {
		status = http.StatusTooManyRequests
	}
	w.mu.Unlock()
	time.Sleep(20*time.Millisecond + time.Duration(rand.Float64()*float64(40*time.Millisecond)))

	return &http.Response{StatusCode: status, Header: http.Header{}, Request: req,
		Body: http.NoBody}, nil
}

// countSince is countArrivals for a caller that holds mu.
func (w *world) countSince(at time.Time) (n int) {
	for i := len(w.arrivals) - 1; i >= 0 && w.arrivals[i].After(at); i-- {
		n++
	}

	return n
}

// countArrivals returns the number of requests since a time.
func (w *world) countArrivals(since time.Time) int {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.countSince(since)
}

// busiest returns the largest number of arrivals in any period, and the arrivals since a time.
func (w *world) busiest(since time.Time) (most, all int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	arrivals := slices.Clone(w.arrivals)
	slices.SortFunc(arrivals, time.Time.Compare)
	first := 0
	for i, at := range arrivals {
		for !arrivals[first].After(at.Add(-w.rate.Per)) {
			first++
		}
		most = max(most, i-first+1)
		if !at.Before(since) {
			all++
		}
	}

	return most, all
}

// lane is a lane that waits for slots as a session of package drain does.
type lane struct {
	place *limiter.Place
	news  chan struct{}
}

func newLane(l *limiter.Limiter) *lane {
	n := &lane{news: make(chan struct{}, 1)}
	n.place = l.NewPlace(func() {
		select {
		case n.news <- struct{}{}:
		default:
		}
	})

	return n
}

// begin waits for an attempt with so many requests. It returns an error if ctx ends.
func (n *lane) begin(ctx context.Context, requests int) (context.Context, func(), error) {
	for {
		if wait := n.place.Ask(requests); wait > 0 {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-n.news:
			case <-ctx.Done():
				return nil, nil, ctx.Err()
			}
			timer.Stop()
			continue
		}

		attempt, end, err := n.place.Begin(ctx)
		if !limiter.IsNoSlot(err) {
			return attempt, end, err
		}
	}
}

// send runs a lane that always has a message, of so many requests, until ctx ends.
func (w *world) send(ctx context.Context, l *limiter.Limiter, requests int) {
	n := newLane(l)
	defer n.place.Leave()
	client := &http.Client{Transport: limiter.NewTransport(w, l)}
	for {
		attempt, end, err := n.begin(ctx, requests)
		if err != nil {
			return
		}

		for range requests {
			w.request(attempt, client)
		}
		end()
	}
}

func (w *world) request(ctx context.Context, client *http.Client) int {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://cms.test/", http.NoBody)
	if err != nil {
		w.t.Error(err)
		return 0
	}

	resp, err := client.Do(req)
	if err != nil {
		return 0
	}
	resp.Body.Close()

	return resp.StatusCode
}
