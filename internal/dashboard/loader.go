package dashboard

import (
	"context"
	"fmt"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"weir/internal/weir"
	"weir/internal/wire"
)

// The largest ages of cached data. Lane data changes between two updates of a page, which are five seconds
// apart, so each update loads it. Schedules rarely change, and a longer age saves requests to storage.
const (
	shortAge = 3 * time.Second
	longAge  = 30 * time.Second
)

// loader loads several parts of a page concurrently.
type loader struct {
	ctx  context.Context
	d    *Dashboard
	page *page
	wg   sync.WaitGroup
}

func (d *Dashboard) newLoader(ctx context.Context, p *page) *loader {
	return &loader{ctx: ctx, d: d, page: p}
}

// loadPart loads one part. If the load fails, the page shows a note in place of the part, and still shows the
// other parts.
func (r *loader) loadPart(what string, read func() error) {
	r.wg.Go(func() {
		if err := recoverPanic(read); err != nil {
			r.page.noteUnread(what)
			if r.ctx.Err() == nil {
				r.d.Log.Warn("dashboard: not read", "err", err)
			}
		}
	})
}

// recoverPanic turns a panic into an error. No HTTP server recovers a panic of another goroutine. So without
// recoverPanic, a panic in the load of one part would end the process, with its deliveries.
func recoverPanic(read func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return read()
}

func (r *loader) waitAll() { r.wg.Wait() }

// cacheAge returns the largest age of cached data; 0 if the user asked for fresh data.
func (r *loader) cacheAge(age time.Duration) time.Duration {
	if r.page.Fresh {
		return 0
	}
	return age
}

func (r *loader) loadReport(ctx context.Context) (wire.LaneList, error) {
	return r.d.lanes.load(ctx, "", r.page.Now, r.cacheAge(shortAge), r.d.Lanes.Lanes)
}

func (r *loader) loadLanes(into *wire.LaneList) {
	r.loadPart("the lanes", func() (err error) {
		*into, err = r.loadReport(r.ctx)
		return err
	})
}

func (r *loader) loadHistory(s span, into *History) {
	r.loadPart("the history", func() (err error) {
		*into, err = r.d.past.load(r.ctx, s.Name, r.page.Now, r.cacheAge(shortAge),
			func(ctx context.Context) (History, error) {
				return r.d.Past.Past(ctx, s.length, s.step)
			})
		return err
	})
}

// loadErrors loads the causes of dead messages. The load takes many queries if many messages are dead. So the
// page uses the cached value until the number of a lane's dead messages changes, or age is over.
func (r *loader) loadErrors(age time.Duration, into *wire.ErrorList) {
	r.loadPart("the errors", func() error {
		limited, cancel := context.WithTimeout(r.ctx, timeLimit/4)
		defer cancel()
		report, _ := r.loadReport(limited) // without the lanes, the errors are loaded all the same
		dead := ""
		for _, l := range report.Lanes {
			dead += strconv.FormatInt(l.Dead, 10) + " "
		}
		var err error
		*into, err = r.d.errors.load(r.ctx, dead, r.page.Now, r.cacheAge(age), r.d.Errors.Errors)
		return err
	})
}

// loadChangesOf loads the changes of a message. The load reads the audit log from the message's acceptance on, which
// takes many reads for an old message. So the page accepts an older cached value.
func (r *loader) loadChangesOf(m wire.MessageLine, into *[]Change) {
	r.loadPart("the audit log", func() error {
		list, err := r.d.changesOf.load(r.ctx, m.ID, r.page.Now, r.cacheAge(longAge),
			func(ctx context.Context) (ChangeList, error) {
				return r.d.Changes.Changes(ctx, ChangeQuery{Subject: m.ID, Since: m.AcceptedAt})
			})
		*into = list.Changes
		return err
	})
}

// loadObstacleOf loads the reason why a replay of a dead message needs force.
func (r *loader) loadObstacleOf(id weir.ID, into *string) {
	r.loadPart("the check of a replay", func() (err error) {
		*into, err = r.d.obstacles.load(r.ctx, id.String(), r.page.Now, r.cacheAge(longAge),
			func(ctx context.Context) (string, error) { return r.d.Obstacles.ReplayObstacle(ctx, id) })
		return err
	})
}

func (r *loader) loadReplays(into *[]wire.Job) {
	r.loadPart("the replays", func() (err error) {
		*into, err = r.d.replays.load(r.ctx, "", r.page.Now, r.cacheAge(shortAge), r.d.Replays.Replays)
		return err
	})
}

func (r *loader) loadSchedules(into *[]Schedule) {
	r.loadPart("the schedules", func() (err error) {
		*into, err = r.d.schedules.load(r.ctx, "", r.page.Now, r.cacheAge(longAge), r.d.Schedules.Schedules)
		return err
	})
}
