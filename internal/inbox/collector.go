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

// Batches accepts batches. A *batch.Runner implements this interface.
type Batches interface {
	Accept(ctx context.Context, s batch.Spec, body io.Reader) (wire.Batch, error)
}

// Messages reads the state of a message. Status returns NotFound if there is no such message; see
// lane.Messages.
type Messages interface {
	Status(ctx context.Context, id weir.ID) (weir.Status, error)
}

// Config configures a Collector. All fields are required, except Quiet, Folders and RefusesOthers.
type Config struct {
	Inbox, Accepted, Rejected storage.Files
	Leases                    storage.Leases
	Lease                     time.Duration // length of the lease; 15 to 60 s
	Filer                     *filing.Filer
	Batches                   Batches
	Messages                  Messages
	CanSplit                  bool  // the settings have a contract that splits documents into parts
	MaxBody                   int64 // largest size of a message, in bytes
	// Quiet is the time for which a file must be unchanged before it is taken. An append blob or a
	// page blob must be unchanged for at least a minute, and an empty file for at least an hour.
	Quiet   time.Duration
	Folders []Folder
	// RefusesOthers means that files outside of all Folders are rejected.
	RefusesOthers bool
	Retention     time.Duration  // age at which RemoveExpired removes an accepted or rejected file
	Wake          func(lane int) // wakes this process's worker of a lane; returns at once
	// called for each refused file, but not for a batch that is rejected later
	Refused func(err error)
	Now     func() time.Time
	Logger  *slog.Logger
}

const (
	// growingQuiet is the shortest quiet time of append blobs and page blobs, which can grow.
	growingQuiet = time.Minute
	// emptyQuiet is the shortest quiet time of empty files, because an upload by SFTP is an empty
	// file until it ends (https://learn.microsoft.com/azure/event-grid/event-schema-blob-storage).
	emptyQuiet = time.Hour
	// runLimit is the longest time of a run. It is shorter than the minute between two sweeps.
	runLimit = 50 * time.Second
	// maxTaken is the largest number of files that a run takes. A run keeps the maxListed oldest
	// files of the inbox in memory. If there are more, it lists the inbox for maxListing at most,
	// so that half of the run is left for the files.
	maxTaken, maxListed = 5000, 20_000
	maxListing          = runLimit / 2
	// postponedLimit is the time after which a postponed batch comes first.
	postponedLimit = 10 * time.Minute
)

// CollectSoon tries at most busyTries times, with a pause of busyPause between two tries.
const (
	busyPause = time.Second
	busyTries = 15
)

// Collector takes files from the inbox. Several Collectors can share storage. A Collector is safe
// for concurrent use. The caller must Close it.
type Collector struct {
	Config
	ctx     context.Context // ends when Close is called
	cancel  context.CancelFunc
	running chan struct{} // full during a run of this process, and after Close
	rests   rests
	unread  unreadFiles
	left    leftFiles

	mu sync.Mutex
	// postponed has the time, by keyOf, at which each batch was postponed: it was not accepted
	// before the end of a run. Later runs take these batches after all other files; see sortForRun.
	// Otherwise a batch that needs more time than a run has would delay other files forever.
	postponed map[string]time.Time
}

// New returns a Collector.
func New(cfg Config) *Collector {
	ctx, cancel := context.WithCancel(context.Background())
	return &Collector{Config: cfg, ctx: ctx, cancel: cancel, running: make(chan struct{}, 1),
		postponed: map[string]time.Time{}, rests: rests{until: map[string]time.Time{}},
		unread: unreadFiles{runs: map[string]int{}}}
}

// Collect takes files until the inbox has no ready file, or until the limits of a run are reached.
// If another process takes files at the moment, Collect returns nil. After an error, the next call
// continues.
func (c *Collector) Collect(ctx context.Context) error {
	err := c.collectUnderLease(ctx)
	if errors.Is(err, lease.ErrBusy) {
		return nil
	}
	return err
}

// CollectSoon takes files as Collect does. The caller calls it when a file has just arrived. If
// another process takes files, CollectSoon tries again for some seconds, because that process may
// have listed the inbox before the file arrived. After the last try, the file waits for the next
// sweep.
func (c *Collector) CollectSoon(ctx context.Context) error {
	err := retry.Policy{First: busyPause, Max: busyPause, Tries: busyTries,
		IsTransient: func(err error) bool { return errors.Is(err, lease.ErrBusy) }}.Do(ctx,
		func() error { return c.collectUnderLease(ctx) })
	if errors.Is(err, lease.ErrBusy) || ctx.Err() != nil {
		return nil
	}
	return err
}

// collectUnderLease does what Collect does, but returns lease.ErrBusy if another process takes
// files.
func (c *Collector) collectUnderLease(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()

	select {
	case c.running <- struct{}{}:
		defer func() { <-c.running }()
	case <-ctx.Done():
		return nil // another run of this process takes the files, or the Collector is closed
	}

	if ctx.Err() != nil {
		return nil
	}

	isEmpty, err := c.isEmpty(ctx)
	if isEmpty || err != nil {
		return err
	}

	cfg := lease.Config{Leases: c.Leases, Length: c.Lease, Now: c.Now, Log: c.Logger}

	return lease.Do(ctx, cfg, "inbox", c.takeAll)
}

// isEmpty reports whether the inbox has no file. Without a file a run needs no lease.
func (c *Collector) isEmpty(ctx context.Context) (bool, error) {
	page, err := c.Inbox.List(ctx, "", "")
	if errors.Is(err, storage.ErrGone) {
		// the container does not exist yet; a process creates missing containers when it starts
		return true, nil
	}
	return err == nil && len(page.Files) == 0 && page.Next == "", err
}

