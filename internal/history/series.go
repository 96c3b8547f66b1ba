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

// fresh is for how long what was read is good enough: whoever asks often costs storage no
// more than three queries a minute; six, where short and long spans are asked for in turn.
const fresh = 20 * time.Second

// minutes gives the minutes from a moment on, of all instances together, oldest first.
// Minutes in which nothing happened are missing.
func (k *Keeper) minutes(ctx context.Context, from time.Time) ([]*Minute, error) {
	from = from.UTC().Truncate(time.Minute)
	v := &k.view
	v.mu.Lock()
	defer v.mu.Unlock()
	if now := k.Now(); v.others == nil || now.Sub(v.at) > fresh || from.Before(v.from) {
		others, own, err := k.read(ctx, from)
		if err != nil {
			return nil, unavailable(err)
		}
		v.others, v.own, v.at, v.from = others, own, now, from
	}
	all := byTime{}
	add := func(m *Minute) {
		if !m.At.Before(from) {
			all.add(m)
		}
	}
	for _, m := range v.others {
		add(m)
	}
	mine := map[time.Time]bool{} // what is in memory is newer than its row
	for _, m := range k.Recorder.take(true) {
		mine[m.At] = true
		add(m)
	}
	for _, m := range v.own {
		if !mine[m.At] {
			add(m)
		}
	}
	return all.sorted(), nil
}

// read reads the minutes from a moment on: those of other instances together, and the rows
// of this one. The rows of all one by one would be many times as much.
func (k *Keeper) read(ctx context.Context, from time.Time) (others, own byTime, err error) {
	others, own = byTime{}, byTime{}
	err = eachRow(ctx, k.Table, from, func(key string, minutes []*Minute) {
		sum := others
		if strings.HasSuffix(key, "_"+k.instance) {
			sum = own
		}
		for _, m := range minutes {
			sum.add(m)
		}
	})
	return others, own, err
}

// forget lets go of what was read, where nobody has asked for it lately.
func (k *Keeper) forget() {
	v := &k.view
	if !v.mu.TryLock() {
		return // somebody asks
	}
	defer v.mu.Unlock()
	if k.Now().Sub(v.at) > fresh {
		v.others, v.own = nil, nil
	}
}

// byTime are minutes by their beginnings.
type byTime map[time.Time]*Minute

// add adds a minute to what there is of it.
func (t byTime) add(m *Minute) {
	if t[m.At] == nil {
		t[m.At] = newMinute(m.At)
	}
	t[m.At].plus(m)
}

// unavailable is what a caller sees of storage that is away: a reason to try again.
func unavailable(err error) error {
	switch storage.KindOf(err) {
	case storage.Throttled, storage.Unavailable, storage.Ambiguous:
		return &weir.Error{Kind: weir.Unavailable, Op: "history", Message: "storage cannot be reached at the moment; try again", RetryAfter: 5 * time.Second, Err: err}
	}
	return err
}

func (t byTime) sorted() []*Minute {
	return slices.SortedFunc(maps.Values(t), func(a, b *Minute) int { return a.At.Compare(b.At) })
}

// Series gives the last span in steps, oldest first, empty ones included; the last one is
// not over. lane < 0 stands for all lanes; attempts, durations and transactions are always
// of all lanes. step is a whole number of minutes.
func (k *Keeper) Series(ctx context.Context, span, step time.Duration, lane int) ([]Minute, error) {
	now := k.Now().UTC()
	first := now.Add(step - span).Truncate(step)
	minutes, err := k.minutes(ctx, first)
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
				keepLane(m, lane)
			}
			steps[i].plus(m)
		}
	}
	carry(steps)
	return steps, nil
}

// Sum is what happened in several steps together; Waiting and Oldest are the largest.
func Sum(steps []Minute) Minute {
	sum := newMinute(time.Time{})
	for i := range steps {
		sum.plus(&steps[i])
	}
	return *sum
}

