package inbox

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/internal/batch"
	"weir/internal/filing"
	"weir/internal/lease"
	"weir/internal/retry"
	"weir/internal/storage"
	"weir/internal/weir"
	"weir/internal/wire"
)

// Batches stores batches; see batch.Runner.
type Batches interface {
	Accept(ctx context.Context, s batch.Spec, body io.Reader) (wire.Batch, error)
}

// Config configures a Collector. All fields are required, except Quiet and Folders.
type Config struct {
	Inbox, Accepted, Rejected storage.Files
	Leases                    storage.Leases
	Lease                     time.Duration // 15 to 60 s
	Filer                     *filing.Filer
	Batches                   Batches
	CanSplit                  bool  // the settings have a contract with a split path
	MaxBody                   int64 // largest size of a message, in bytes
	// Quiet is the time for which a file must be unchanged before it is taken. An append blob or a page blob
	// must be unchanged for a minute at least, and an empty file for an hour.
	Quiet     time.Duration
	Folders   []Folder
	Retention time.Duration   // age at which RemoveExpired removes an accepted or rejected file
	Wake      func(lane int)  // wakes this process's worker of a lane; returns at once
	Refused   func(err error) // is called for each file that is refused, but not for a batch that is rejected later
	Now       func() time.Time
	Logger    *slog.Logger
}

const (
	// growingQuiet is the shortest quiet time of files that may grow.
	growingQuiet = time.Minute
	// emptyQuiet is the shortest quiet time of empty files, because an upload by SFTP is an empty file until it
	// ends (https://learn.microsoft.com/azure/event-grid/event-schema-blob-storage).
	emptyQuiet = time.Hour
	// runLimit is the longest time of a run. It is shorter than the minute between two sweeps.
	runLimit = 50 * time.Second
	// maxTaken is the largest number of files that a run takes. maxListed is the number of ready files after which
	// a run stops listing the inbox; it takes the oldest of these files first.
	maxTaken, maxListed = 5000, 20_000
)

// CollectSoon tries at most busyTries times, with a pause of busyPause between two tries.
const (
	busyPause = time.Second
	busyTries = 15
)

// Collector takes files. Any number of collectors may share storage. A Collector is safe for concurrent use. The
// caller must Close it.
type Collector struct {
	Config
	ctx    context.Context // ends when Close is called
	cancel context.CancelFunc
	turn   chan struct{} // full while a run of this process goes on, and after Close
	rests  rests

	mu sync.Mutex
	// postponed has the batches that a run could not file before the run ended; the map's keys come from keyOf. Later
	// runs take these batches after all other files. Otherwise a batch that needs more time than a run has would delay
	// the later files for ever.
	postponed map[string]bool
}

// New returns a Collector.
func New(cfg Config) *Collector {
	ctx, cancel := context.WithCancel(context.Background())
	return &Collector{Config: cfg, ctx: ctx, cancel: cancel, turn: make(chan struct{}, 1), postponed: map[string]bool{},
		rests: rests{until: map[string]time.Time{}}}
}

// Collect takes files until the inbox has no ready file, or until the limits of a run are reached. It returns
// nil at once if another process takes files. After an error, the next call continues.
func (c *Collector) Collect(ctx context.Context) error {
	err := c.collectUnderLease(ctx)
	if errors.Is(err, lease.ErrBusy) {
		return nil
	}
	return err
}

// CollectSoon does what Collect does, for a file that has just arrived. If another process takes files,
// CollectSoon tries again for some seconds, because that process may have listed the inbox before the file
// arrived. Then it leaves the file to the next sweep.
func (c *Collector) CollectSoon(ctx context.Context) error {
	err := retry.Policy{First: busyPause, Max: busyPause, Tries: busyTries,
		IsTransient: func(err error) bool { return errors.Is(err, lease.ErrBusy) }}.Do(ctx,
		func() error { return c.collectUnderLease(ctx) })
	if errors.Is(err, lease.ErrBusy) || ctx.Err() != nil {
		return nil
	}
	return err
}

// collectUnderLease does what Collect does, but returns lease.ErrBusy if another process takes files.
func (c *Collector) collectUnderLease(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return nil // another run takes the files, or the process ends
	}
	if ctx.Err() != nil {
		return nil
	}
	isEmpty, err := c.isEmpty(ctx)
	if isEmpty || err != nil {
		return err
	}
	l, err := lease.Acquire(ctx, lease.Config{Leases: c.Leases, Length: c.Lease, Now: c.Now, Log: c.Logger}, "inbox")
	if err != nil {
		return err
	}
	defer l.Release(context.WithoutCancel(ctx))
	return c.takeAll(l.Context())
}

// isEmpty reports whether the inbox has no file. A run takes no lease if the inbox is empty.
func (c *Collector) isEmpty(ctx context.Context) (bool, error) {
	page, err := c.Inbox.List(ctx, "", "")
	if errors.Is(err, storage.ErrGone) {
		return true, nil // the container does not exist yet; each process makes it when it starts
	}
	return err == nil && len(page.Files) == 0 && page.Next == "", err
}

