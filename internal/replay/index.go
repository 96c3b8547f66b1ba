package replay

import (
	"cmp"
	"context"
	"slices"

	"weir/internal/lane"
)

// deadPage is how many dead messages one query reads: as many as storage gives.
const deadPage = 1000

// eachDead calls f for the dead messages of a lane behind seq, in the order of the log,
// until it says no.
func eachDead(ctx context.Context, log Log, number int, seq int64, f func(lane.DeadRow) bool) error {
	for {
		rows, more, err := log.Dead(ctx, number, seq, deadPage)
		if err != nil {
			return err
		}
		for _, r := range rows {
			if !f(r) {
				return nil
			}
			seq = r.Seq
		}
		if !more {
			return nil
		}
	}
}

// index is what a job has still to do in one lane: its messages in the order of the log,
// and those of one key together. A later message of a key that was replayed long after the
// first would come too late as soon as an upstream sends a new one in between.
type index struct {
	order []string          // keys, by the first message of each
	byKey map[string][]item // the rest of each key's messages
	taken []item            // of the key whose turn it is

	fell map[int64]string // of those that were scheduled: the place at which they fell due
}

// readIndex reads what there is to do in a lane behind p's place there. What is open may be
// listed still, where its holder has not seen the wish.
func readIndex(ctx context.Context, log Log, f Filter, p *place, number int) (*index, error) {
	x := &index{byKey: map[string][]item{}, fell: map[int64]string{}}
	err := eachDead(ctx, log, number, p.Seq, func(d lane.DeadRow) bool {
		if i := (item{number, d.Seq, diedAt(d)}); p.means(f, d) && !p.isOpen(i) {
			key := lane.KeyHash(d.Key)
			if len(x.byKey[key]) == 0 {
				x.order = append(x.order, key)
			}
			x.byKey[key] = append(x.byKey[key], i)
			if d.Place != lane.Place(d.Seq) {
				x.fell[d.Seq] = d.Place
			}
		}
		return true
	})
	return x, err
}

// next gives the messages whose turn it is: those of whole keys until there are n, at most
// so many. Those of a key go in its order, in which what was scheduled stands behind what was
// filed before its moment: the holder may deliver each before the next is asked for. seq is the
// place that p.Seq has come to with them.
func (x *index) next(n, most int, seq int64) ([]item, int64) {
	var turn []item
	for len(turn) < n && (len(x.taken) > 0 || len(x.order) > 0) {
		if len(x.taken) == 0 {
			x.taken = x.byKey[x.order[0]]
			delete(x.byKey, x.order[0])
			x.order, seq = x.order[1:], x.taken[0].seq
		}
		k := min(len(x.taken), most-len(turn))
		slices.SortFunc(x.taken[:k], func(a, b item) int { return cmp.Compare(x.place(a), x.place(b)) })
		turn, x.taken = append(turn, x.taken[:k]...), x.taken[k:]
	}
	return turn, seq
}

// begun says whether a key has had a part of its turn, and not all.
func (x *index) begun() bool { return x != nil && len(x.taken) > 0 }

// place is where a message stands in its key's order.
func (x *index) place(i item) string { return cmp.Or(x.fell[i.seq], lane.Place(i.seq)) }