// carry fills in what waited in steps that nobody noted it in, because it had not changed.
func carry(steps []Minute) {
	last, at := map[int]Lane{}, map[int]time.Time{}
	for i := range steps {
		for number, l := range steps[i].Lanes {
			if l.Seen {
				last[number], at[number] = *l, steps[i].At
			}
		}
		for number, known := range last {
			if l := steps[i].lane(number); !l.Seen && steps[i].At.Sub(at[number]) <= waitEvery {
				l.Waiting, l.Oldest = known.Waiting, known.Oldest
			}
		}
	}
}

func keepLane(m *Minute, lane int) {
	for number := range m.Lanes {
		if number != lane {
			delete(m.Lanes, number)
		}
	}
}

// onRecord is how long after its end a minute can be seen by every instance: each writes at
// a moment of its own in the next one, and what was read is good enough for a while.
const onRecord = writtenBy + fresh + 5*time.Second

// recent is how many minutes tell how fast a lane is.
const recent = 15

// finals is how many messages of a lane became final in a minute; known is false where nothing
// of it is on record.
type finals struct {
	n     int64
	known bool
}

// lately reads the last whole minutes that all instances have on record, so many as recent
// says. Those before first are not among them; a minute in which nothing was may be missing.
func (k *Keeper) lately(ctx context.Context) (minutes []*Minute, first time.Time) {
	first = k.Now().UTC().Add(-onRecord).Truncate(time.Minute).Add(-recent * time.Minute)
	all, err := k.minutes(ctx, first)
	if err != nil {
		return nil, first
	}
	for _, m := range all {
		if i := m.At.Sub(first) / time.Minute; i >= 0 && i < recent {
			minutes = append(minutes, m)
		}
	}
	return minutes, first
}

// of gives a lane's part of those minutes, the latest last.
func of(lane int, minutes []*Minute, first time.Time) (last [recent]finals) {
	for _, m := range minutes {
		if l := m.Lanes[lane]; l != nil {
			last[m.At.Sub(first)/time.Minute] = finals{l.Delivered + l.Dead + l.Superseded, true}
		}
	}
	return last
}

// Rate gives the messages a minute that became final in a lane, over the last whole minutes, 15
// at most; known is false where nothing of that time is on record, or it cannot be read.
func (k *Keeper) Rate(ctx context.Context, lane, minutes int) (perMinute float64, known bool) {
	all, first := k.lately(ctx)
	last := of(lane, all, first)
	var n int64
	for _, f := range last[recent-minutes:] {
		n += f.n
		known = known || f.known
	}
	return float64(n) / float64(minutes), known
}

// Pace gives the messages a minute with which to reckon: those of the last minute, or where
// nothing went in it, those of the best one lately. But a lane that did less than half of what
// it could was not slow: it had little to do, or was paused. Then it is what it could.
func (k *Keeper) Pace(ctx context.Context, lane int) (perMinute float64, known bool) {
	all, first := k.lately(ctx)
	last := of(lane, all, first)
	n := last[recent-1].n
	if n == 0 {
		for _, f := range last {
			n = max(n, f.n)
		}
	}
	perMinute = float64(n)
	if could := k.could(all); could > 2*perMinute {
		perMinute = could
	}
	return perMinute, perMinute > 0
}

// between is about what a lane does between two attempts, its share of the commits included.
const between = time.Millisecond

// could is how many messages a minute one lane gets through that always has something to do,
// by how long attempts took lately and how many of them a message needed; 0 = nobody knows.
func (k *Keeper) could(all []*Minute) float64 {
	took, final := Durations{}, int64(0)
	for _, m := range all {
		took.plus(m.Attempt)
		for _, l := range m.Lanes {
			final += l.Delivered + l.Dead
		}
	}
	if final == 0 || took.Count() == 0 {
		return 0
	}
	one := max(took.mean()+between, k.Between)
	needed := max(float64(took.Count())/float64(final), 1)
	return float64(time.Minute) / (float64(one) * needed)
}
