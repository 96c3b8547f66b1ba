package history

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"weir/internal/storage"
	"weir/internal/weir"
)

// maxCacheAge is the longest time for which readMinutes reuses the rows that it has read. Even if
// calls are frequent, they cause at most three reads a minute. A call for minutes earlier than the
// cached ones causes another read.
const maxCacheAge = 20 * time.Second

// readMinutes returns the minutes from a time on, oldest first. Each minute has the sum of all
// instances. Minutes that no instance recorded are missing.
func (k *Keeper) readMinutes(ctx context.Context, from time.Time) ([]*Minute, error) {
	from = from.UTC().Truncate(time.Minute)
	v := &k.cache
	v.mu.Lock()
	defer v.mu.Unlock()

	if now := k.Now(); v.others == nil || now.Sub(v.readAt) > maxCacheAge || from.Before(v.from) {
		others, own, err := k.readRows(ctx, from)
		if err != nil {
			return nil, apiError(err)
		}
		v.others, v.own, v.readAt, v.from = others, own, now, from
	}

	all := minuteSet{}
	add := func(m *Minute) {
		if !m.At.Before(from) {
			all.addMinute(m)
		}
	}

	for _, m := range v.others {
		add(m)
	}

	// minutes that the Recorder returned; v.own can have older counts of them
	mine := map[time.Time]bool{}
	for _, m := range k.Recorder.copyMinutes(true) {
		mine[m.At] = true
		add(m)
	}

	for _, m := range v.own {
		if !mine[m.At] {
			add(m)
		}
	}

	return all.sortMinutes(), nil
}

// readRows reads the rows from the hour of "from" on. It returns the sums of all other instances,
// and the minutes of this instance. It returns sums of the other instances because separate minutes
// for each of them would take many times the memory.
func (k *Keeper) readRows(ctx context.Context, from time.Time) (others, own minuteSet, err error) {
	others, own = minuteSet{}, minuteSet{}
	err = eachRow(ctx, k.Table, from, func(key string, minutes []*Minute, err error) {
		if err != nil {
			k.Log.Warn("history: an hour of one instance cannot be read", "err", err)
			return
		}

		sum := others
		if strings.HasSuffix(key, "_"+k.instance) {
			sum = own
		}

		for _, m := range minutes {
			sum.addMinute(m)
		}
	})

	return others, own, err
}

// dropCache frees the memory of cached minutes that are too old to be reused.
func (k *Keeper) dropCache() {
	v := &k.cache
	if !v.mu.TryLock() {
		return // a caller is reading
	}
	defer v.mu.Unlock()
	if k.Now().Sub(v.readAt) > maxCacheAge {
		v.others, v.own = nil, nil
	}
}

// minuteSet maps Minute.At to the minute.
type minuteSet map[time.Time]*Minute

func (t minuteSet) addMinute(m *Minute) {
	if t[m.At] == nil {
		t[m.At] = newMinute(m.At)
	}
	t[m.At].addMinute(m)
}

// apiError returns an error of kind Unavailable if a later request to storage can succeed. It
// returns any other error unchanged.
func apiError(err error) error {
	switch storage.KindOf(err) {
	case storage.Throttled, storage.Unavailable, storage.Ambiguous:
		return &weir.Error{Kind: weir.Unavailable, Op: "history",
			Message:    "storage cannot be reached at the moment; try again",
			RetryAfter: 5 * time.Second, Err: err}
	}
	return err
}

func (t minuteSet) sortMinutes() []*Minute {
	return slices.SortedFunc(maps.Values(t), func(a, b *Minute) int { return a.At.Compare(b.At) })
}

// Series returns the steps of the last span, oldest first, also those without activity. The
// parameter "step" is the length of a step and must be a whole number of minutes. Each step begins
// at a multiple of this length, and the last step is not over yet. If lane is negative, the counts
// are those of all lanes. Attempts, durations and transactions are always those of all lanes.
func (k *Keeper) Series(ctx context.Context, span, step time.Duration, lane int) ([]Minute, error) {
	now := k.Now().UTC()
	first := now.Add(step - span).Truncate(step)
	minutes, err := k.readMinutes(ctx, first)
	if err != nil {
		return nil, err
	}

	var steps []Minute
	for at := first; !at.After(now); at = at.Add(step) {
		steps = append(steps, *newMinute(at))
	}

	for _, m := range minutes {
		if i := int(m.At.Sub(first) / step); i >= 0 && i < len(steps) {
			if lane >= 0 {
				removeOtherLanes(m, lane)
			}
			steps[i].addMinute(m)
		}
	}

	carryWaiting(steps)

	return steps, nil
}

// Sum adds up the counts of several steps. For each lane, Waiting and Oldest are the largest
// values.
func Sum(steps []Minute) Minute {
	sum := newMinute(time.Time{})
	for i := range steps {
		sum.addMinute(&steps[i])
	}
	return *sum
}

