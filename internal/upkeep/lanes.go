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
	// A turn of a lane is one call of LaneRetention.RunLane. At most lanesAtOnce turns run at the same
	// time.
	lanesAtOnce = 8
	// roundLimit is the time after which a round of lanes begins no further turn. It is shorter than
	// the minute between two sweeps.
	roundLimit = 50 * time.Second
	// A turn that still runs when roundLimit is over can go on for at most maxOverrun.
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

// laneTurns lets lanes take turns.
type laneTurns struct {
	retention LaneRetention
	count     int // number of lanes
	now       func() time.Time
	log       *slog.Logger

	lanes map[int]*laneTurn // by lane number
}

// laneTurn has the end of a lane's last turn, and the earliest time of the lane's next turn.
type laneTurn struct {
	number         int
	lastAt, nextAt time.Time
}

// runRound runs turns of due lanes until no lane is due or roundLimit is over. A lane that is due
// again after its turn goes to the end of the queue, so that a lane with many old messages does not
// keep other lanes waiting.
func (l *laneTurns) runRound(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, roundLimit+maxOverrun)
	defer cancel()
	began, due := time.Now(), l.findDue()
	var mu sync.Mutex
	take := func() *laneTurn {
		mu.Lock()
		defer mu.Unlock()
		if len(due) == 0 || time.Since(began) >= roundLimit || limited.Err() != nil {
			return nil
		}
		turn := due[0]
		due = due[1:]
		return turn
	}

	var workers sync.WaitGroup
	for range lanesAtOnce {
		workers.Go(func() {
			defer panics.Log(l.log, "retention: turns of lanes")
			for turn := take(); turn != nil; turn = take() {
				if l.runTurn(limited, turn); !turn.nextAt.After(l.now()) {
					mu.Lock()
					due = append(due, turn)
					mu.Unlock()
				}
			}
		})
	}
	workers.Wait()
}

// findDue returns the lanes whose next turn can begin now. The lane with the oldest last turn comes
// first.
func (l *laneTurns) findDue() []*laneTurn {
	if l.lanes == nil {
		l.lanes = map[int]*laneTurn{}
	}
	var due []*laneTurn
	for number := range l.count {
		turn := l.lanes[number]
		if turn == nil {
			turn = &laneTurn{number: number}
			l.lanes[number] = turn
		}
		if !turn.nextAt.After(l.now()) {
			due = append(due, turn)
		}
	}
	slices.SortStableFunc(due, func(a, b *laneTurn) int { return a.lastAt.Compare(b.lastAt) })
	return due
}

func (l *laneTurns) runTurn(ctx context.Context, turn *laneTurn) {
	var next time.Time
	err := panics.Catch(func() (err error) {
		next, err = l.retention.RunLane(ctx, turn.number)
		return err
	})
	turn.lastAt, turn.nextAt = l.now(), next
	if err == nil {
		return
	}
	if ctx.Err() != nil {
		turn.nextAt = time.Time{} // the time limit or Close ended the turn, so the lane is due in the next round
		return
	}
	turn.nextAt = l.now().Add(retryAfter)
	l.log.Warn("retention: lane left for now", "lane", turn.number, "err", err)
}
