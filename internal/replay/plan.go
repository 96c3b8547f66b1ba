package replay

import (
	"context"
	"slices"
	"sync"
	"time"

	"weir/internal/lane"
	"weir/internal/lane/lists"
	"weir/internal/storage"
	"weir/internal/weir"
	"weir/internal/wire"
)

const (
	// maxVisited is the largest number of dead messages that a plan reads.
	maxVisited = 100_000
	// maxChecked is the largest number of matching messages that a plan checks one by one.
	maxChecked = 200
	// planTimeout is the time after which a plan is returned incomplete.
	planTimeout = 20 * time.Second
)

// Plan is the expected effect of a job.
type Plan = wire.JobPlan

// Plan returns the expected effect of a job, without starting the job.
func (r *Runner) Plan(ctx context.Context, s Spec) (Plan, error) {
	if err := s.checkSpec(r.Store.Lanes); err != nil {
		return Plan{}, err
	}

	limited, cancel := context.WithTimeout(ctx, planTimeout)
	defer cancel()
	p := planner{Runner: r, job: newJob(s, r.Now()), keys: map[string]bool{}}
	err := p.countMatching(limited)
	if err == nil {
		err = p.checkMessages(limited)
	}

	if limited.Err() != nil && ctx.Err() == nil {
		err = nil // return the part that was read in time
	}

	if err != nil {
		return Plan{}, apiError(err)
	}

	return p.newPlan(), nil
}

// planner collects the numbers of a Plan.
type planner struct {
	*Runner
	job       Job
	visited   int             // dead messages that were read
	count     int64           // matching messages
	allListed bool            // all dead messages of the filter's lanes were read
	keys      map[string]bool // hashes of the keys of matching messages
	lanes     int             // lanes with a matching message
	first     []deadMessage   // the first maxChecked+1 matching messages

	allChecked bool  // every matching message was checked
	missing    int64 // matching messages whose contract the settings lack
	refused    int64 // checked messages whose replay would be refused
	// durations of the last attempts of the checked messages whose replay is possible
	durations []time.Duration
}

// countMatching counts the matching messages, and collects the first of them.
func (p *planner) countMatching(ctx context.Context) error {
	for _, number := range selectionOf(p.job.Filter).LanesOf(p.Store) {
		before := p.count
		err := eachDead(ctx, p.Log, number, 0, func(d lists.DeadRow) bool {
			if p.visited == maxVisited {
				return false
			}

			p.visited++
			if selectionOf(p.job.Filter).HasDead(d) {
				p.count++
				p.keys[p.Store.KeyHash(d.Key)] = true
				if !p.Store.Contracts.Has(d.Contract) {
					p.missing++
				}

				if len(p.first) <= maxChecked {
					p.first = append(p.first, deadMessage{number, d.Seq, diedAtMicros(d)})
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

	p.allListed = p.visited < maxVisited
	return nil
}

// checkMessages reads up to maxChecked matching messages, one by one. It counts the messages whose
// replay would be refused. From each other message it takes the duration of the last attempt.
func (p *planner) checkMessages(ctx context.Context) error {
	var mu sync.Mutex
	checked := p.first[:min(len(p.first), maxChecked)]
	err := lane.ForEach(len(checked), func(n int) error {
		i := checked[n]
		e, err := p.Log.ReadMessage(ctx, i.lane, i.seq)
		if storage.Is(err, storage.NotFound) || err == nil && e.Stage != weir.Dead {
			return nil
		}

		reason := ""
		if err == nil && !p.job.Force {
			reason, err = p.Log.ReplayObstacle(ctx, e)
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

	p.allChecked = err == nil && len(checked) == len(p.first)

	return err
}

func (p *planner) newPlan() Plan {
	replayed := p.count - p.refused
	return Plan{Count: p.count, Complete: p.allListed &&
		p.allChecked, Keys: int64(len(p.keys)), Refused: p.refused, MissingContract: p.missing,
		EstimatedSeconds: p.estimateTime(replayed).Round(time.Second).Seconds()}
}

// estimateTime returns the time that n replays take. The slowest of three limits decides: the job's
// rate, the shortest time between two attempts (Config.Interval), and the CMS. The limit of the CMS
// assumes that each lane sends one message at a time, and that an attempt takes the median of
// p.durations.
func (p *planner) estimateTime(n int64) time.Duration {
	typical := time.Duration(0)
	if len(p.durations) > 0 {
		slices.Sort(p.durations)
		typical = p.durations[len(p.durations)/2]
	}

	each := max(typical/time.Duration(max(p.lanes, 1)), p.Interval,
		time.Minute/time.Duration(p.job.RatePerMinute))
	return time.Duration(n) * each
}
