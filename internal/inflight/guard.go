package inflight

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"weir/internal/httpio"
	"weir/internal/weir"
)

const (
	// maxDeaths is the number of deaths after which a request is refused. The host ends after the
	// third death.
	maxDeaths = 2
	// forgetAfter is the time after which deaths are forgotten. The host forgets them after the
	// same time.
	forgetAfter = 30 * time.Minute
	// turnPatience is the time for which a suspect waits for its turn.
	turnPatience = 20 * time.Second
	// keyLength is the length of a key in characters.
	keyLength = 32
)

// File is the file of marks. An os.File is one.
type File interface {
	io.ReaderAt
	io.WriterAt
}

// Guard refuses requests that have ended the process twice. Safe for concurrent use.
type Guard struct {
	file File
	now  func() time.Time
	log  *slog.Logger
	turn chan struct{} // holds a value while a suspect runs

	mu        sync.Mutex
	requests  map[string]*request
	free      []int       // rows below "rows" that no request has
	rows      int         // number of rows of the file
	unwritten map[int]row // rows whose last write failed
	hasError  bool        // a mark could not be written, and the log has a line about it
	isStopped bool        // no request has a mark any more; see Stop
}

// request is a request that runs, or under which the process has died.
type request struct {
	row     int
	deaths  int
	diedAt  time.Time
	running int // number of runs at this moment
}

// NewGuard reads the marks of the processes before this one, which were last written at writtenAt. A
// request that ran when its process died has one death more now. The process may have died long
// ago, so the death counts from writtenAt.
func NewGuard(file File, writtenAt time.Time, now func() time.Time,
	log *slog.Logger) (*Guard, error) {
	if now().Before(writtenAt) {
		writtenAt = now() // the clock was set back
	}

	rows, err := readRows(file)
	if err != nil {
		return nil, fmt.Errorf("read the marks of requests: %w", err)
	}

	g := &Guard{file: file, now: now, log: log, turn: make(chan struct{}, 1),
		requests: map[string]*request{}, rows: len(rows), unwritten: map[int]row{}}

	for i, one := range rows {
		if one.isRunning {
			one.deaths, one.diedAt, one.isRunning = one.deaths+1, writtenAt, false
		}

		if one.diedAt.After(now()) {
			one.diedAt = now() // the clock was set back since
		}

		if one.key == "" || one.deaths == 0 || now().Sub(one.diedAt) > forgetAfter {
			one = row{}
		}

		if _, err := file.WriteAt(one.format(), int64(i*rowLength)); err != nil {
			return nil, fmt.Errorf("write the marks of requests: %w", err)
		}

		if one.key == "" {
			g.free = append(g.free, i)
			continue
		}

		g.requests[one.key] = &request{row: i, deaths: one.deaths, diedAt: one.diedAt}
	}

	return g, nil
}

// Handler returns a handler that passes requests on to "next", except requests that have ended the
// process twice.
func (g *Guard) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			next.ServeHTTP(w, r)
			return
		}

		end, err := g.begin(r.Context(), keyOf(r))
		if err != nil {
			httpio.WriteError(w, r, g.log, err)
			return
		}
		defer end()
		next.ServeHTTP(w, r)
	})
}

// keyOf returns the key of a request. It is a hash, because a target can have a key of the host.
func keyOf(r *http.Request) string {
	sum := sha256.Sum256([]byte(r.Method + " " + r.URL.RequestURI()))
	return hex.EncodeToString(sum[:keyLength/2])
}

// begin marks a request as running. The caller must call "end" when the request has ended.
func (g *Guard) begin(ctx context.Context, key string) (end func(), err error) {
	switch g.countDeaths(key) {
	case 0:
		return g.mark(key), nil
	case 1:
		if err := g.awaitTurn(ctx); err != nil {
			return nil, err
		}
		unmark := g.mark(key)
		return func() { unmark(); <-g.turn }, nil
	}

	return nil, &weir.Error{Kind: weir.Internal, Op: "crash guard",
		Message: "the process ended twice while this request ran; it runs again half an hour later"}
}

// countDeaths returns the number of deaths under a request. It forgets old ones.
func (g *Guard) countDeaths(key string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	one := g.requests[key]
	if one == nil {
		return 0
	}

	if one.deaths > 0 && g.now().Sub(one.diedAt) > forgetAfter {
		one.deaths = 0
	}

	return min(one.deaths, maxDeaths)
}

// awaitTurn waits until no other suspect runs.
func (g *Guard) awaitTurn(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, turnPatience)
	defer cancel()

	select {
	case g.turn <- struct{}{}:
		return nil
	case <-limited.Done():
		return &weir.Error{Kind: weir.Unavailable, Op: "crash guard", Err: limited.Err(),
			RetryAfter: turnPatience,
			Message:    "the process ended while this request ran; it waits for another such request, try again"}
	}
}

// mark writes the mark of a request, and returns the function that removes it.
func (g *Guard) mark(key string) (unmark func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isStopped {
		return func() {}
	}

	one := g.requests[key]
	if one == nil {
		free, ok := g.takeRow()
		if !ok {
			return func() {}
		}
		one = &request{row: free}
		g.requests[key] = one
	}

	if one.running++; one.running == 1 {
		g.write(one.row, row{key: key, deaths: one.deaths, diedAt: one.diedAt, isRunning: true})
	}

	return func() { g.unmark(key, one) }
}

// unmark ends a run. A request that ends has not ended the process, so its deaths are forgotten.
func (g *Guard) unmark(key string, one *request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if one.running--; one.running > 0 {
		return
	}

	delete(g.requests, key)
	g.free = append(g.free, one.row)
	g.write(one.row, row{})
}

// Stop removes the marks of the requests that run: from now on the process ends in order, or because
// the host's patience is over, and no request is the cause. A request that ran when an earlier
// process died keeps its deaths. Stop can be called twice.
func (g *Guard) Stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isStopped {
		return
	}
	g.isStopped = true

	for key, one := range g.requests {
		if one.running == 0 {
			continue
		}

		left := row{}
		if one.deaths > 0 {
			left = row{key: key, deaths: one.deaths, diedAt: one.diedAt}
		}
		g.write(one.row, left)
	}
}

// takeRow returns a row that no request has. If all rows are taken, it gives up the rows of deaths
// long ago.
func (g *Guard) takeRow() (int, bool) {
	if len(g.free) == 0 && g.rows == maxRows {
		for key, one := range g.requests {
			if one.running == 0 && g.now().Sub(one.diedAt) > forgetAfter {
				delete(g.requests, key)
				g.free = append(g.free, one.row)
			}
		}
	}

	if last := len(g.free) - 1; last >= 0 {
		taken := g.free[last]
		g.free = g.free[:last]
		return taken, true
	}

	if g.rows == maxRows {
		return 0, false
	}

	g.rows++

	return g.rows - 1, true
}

// write writes a row. If that fails, the request runs without a mark: an upstream must not notice a
// full disk for temporary files. The next write tries again, because the file could have the mark
// of a request that has ended, which would count as a death.
func (g *Guard) write(number int, content row) {
	g.unwritten[number] = content
	for number, content := range g.unwritten {
		if _, err := g.file.WriteAt(content.format(), int64(number*rowLength)); err != nil {
			g.reportFailure(err)
			return
		}
		delete(g.unwritten, number)
	}
}

func (g *Guard) reportFailure(err error) {
	if !g.hasError {
		g.hasError = true
		g.log.Warn("handler: requests run without marks of the crash guard", "err", err)
	}
}
