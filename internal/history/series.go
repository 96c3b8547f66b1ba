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

// maxCacheAge is the age up to which the rows of a read are reused. So callers of one span cause at most three reads of
// the rows a minute, however often they call. A caller of a longer span causes a read of its own.
const maxCacheAge = 20 * time.Second

// readMinutes returns the minutes since a time, of all instances together, oldest first. Minutes that no instance
// recorded are missing.
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
	mine := map[time.Time]bool{} // minutes in memory are newer than their row
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

// readRows reads the minutes since the beginning of the hour of "from". It returns the sums of the other instances, and
// the minutes of this instance. To keep the minutes of each instance apart would take many times the memory.
func (k *Keeper) readRows(ctx context.Context, from time.Time) (others, own minuteSet, err error) {
	others, own = minuteSet{}, minuteSet{}
	err = eachRow(ctx, k.Table, from, func(key string, minutes []*Minute) {
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

// dropCache drops a read that is too old to be reused.
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

// minuteSet has minutes, by Minute.At.
type minuteSet map[time.Time]*Minute

func (t minuteSet) addMinute(m *Minute) {
	if t[m.At] == nil {
		t[m.At] = newMinute(m.At)
	}
	t[m.At].addMinute(m)
}

// apiError returns the error for callers of the API after a storage error: Unavailable if storage may answer later, and
// otherwise the error itself.
func apiError(err error) error {
	switch storage.KindOf(err) {
	case storage.Throttled, storage.Unavailable, storage.Ambiguous:
		return &weir.Error{Kind: weir.Unavailable, Op: "history",
			Message: "storage cannot be reached at the moment; try again", RetryAfter: 5 * time.Second, Err: err}
	}
	return err
}

func (t minuteSet) sortMinutes() []*Minute {
	return slices.SortedFunc(maps.Values(t), func(a, b *Minute) int { return a.At.Compare(b.At) })
}

// Series returns the steps of the last span, oldest first, also those without activity. The time at which a step begins
// is a multiple of the argument "step". The last step is not over yet. lane < 0 stands for all lanes. Attempts,
// durations and transactions are always of all lanes. "step" is a whole number of minutes.
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

// Sum returns the counts of several steps together. Waiting and Oldest of a lane are its largest values.
func Sum(steps []Minute) Minute {
	sum := newMinute(time.Time{})
	for i := range steps {
		sum.addMinute(&steps[i])
	}
	return *sum
}

// carryWaiting copies Waiting and Oldest of a lane into later steps without a record of them, for up to
// waitingInterval, because an unchanged number is recorded only once per waitingInterval.
func carryWaiting(steps []Minute) {
	last, at := map[int]Lane{}, map[int]time.Time{}
	for i := range steps {
		for number, l := range steps[i].Lanes {
			if l.Seen {
				last[number], at[number] = *l, steps[i].At
			}
		}
		for number, known := range last {
			if l := steps[i].laneOf(number); !l.Seen && steps[i].At.Sub(at[number]) <= waitingInterval {
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

// When visibleAfter has passed since the end of a minute, every instance can read the whole minute: each instance
// writes the minute by writtenBy of the next minute, and reads are reused for maxCacheAge. Five seconds are for the
// write itself.
const visibleAfter = writtenBy + maxCacheAge + 5*time.Second

// recentMinutes is the number of minutes from which a lane's rate is computed.
const recentMinutes = 15

// finalCount is the number of messages of a lane that became delivered, dead or superseded in a minute.
type finalCount struct {
	n       int64
	isKnown bool // the minute has a record of the lane
}

// CompleteUntil returns the end of the last minute that every instance can read whole. Figures of later minutes may
// lack the part of other instances.
func (k *Keeper) CompleteUntil() time.Time {
	return k.Now().UTC().Add(-visibleAfter).Truncate(time.Minute)
}

// readRecent returns the recentMinutes minutes before CompleteUntil, and the beginning of the first of them. Minutes
// that no instance recorded are missing; all are missing if storage cannot be read.
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

// finalsOfLane returns the counts of a lane in the result of readRecent, the latest minute last.
func finalsOfLane(lane int, minutes []*Minute, first time.Time) (last [recentMinutes]finalCount) {
	for _, m := range minutes {
		if l := m.Lanes[lane]; l != nil {
			last[m.At.Sub(first)/time.Minute] = finalCount{l.Delivered + l.Dead + l.Superseded, true}
		}
	}
	return last
}

// Rate returns how many messages of a lane became delivered, dead or superseded per minute. It is the mean of the last
// minutes before CompleteUntil; the argument "minutes" is their number, at most 15. "known" is false if no record of
// the lane in that time exists or can be read.
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

// Pace returns the number of messages that a lane can be expected to finish in a minute. This is the number that the
// lane finished in the last minute. If that number is 0, Pace returns the largest number of the recent minutes. If the
// lane finished less than half of maxRate, it had little to do or was paused, and Pace returns maxRate. "known" is
// false if the result is 0.
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

// attemptOverhead is about the time that a lane needs between two attempts. It includes a share of the time for
// commits.
const attemptOverhead = time.Millisecond

// maxRate returns the number of messages that a lane can finish in a minute if it always has work; 0 = not known. It
// derives the number from the durations of attempts, and from the attempts per message, of all lanes.
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
