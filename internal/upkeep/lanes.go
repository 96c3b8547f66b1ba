package upkeep

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"weir/internal/panics"
)

const (
	// A visit of a lane is one call of LaneRetention.RunLane. At most lanesAtOnce visits run at the
	// same time.
	lanesAtOnce = 8
	// passLimit is the time after which a pass of lanes begins no further visit. It is shorter than
	// the minute between two sweeps.
	passLimit = 50 * time.Second
	// A visit that still runs when passLimit is over can go on for at most maxOverrun.
	maxOverrun = 20 * time.Second
	// retryAfter is the shortest time from a failure to the next try. It is shorter than the minute
	// between two sweeps, so that the next sweep tries again.
	retryAfter = 50 * time.Second
)

// LaneRetention removes expired messages of a lane. RunLane returns the time from which to call it
// again; the zero time means at once.
type LaneRetention interface {
	RunLane(ctx context.Context, lane int) (time.Time, error)
}

// laneVisits visits the lanes, each for a part of its work at a time.
type laneVisits struct {
	retention LaneRetention
	count     int // number of lanes
	now       func() time.Time
	log       *slog.Logger

	lanes map[int]*laneVisit // by lane number
}

// laneVisit has the end of a lane's last visit, and the earliest time of the lane's next visit.
type laneVisit struct {
	number         int
	lastAt, nextAt time.Time
}

// runPass runs visits of due lanes until no lane is due or passLimit is over. A lane that is due
// again after its visit goes to the end of the queue, so that a lane with many old messages does
// not keep other lanes waiting.
func (l *laneVisits) runPass(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, passLimit+maxOverrun)
	defer cancel()
	began, due := time.Now(), l.findDue()
	var mu sync.Mutex
	take := func() *laneVisit {
		mu.Lock()
		defer mu.Unlock()
		if len(due) == 0 || time.Since(began) >= passLimit || limited.Err() != nil {
			return nil
		}

		visit := due[0]
		due = due[1:]

		return visit
	}

	var workers sync.WaitGroup
	for range lanesAtOnce {
		workers.Go(func() {
			defer panics.Log(l.log, "retention: visits of lanes")
			for visit := take(); visit != nil; visit = take() {
				if l.runVisit(limited, visit); !visit.nextAt.After(l.now()) {
					mu.Lock()
					due = append(due, visit)
					mu.Unlock()
				}
			}
		})
	}

	workers.Wait()
}

// findDue returns the lanes whose next visit can begin now. The lane with the oldest last visit
// comes first.
func (l *laneVisits) findDue() []*laneVisit {
	if l.lanes == nil {
		l.lanes = map[int]*laneVisit{}
	}

	var due []*laneVisit
	for number := range l.count {
		visit := l.lanes[number]
		if visit == nil {
			visit = &laneVisit{number: number}
			l.lanes[number] = visit
		}

		if !visit.nextAt.After(l.now()) {
			due = append(due, visit)
		}
	}

	slices.SortStableFunc(due, func(a, b *laneVisit) int { return a.lastAt.Compare(b.lastAt) })

	return due
}

func (l *laneVisits) runVisit(ctx context.Context, visit *laneVisit) {
	var next time.Time
	err := panics.Catch(func() (err error) {
		next, err = l.retention.RunLane(ctx, visit.number)
		return err
	})

	visit.lastAt, visit.nextAt = l.now(), next
	if err == nil {
		return
	}

	if ctx.Err() != nil {
		// the time limit or Close ended the visit, so the lane is due in the next pass
		visit.nextAt = time.Time{}
		return
	}

	visit.nextAt = l.now().Add(retryAfter)
	l.log.Warn("retention: lane left for now", "lane", visit.number, "err", err)
}
