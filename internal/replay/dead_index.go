package replay

import (
	"cmp"
	"context"
	"slices"

	"weir/internal/lane"
	"weir/internal/overview/lists"
)

// deadPage is the largest number of dead messages of one query. Storage returns no more.
const deadPage = 1000

// eachDead calls f for the dead messages of a lane after seq, in the order of the log, until f
// returns false.
func eachDead(ctx context.Context, log Log, number int, seq int64, f func(lists.DeadRow) bool) error {
	for {
		rows, more, err := log.ReadDead(ctx, number, seq, deadPage)
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

// deadIndex has the messages that a job has still to replay in one lane, grouped by key. The messages of a key must be
// replayed together: if a new message of the key is delivered in between, the replay of the others is refused.
type deadIndex struct {
	keys    []string                 // hashes of the keys that no batch has begun, in the order of their first messages
	byKey   map[string][]deadMessage // the messages of each of these keys
	current []deadMessage            // the remaining messages of the key that the last batch has begun

	// dueOrder has the positions, in the orders of their keys, of messages that were scheduled; by sequence number.
	dueOrder map[int64]string
}

// readIndex reads the messages to replay in a lane, after the checkpoint's position there. It leaves out the open
// messages: an open message is still among the dead messages if the holder has not read its request yet.
func readIndex(ctx context.Context, log Log, f Filter, p *checkpoint, number int) (*deadIndex, error) {
	x := &deadIndex{byKey: map[string][]deadMessage{}, dueOrder: map[int64]string{}}
	err := eachDead(ctx, log, number, p.Seq, func(d lists.DeadRow) bool {
		if i := (deadMessage{number, d.Seq, diedAtMicros(d)}); p.includes(f, d) && !p.isOpen(i) {
			key := lane.KeyHash(d.Key)
			if len(x.byKey[key]) == 0 {
				x.keys = append(x.keys, key)
			}
			x.byKey[key] = append(x.byKey[key], i)
			if d.OrderPos != lane.OrderPos(d.Seq) {
				x.dueOrder[d.Seq] = d.OrderPos
			}
		}
		return true
	})
	return x, err
}

// nextBatch returns the next messages: all messages of a key, then all of the next key, until the batch has at least n
// messages. The batch never has more messages than the parameter "most", even if a key has more. Messages of a key are
// in the order in which they must be delivered, because the holder may deliver a message before the replay of the next
// message is requested. In that order a scheduled message follows the messages that were filed before its due time. The
// parameter seq is the present value of checkpoint.Seq; nextBatch also returns the new value.
func (x *deadIndex) nextBatch(n, most int, seq int64) ([]deadMessage, int64) {
	var batch []deadMessage
	for len(batch) < n && (len(x.current) > 0 || len(x.keys) > 0) {
		if len(x.current) == 0 {
			x.current = x.byKey[x.keys[0]]
			delete(x.byKey, x.keys[0])
			x.keys, seq = x.keys[1:], x.current[0].seq
		}
		k := min(len(x.current), most-len(batch))
		slices.SortFunc(x.current[:k], func(a, b deadMessage) int { return cmp.Compare(x.orderOf(a), x.orderOf(b)) })
		batch, x.current = append(batch, x.current[:k]...), x.current[k:]
	}
	return batch, seq
}

// isInProgress reports whether the last batch has begun a key, and left messages of it.
func (x *deadIndex) isInProgress() bool { return x != nil && len(x.current) > 0 }

// orderOf returns a message's position in its key's order.
func (x *deadIndex) orderOf(i deadMessage) string {
	return cmp.Or(x.dueOrder[i.seq], lane.OrderPos(i.seq))
}
