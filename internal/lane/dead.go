package lane

import (
	"context"
	"time"

	"weir/internal/lane/rows"
)

// deadValues returns the columns of the row (x_) that a dead message has beside its row in the log.
func deadValues(e *Entry, at time.Time) map[string]any {
	v := rows.Values(rows.Key.Is(e.Message.Key), rows.Contract.Is(e.Message.Contract),
		rows.DiedAt.Is(at),
		rows.Reason.Is(e.status.LastError), rows.CMSStatus.Is(int64(e.status.CMSStatus)))
	if e.releasedPos != "" {
		rows.Put(v, rows.OrderPos.Is(e.releasedPos))
	}
	return v
}

// MaxDeadKeys is the largest number of keys with dead messages that a holder knows. If a lane has
// more, every key counts as such a key.
const MaxDeadKeys = 10_000

// deadKeysPages limits the pages that ReadDeadKeys reads. A page has 1,000 rows at most.
const deadKeysPages = MaxDeadKeys / 1000

// ReadDeadKeys returns the hashes of the keys that have dead messages in a lane. If there are too
// many dead messages to read, all is true and keys is nil: every key counts as a key with dead
// messages.
func (ds DeliveryState) ReadDeadKeys(ctx context.Context, lane int) (keys map[string]bool, all bool,
	err error) {
	q := rows.WithPrefix(ds.store.Partition(lane), rows.DeadPrefix, rows.Names(rows.Key))
	found, more, err := rows.ReadPages(ctx, ds.store.Table, q, deadKeysPages)
	if err != nil || more {
		return nil, more, err
	}

	keys = map[string]bool{}
	for _, r := range found {
		keys[ds.store.KeyHash(rows.Key.Of(r.Values))] = true
	}

	return keys, false, nil
}
