package replay

import (
	"cmp"
	"context"
	"slices"

	"weir/internal/lane"
	"weir/internal/lane/lists"
)

// deadPage is the largest number of dead messages of one query: the limit of Azure tables.
const deadPage = 1000

// eachDead calls f for a lane's dead messages with sequence numbers greater than seq, in the order
// of the log. It stops when f returns false.
func eachDead(ctx context.Context, log Log, number int, seq int64,
	f func(lists.DeadRow) bool) error {
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

// deadIndex has the messages that a job has still to replay in one lane, grouped by key. The
// messages of a key must be replayed together. Otherwise a new message of the key could be
// delivered in between, and the holder would refuse the remaining replays of the key.
type deadIndex struct {
	// hashes of keys that are in no portion yet, in the order of their first messages
	keys    []string
	byKey   map[string][]deadMessage // the messages of each key in the field "keys", by hash
	current []deadMessage            // remaining messages of the last key of the last portion

	// dueOrder maps the sequence number of a scheduled message to the message's position in its
	// key's order.
	dueOrder map[int64]string
}

// readIndex reads the messages of a lane that the job has still to replay, with sequence numbers
// greater than p.Seq. It leaves out the messages in p.Open, whose replay the job has requested
// already. Such a message is still dead if the lane's holder has not read the request yet.
func (r *Runner) readIndex(ctx context.Context, f Filter, p *checkpoint,
	number int) (*deadIndex, error) {
	x := &deadIndex{byKey: map[string][]deadMessage{}, dueOrder: map[int64]string{}}
	err := eachDead(ctx, r.Log, number, p.Seq, func(d lists.DeadRow) bool {
		if i := (deadMessage{number, d.Seq, diedAtMicros(d)}); p.includes(f, d) && !p.isOpen(i) {
			key := r.Store.KeyHash(d.Key)
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

// nextPortion returns the next portion: all messages of a key, then all of the next key, until the
// portion has at least n messages. The portion never has more messages than the parameter "most";
// further messages of the last key are in the next portion. The parameter seq is the present value
// of checkpoint.Seq, and nextPortion returns the new value.
//
// A portion has a key's messages in the order in which the holder must deliver them, because the
// holder can deliver a message before the next replay is requested. A scheduled message is later in
// that order than the messages that were accepted before its due time.
func (x *deadIndex) nextPortion(n, most int, seq int64) ([]deadMessage, int64) {
	var portion []deadMessage
	for len(portion) < n && (len(x.current) > 0 || len(x.keys) > 0) {
		if len(x.current) == 0 {
			x.current = x.byKey[x.keys[0]]
			delete(x.byKey, x.keys[0])
			x.keys, seq = x.keys[1:], x.current[0].seq
		}

		k := min(len(x.current), most-len(portion))
		slices.SortFunc(x.current[:k],
			func(a, b deadMessage) int { return cmp.Compare(x.orderOf(a), x.orderOf(b)) })
		portion, x.current = append(portion, x.current[:k]...), x.current[k:]
	}

	return portion, seq
}

// isInProgress reports whether the last key of the last portion has further messages to replay.
func (x *deadIndex) isInProgress() bool { return x != nil && len(x.current) > 0 }

// orderOf returns a message's position in its key's order.
func (x *deadIndex) orderOf(i deadMessage) string {
	return cmp.Or(x.dueOrder[i.seq], lane.OrderPos(i.seq))
}