// carryWaiting copies a lane's Waiting and Oldest into later steps that have no record of the lane.
// Instances record an unchanged Waiting again only after waitingInterval. So carryWaiting copies no
// record that is older than waitingInterval.
func carryWaiting(steps []Minute) {
	last, at := map[int]Lane{}, map[int]time.Time{}
	for i := range steps {
		for number, l := range steps[i].Lanes {
			if l.Seen {
				last[number], at[number] = *l, steps[i].At
			}
		}

		for number, known := range last {
			if l := steps[i].laneOf(number); !l.Seen &&
				steps[i].At.Sub(at[number]) <= waitingInterval {
				l.Waiting, l.Oldest = known.Waiting, known.Oldest
			}
		}
	}
}

func removeOtherLanes(m *Minute, lane int) {
	for number := range m.Lanes {
		if number != lane {
			delete(m.Lanes, number)
		}
	}
}

// visibleAfter is a length of time. When a minute has been over for this time, every instance can
// read the whole minute. visibleAfter is the sum of three times: the time within which an instance
// begins to write a minute, five seconds for this write, and the largest age of the rows that a
// reader may reuse.
const visibleAfter = writtenBy + maxCacheAge + 5*time.Second

// recentMinutes is the number of minutes from which Rate and Pace are computed.
const recentMinutes = 15

// finalCount is the number of messages of a lane that became delivered, dead or superseded in one
// minute.
type finalCount struct {
	n       int64
	isKnown bool // the minute has a record of the lane
}

// CompleteUntil returns the end of the last minute that every instance can read whole. The counts
// of later minutes can lack the part of other instances.
func (k *Keeper) CompleteUntil() time.Time {
	return k.Now().UTC().Add(-visibleAfter).Truncate(time.Minute)
}

// readRecent returns the last recentMinutes minutes before CompleteUntil, and the time at which
// this period begins. Minutes that no instance recorded are missing. If storage cannot be read, all
// minutes are missing.
func (k *Keeper) readRecent(ctx context.Context) (minutes []*Minute, first time.Time) {
	first = k.CompleteUntil().Add(-recentMinutes * time.Minute)
	all, err := k.readMinutes(ctx, first)
	if err != nil {
		return nil, first
	}

	for _, m := range all {
		if i := m.At.Sub(first) / time.Minute; i >= 0 && i < recentMinutes {
			minutes = append(minutes, m)
		}
	}

	return minutes, first
}

// finalsOfLane returns the counts of a lane, the latest minute last. The parameters "minutes" and
// "first" are the results of readRecent.
func finalsOfLane(lane int, minutes []*Minute, first time.Time) (last [recentMinutes]finalCount) {
	for _, m := range minutes {
		if l := m.Lanes[lane]; l != nil {
			last[m.At.Sub(first)/time.Minute] = finalCount{l.Delivered + l.Dead +
				l.Superseded, true}
		}
	}
	return last
}

// Rate returns how many messages of a lane became delivered, dead or superseded per minute. The
// result is the mean of the last minutes before CompleteUntil. The parameter "minutes" is the
// number of these minutes, from 1 to 15. If these minutes have no record of the lane, or storage
// cannot be read, "known" is false.
func (k *Keeper) Rate(ctx context.Context, lane, minutes int) (perMinute float64, known bool) {
	all, first := k.readRecent(ctx)
	last := finalsOfLane(lane, all, first)
	var n int64
	for _, f := range last[recentMinutes-minutes:] {
		n += f.n
		known = known || f.isKnown
	}

	return float64(n) / float64(minutes), known
}

// Pace estimates how many messages a lane finishes in a minute. The estimate is the number of the
// last complete minute. If that number is 0, the estimate is the largest number of the recent
// minutes. If maxRate is more than twice the estimate, the lane had little to do or was paused, and
// Pace returns maxRate instead. If the result is 0, "known" is false.
func (k *Keeper) Pace(ctx context.Context, lane int) (perMinute float64, known bool) {
	all, first := k.readRecent(ctx)
	last := finalsOfLane(lane, all, first)
	n := last[recentMinutes-1].n
	if n == 0 {
		for _, f := range last {
			n = max(n, f.n)
		}
	}

	perMinute = float64(n)
	if possible := k.maxRate(all); possible > 2*perMinute {
		perMinute = possible
	}

	return perMinute, perMinute > 0
}

// attemptOverhead is the approximate time that a lane needs between two attempts. It includes a
// share of the time for commits.
const attemptOverhead = time.Millisecond

// maxRate returns the number of messages that a lane can finish in a minute if the lane always has
// work; 0 = not known. It computes the number from two means over all lanes: the duration of an
// attempt, and the attempts per message.
func (k *Keeper) maxRate(all []*Minute) float64 {
	took, final := Durations{}, int64(0)
	for _, m := range all {
		took.addAll(m.Attempt)
		for _, l := range m.Lanes {
			final += l.Delivered + l.Dead
		}
	}

	if final == 0 || took.Count() == 0 {
		return 0
	}

	one := max(took.meanOf()+attemptOverhead, k.Between)
	needed := max(float64(took.Count())/float64(final), 1)

	return float64(time.Minute) / (float64(one) * needed)
}
