package replay

import (
	"context"
	"slices"
	"sync"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/weir"
)

const (
	// maxPlanned is how many dead messages a plan looks at.
	maxPlanned = 100_000
	// maxAsked is how many of those that match it looks at one by one.
	maxAsked = 200
	// planTime is how long it may take.
	planTime = 20 * time.Second
)

// Plan is what a job would do.
type Plan struct {
	Count            int64 `json:"count"`    // messages that match
	Complete         bool  `json:"complete"` // all were looked at; false = the numbers are too low
	EstimatedSeconds int64 `json:"estimatedSeconds"`
	Keys             int64 `json:"keys"`
	Refused          int64 `json:"refused"` // for a later one of the key was delivered
}

// Plan tells what a job would do, and changes nothing.
func (r *Runner) Plan(ctx context.Context, s Spec) (Plan, error) {
	if err := s.check(r.Store.Lanes); err != nil {
		return Plan{}, err
	}
	limited, cancel := context.WithTimeout(ctx, planTime)
	defer cancel()
	p := planner{Runner: r, job: newJob(s, r.Now()), keys: map[string]bool{}}
	err := p.list(limited)
	if err == nil {
		err = p.ask(limited)
	}
	if limited.Err() != nil && ctx.Err() == nil {
		err = nil // what there was time for
	}
	if err != nil {
		return Plan{}, unavailable(err)
	}
	return p.plan(), nil
}

// planner makes a Plan.
type planner struct {
	*Runner
	job    Job
	looked int
	count  int64
	listed bool
	keys   map[string]bool
	lanes  int // with something to do
	first  []item

	asked     bool
	refused   int64
	durations []time.Duration
}

// list counts what matches.
func (p *planner) list(ctx context.Context) error {
	for _, number := range p.job.Filter.lanes(p.Store.Lanes) {
		before := p.count
		err := eachDead(ctx, p.Log, number, 0, func(d lane.DeadRow) bool {
			if p.looked == maxPlanned {
				return false
			}
			p.looked++
			if p.job.Filter.matches(d) {
				p.count++
				p.keys[lane.KeyHash(d.Key)] = true
				if len(p.first) <= maxAsked {
					p.first = append(p.first, item{number, d.Seq, diedAt(d)})
				}
			}
			return true
		})
		if p.count > before {
			p.lanes++
		}
		if err != nil {
			return err
		}
	}
	p.listed = p.looked < maxPlanned
	return nil
}

// ask looks at those that match one by one, as far as that goes: would they be refused, and
// how long did the CMS take over them?
func (p *planner) ask(ctx context.Context) error {
	watched := map[int]int64{}
	for _, i := range p.first {
		if _, known := watched[i.lane]; !known {
			c, err := p.Store.Control(ctx, i.lane)
			if err != nil {
				return err
			}
			watched[i.lane] = c.Tail.Watched
		}
	}
	var mu sync.Mutex
	asked := p.first[:min(len(p.first), maxAsked)]
	err := lane.Each(len(asked), func(n int) error {
		i := asked[n]
		e, err := p.Log.ReadMessage(ctx, i.lane, i.seq)
		if storage.Is(err, storage.NotFound) || err == nil && e.Stage != weir.Dead {
			return nil
		}
		reason := ""
		if err == nil && !p.job.Force {
			reason, err = p.Log.Late(ctx, e, watched[i.lane])
		}
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if reason != "" {
			p.refused++
		} else if len(e.Attempts) > 0 {
			p.durations = append(p.durations, e.Attempts[len(e.Attempts)-1].Duration)
		}
		return nil
	})
	p.asked = err == nil && len(asked) == len(p.first)
	return err
}

func (p *planner) plan() Plan {
	replayed := p.count - p.refused
	return Plan{Count: p.count, Complete: p.listed && p.asked, Keys: int64(len(p.keys)), Refused: p.refused,
		EstimatedSeconds: int64(p.estimate(replayed).Round(time.Second).Seconds())}
}

// estimate is how long n messages take: as the CMS took over their last attempts, one at a
// time in each lane, or as the job's rate or that of delivery has it, where that is slower.
func (p *planner) estimate(n int64) time.Duration {
	typical := time.Duration(0)
	if len(p.durations) > 0 {
		slices.Sort(p.durations)
		typical = p.durations[len(p.durations)/2]
	}
	each := max(typical/time.Duration(max(p.lanes, 1)), p.Interval, time.Minute/time.Duration(p.job.RatePerMinute))
	return time.Duration(n) * each
}