// takeAll takes files until this run has tried every ready file, or maxTaken files. If all
// remaining files belong to upstreams that have used up a limit, takeAll waits until one of these
// upstreams can continue.
func (c *Collector) takeAll(ctx context.Context) error {
	if err := c.loadLeft(ctx); err != nil {
		return c.ignoreEnd(ctx, err)
	}

	tried := map[string]bool{}
	for len(tried) < maxTaken {
		windows, err := c.listReady(ctx, tried)
		if err == nil && len(windows) == 0 && c.awaitRest(ctx) {
			continue
		}
		if err != nil || len(windows) == 0 {
			return c.ignoreEnd(ctx, err)
		}

		for _, window := range windows {
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

// ignoreEnd returns nil if the time of the run is over or the Collector is closed, because the next
// run continues. Otherwise it returns err.
func (c *Collector) ignoreEnd(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) || c.ctx.Err() != nil {
		return nil
	}
	return err
}

func (c *Collector) postponeBatch(f storage.File) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.postponed[keyOf(f)] = c.Now()
	c.Logger.Warn("inbox: batch not accepted before the run ended, postponed", "subject",
		shortName(f.Name))
}

// sortForRun sorts files in the order in which a run takes them: oldest first, and postponed
// batches last. But a batch that was postponed for postponedLimit comes first. Otherwise it would
// never be taken while each run has more files than it can take. sortForRun forgets postponed
// batches that are not among the files. It returns the number of batches that come first.
func (c *Collector) sortForRun(files []storage.File) (overdue int) {
	c.mu.Lock()
	defer c.mu.Unlock()

	// ranks is by file name; -1 = first, 1 = last
	postponed, ranks := map[string]time.Time{}, map[string]int{}
	for _, f := range files {
		since, isPostponed := c.postponed[keyOf(f)]
		if !isPostponed {
			continue
		}

		postponed[keyOf(f)], ranks[f.Name] = since, 1
		if c.Now().Sub(since) >= postponedLimit {
			ranks[f.Name] = -1
			overdue++
		}
	}

	slices.SortStableFunc(files, func(a, b storage.File) int {
		return cmp.Or(ranks[a.Name]-ranks[b.Name], compareAge(a, b))
	})
	c.postponed = postponed

	return overdue
}

// compareAge orders files by their last change, and files of the same moment by their names.
func compareAge(a, b storage.File) int {
	return cmp.Or(a.ModifiedAt.Compare(b.ModifiedAt), cmp.Compare(a.Name, b.Name))
}

// listReady returns the oldest ready files, cut into windows, in the order of sortForRun. It leaves
// out the files that this run has tried, and the files of upstreams that have used up a limit.
//
// Storage lists files by name. So listReady lists the whole inbox, and keeps the oldest: an older
// file of a key could otherwise come after a newer one whose name sorts before. Only beyond
// maxListed ready files does listReady stop after maxListing.
func (c *Collector) listReady(ctx context.Context, tried map[string]bool) (windows [][]storage.File,
	err error) {
	began := c.Now()
	c.rests.begin(began)
	var ready []storage.File
	isLarge := false // more than maxListed files are ready
	for marker, more := "", true; more; more = marker != "" {
		page, err := c.Inbox.List(ctx, "", marker)
		if err != nil {
			return nil, err
		}

		for _, f := range page.Files {
			if c.isReady(f) && !tried[keyOf(f)] && !c.rests.isResting(c.upstreamOf(f)) {
				ready = append(ready, f)
			}
		}

		if len(ready) > 2*maxListed {
			ready, isLarge = keepOldest(ready), true
		}

		if isLarge && c.Now().Sub(began) > maxListing {
			break
		}

		marker = page.Next
	}

	ready = keepOldest(ready)
	overdue := c.sortForRun(ready)

	// each alone, so that reading other files takes no time from it
	for _, f := range ready[:overdue] {
		windows = append(windows, []storage.File{f})
	}

	if ready = ready[overdue:]; len(ready) > 0 {
		windows = append(windows,
			c.cutWindows(ready[:min(len(ready), max(maxTaken-len(tried), 1))])...)
	}

	return windows, nil
}

// keepOldest returns the oldest maxListed files.
func keepOldest(files []storage.File) []storage.File {
	if len(files) <= maxListed {
		return files
	}
	slices.SortFunc(files, compareAge)
	return files[:maxListed]
}

// temporarySuffixes are the endings that SFTP clients give to the name of a file until its upload
// is complete.
var temporarySuffixes = []string{".part", ".filepart", ".tmp"}

// isReady reports whether a file can be taken: its name is not temporary, and its quiet time (see
// Config.Quiet) is over.
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

// Close ends the current run and prevents further runs. It returns when the run has ended. If ctx
// ends first, Close returns the cause of ctx.
func (c *Collector) Close(ctx context.Context) error {
	c.cancel()
	select {
	case c.running <- struct{}{}: // prevents further runs
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// endsRun reports whether err concerns storage or the whole process, and not only one file. Such an
// error ends the run.
func endsRun(ctx context.Context, err error) bool {
	switch storage.KindOf(err) {
	case storage.Throttled, storage.Unavailable, storage.Ambiguous:
		return true
	}
	return ctx.Err() != nil || weir.KindOf(err) == weir.Unavailable
}

// writePauses is the retry policy for appending a message and for changing a file.
var writePauses = retry.Policy{First: 200 * time.Millisecond, Max: time.Second, Tries: 3,
	IsTransient: func(err error) bool {
		kind := storage.KindOf(err)
		return kind == storage.Throttled || kind == storage.Unavailable || kind == storage.Ambiguous
	}}