// takeAll takes files until this run has tried every ready file, or maxTaken files. If all files that are left belong
// to upstreams that rest, takeAll waits until a rest ends, and continues (see rests).
func (c *Collector) takeAll(ctx context.Context) error {
	tried := map[string]bool{}
	for len(tried) < maxTaken {
		files, err := c.listReady(ctx, tried)
		if err == nil && len(files) == 0 && c.awaitRest(ctx) {
			continue
		}
		if err != nil || len(files) == 0 {
			return c.ignoreEnd(ctx, err)
		}
		for window := range slices.Values(cutWindows(files[:min(len(files), maxTaken-len(tried))])) {
			if err := c.takeWindow(ctx, window); err != nil {
				return c.ignoreEnd(ctx, err)
			}
			for _, f := range window {
				if !c.rests.wasLeft(f) {
					tried[keyOf(f)] = true
				}
			}
		}
	}
	return nil
}

// ignoreEnd returns nil instead of an error if the time of the run is over or the Collector is closed: the next run
// continues.
func (c *Collector) ignoreEnd(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) || c.ctx.Err() != nil {
		return nil
	}
	return err
}

// postponeBatch makes later runs of this process take a batch after all other files.
func (c *Collector) postponeBatch(f storage.File) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.postponed[keyOf(f)] = true
	c.Logger.Warn("inbox: batch not accepted before the run ended, postponed", "subject", shortName(f.Name))
}

// sortByTurn sorts files in the order in which a run takes them: oldest first, and postponed batches last. It
// deletes the entries of postponed batches that are not among the files.
func (c *Collector) sortByTurn(files []storage.File) {
	c.mu.Lock()
	defer c.mu.Unlock()
	postponed, turns := map[string]bool{}, map[string]int{} // turns is by file name: 1 = postponed, 0 = not
	for _, f := range files {
		if key := keyOf(f); c.postponed[key] {
			postponed[key], turns[f.Name] = true, 1
		}
	}
	slices.SortStableFunc(files, func(a, b storage.File) int {
		return cmp.Or(turns[a.Name]-turns[b.Name], a.ModifiedAt.Compare(b.ModifiedAt), cmp.Compare(a.Name, b.Name))
	})
	c.postponed = postponed
}

// listReady returns the files that may be taken, in the order of sortByTurn. It leaves out the files that this
// run has tried, and the files of upstreams that rest (see rests).
func (c *Collector) listReady(ctx context.Context, tried map[string]bool) ([]storage.File, error) {
	c.rests.begin(c.Now())
	var ready []storage.File
	for marker, more := "", true; more && len(ready) < maxListed; more = marker != "" {
		page, err := c.Inbox.List(ctx, "", marker)
		if err != nil {
			return nil, err
		}
		for _, f := range page.Files {
			if c.isReady(f) && !tried[keyOf(f)] && !c.rests.isResting(c.upstreamOf(f)) {
				ready = append(ready, f)
			}
		}
		marker = page.Next
	}
	c.sortByTurn(ready)
	return ready, nil
}

// If an SFTP client has not uploaded a file completely, the file's name ends with one of temporarySuffixes.
var temporarySuffixes = []string{".part", ".filepart", ".tmp"}

// isReady reports whether the name of a file is not temporary, and its quiet time is over.
func (c *Collector) isReady(f storage.File) bool {
	base := path.Base(f.Name)
	if strings.HasPrefix(base, ".") || strings.HasPrefix(base, "~") {
		return false
	}
	for _, suffix := range temporarySuffixes {
		if strings.HasSuffix(strings.ToLower(base), suffix) {
			return false
		}
	}
	quiet := c.Quiet
	if f.IsGrowing {
		quiet = max(quiet, growingQuiet)
	}
	if f.Size == 0 {
		quiet = max(quiet, emptyQuiet)
	}
	return quiet <= 0 || c.Now().Sub(f.ModifiedAt) >= quiet
}

// Close ends the current run, and returns when the run has ended or ctx ends.
func (c *Collector) Close(ctx context.Context) error {
	c.cancel()
	select {
	case c.turn <- struct{}{}: // prevents further runs
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// endsRun reports whether an error concerns storage or the process, and not only the file.
func endsRun(ctx context.Context, err error) bool {
	switch storage.KindOf(err) {
	case storage.Throttled, storage.Unavailable, storage.Ambiguous:
		return true
	}
	return ctx.Err() != nil || weir.KindOf(err) == weir.Unavailable
}

// writePauses has the pauses between two tries to file a message or to change a file.
var writePauses = retry.Policy{First: 200 * time.Millisecond, Max: time.Second, Tries: 3,
	IsTransient: func(err error) bool {
		kind := storage.KindOf(err)
		return kind == storage.Throttled || kind == storage.Unavailable || kind == storage.Ambiguous
	}}
