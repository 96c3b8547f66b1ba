package dashboard

import (
	"context"
	"fmt"
	"runtime/debug"
	"strconv"
	"sync"
	"time"
)

// How long what was read may be shown again: what changes by itself within the five seconds
// between two updates is read for each of them, the rest costs storage more than it tells.
const (
	briefly    = 3 * time.Second
	halfMinute = 30 * time.Second
)

// reading reads several things at the same time, for one page.
type reading struct {
	ctx  context.Context
	d    *Dashboard
	page *page
	wg   sync.WaitGroup
}

func (d *Dashboard) reading(ctx context.Context, p *page) *reading {
	return &reading{ctx: ctx, d: d, page: p}
}

// do reads one thing. Where it fails the page says so, and shows the rest.
func (r *reading) do(what string, read func() error) {
	r.wg.Go(func() {
		if err := safely(read); err != nil {
			r.page.unread(what)
			if r.ctx.Err() == nil {
				r.d.Log.Warn("dashboard: not read", "err", err)
			}
		}
	})
}

// safely makes an error of a panic. What is read beside a request is in no server's hands: it
// would end the process, and its deliveries with it, each time somebody looks.
func safely(read func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return read()
}

func (r *reading) wait() { r.wg.Wait() }

// age is how old what is shown may be.
func (r *reading) age(age time.Duration) time.Duration {
	if r.page.Fresh {
		return 0
	}
	return age
}

func (r *reading) report(ctx context.Context) (Report, error) {
	return r.d.lanes.get(ctx, "", r.page.Now, r.age(briefly), r.d.Lanes.Lanes)
}

func (r *reading) lanes(into *Report) {
	r.do("the lanes", func() (err error) {
		*into, err = r.report(r.ctx)
		return err
	})
}

func (r *reading) past(s span, into *History) {
	r.do("the history", func() (err error) {
		*into, err = r.d.past.get(r.ctx, s.Name, r.page.Now, r.age(briefly), func(ctx context.Context) (History, error) {
			return r.d.Past.Past(ctx, s.length, s.step)
		})
		return err
	})
}

// errors reads what messages died of. That takes many queries where many are dead: it is
// read again when more or fewer are than before, and else for who looks at just that.
func (r *reading) errors(age time.Duration, into *Clusters) {
	r.do("the errors", func() error {
		limited, cancel := context.WithTimeout(r.ctx, timeLimit/4)
		defer cancel()
		report, _ := r.report(limited) // where it fails, it is said elsewhere
		dead := ""
		for _, l := range report.Lanes {
			dead += strconv.FormatInt(l.Dead, 10) + " "
		}
		var err error
		*into, err = r.d.errors.get(r.ctx, dead, r.page.Now, r.age(age), r.d.Errors.Errors)
		return err
	})
}

func (r *reading) replays(into *[]Job) {
	r.do("the replays", func() (err error) {
		*into, err = r.d.replays.get(r.ctx, "", r.page.Now, r.age(briefly), r.d.Replays.Replays)
		return err
	})
}

func (r *reading) schedules(into *[]Schedule) {
	r.do("the schedules", func() (err error) {
		*into, err = r.d.schedules.get(r.ctx, "", r.page.Now, r.age(halfMinute), r.d.Schedules.Schedules)
		return err
	})
}
