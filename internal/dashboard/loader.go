package dashboard

import (
	"context"
	"strconv"
	"sync"
	"time"

	"weir/internal/panics"
	"weir/internal/weir"
	"weir/internal/wire"
)

// The largest ages of cached data on a page. shortAge is shorter than the five seconds between two
// updates of a page, so each update loads data such as the lanes again. longAge is for data that
// rarely changes, or that takes many reads.
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

// loadPart loads one part in a new goroutine. If the load fails, the page shows the other parts,
// and a note that names the missing part. The HTTP server recovers no panic of another goroutine:
// without panics.Catch, a panic in a load would end the process, which also delivers messages.
func (r *loader) loadPart(what string, read func() error) {
	r.wg.Go(func() {
		if err := panics.Catch(read); err != nil {
			r.page.noteUnread(what)
			if r.ctx.Err() == nil {
				r.d.Log.Warn("dashboard: not read", "err", err)
			}
		}
	})
}

func (r *loader) waitAll() { r.wg.Wait() }

// cacheAge returns age, or 0 if the user asked for uncached data.
func (r *loader) cacheAge(age time.Duration) time.Duration {
	if r.page.Fresh {
		return 0
	}
	return age
}

func (r *loader) loadReport(ctx context.Context) (wire.LaneList, error) {
	return r.d.lanes.load(ctx, "", r.page.Now, r.cacheAge(shortAge), r.d.Source.Lanes)
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
				return r.d.Source.Past(ctx, s.length, s.step)
			})
		return err
	})
}

// loadErrors loads the causes of dead messages. If many messages are dead, the load takes many
// queries. So the page uses a cached value until the value is older than age, or the number of a
// lane's dead messages changes.
func (r *loader) loadErrors(age time.Duration, into *wire.ErrorList) {
	r.loadPart("the errors", func() error {
		limited, cancel := context.WithTimeout(r.ctx, timeLimit/4)
		defer cancel()

		// the errors are loaded even if the lanes cannot be loaded
		report, _ := r.loadReport(limited)
		dead := ""
		for _, l := range report.Lanes {
			dead += strconv.FormatInt(l.Dead, 10) + " "
		}

		var err error
		*into, err = r.d.errors.load(r.ctx, dead, r.page.Now, r.cacheAge(age), r.d.Source.Errors)

		return err
	})
}

// loadChangesOf loads the changes of a message. The load reads the audit log from the message's
// acceptance on, which takes many reads for an old message. So the page accepts a cached value that
// is up to longAge old.
func (r *loader) loadChangesOf(m wire.MessageLine, into *[]Change) {
	r.loadPart("the audit log", func() error {
		list, err := r.d.changesOf.load(r.ctx, m.ID, r.page.Now, r.cacheAge(longAge),
			func(ctx context.Context) (ChangeList, error) {
				return r.d.Source.Changes(ctx, ChangeQuery{Subject: m.ID, Since: m.AcceptedAt})
			})
		*into = list.Changes
		return err
	})
}

// loadObstacleOf loads the reason why a replay of a dead message needs force; "" = no force is
// needed.
func (r *loader) loadObstacleOf(id weir.ID, into *string) {
	r.loadPart("the check of a replay", func() (err error) {
		*into, err = r.d.obstacles.load(r.ctx, id.String(), r.page.Now, r.cacheAge(shortAge),
			func(ctx context.Context) (string, error) { return r.d.Source.ReplayObstacle(ctx, id) })
		return err
	})
}

func (r *loader) loadReplays(into *[]wire.Job) {
	r.loadPart("the replays", func() (err error) {
		*into, err = r.d.replays.load(r.ctx, "", r.page.Now, r.cacheAge(shortAge),
			r.d.Source.Replays)
		return err
	})
}

func (r *loader) loadSchedules(into *[]Schedule) {
	r.loadPart("the schedules", func() (err error) {
		*into, err = r.d.schedules.load(r.ctx, "", r.page.Now, r.cacheAge(longAge),
			r.d.Source.Schedules)
		return err
	})
}
