package overview

import (
	"context"

	"weir/internal/lane"
	"weir/internal/lane/lists"
	"weir/internal/weir"
)

// RefusedKeys are the keys whose messages the CMS refuses (403, or errors such as 500), while no
// other message shows whether it refuses all messages. The zero value means that the CMS refuses no
// message now.
type RefusedKeys struct {
	Count    int64  // number of keys, at least
	First    string // the key of the first refused message of the log; "" = not known
	Complete bool   // Count is exact
}

// fewRefused is the largest number of refused keys that do not show a fault of the CMS itself. It
// is below the number of keys from which a holder takes the CMS for the cause of failures.
const fewRefused = 2

// AreFew reports whether the CMS refuses so few keys that it probably takes all others. A lane then
// pauses only for these keys: a message of another key is sent at once.
func (r RefusedKeys) AreFew() bool { return r.Count > 0 && r.Count <= fewRefused && r.Complete }

// ReadRefusedKeys returns the keys of a lane that the CMS refuses. It reads the log only if the CMS
// refuses messages. c has the lane's control rows.
func (o *Overview) ReadRefusedKeys(ctx context.Context, number int,
	c lane.Control) (RefusedKeys, error) {
	if c.Tail.RefusingSince.IsZero() {
		return RefusedKeys{}, nil
	}

	limit := int(min(max(c.Head.Next-c.Tail.Cursor, 0), maxOldestRows))
	r := RefusedKeys{Complete: c.Head.Next-c.Tail.Cursor <= maxOldestRows}
	if err := o.countRefusedInLog(ctx, number, c, limit, &r); err != nil {
		return RefusedKeys{}, err
	}

	waiting, err := lists.Reader{Store: o.Store}.ReadWaiting(ctx, number, 1)
	if err != nil {
		return RefusedKeys{}, err
	}

	r.Complete = r.Complete && waiting.IsComplete
	for _, h := range waiting.Held {
		if h.Tried { // the first message of a key's queue, which waits for its retry
			r.Count++
		}
	}

	return r, nil
}

// countRefusedInLog counts the keys of the log whose messages had their turn. A key that had no
// turn yet counts, too, until the holder has tried it.
func (o *Overview) countRefusedInLog(ctx context.Context, number int, c lane.Control, limit int,
	r *RefusedKeys) error {
	if limit == 0 {
		return nil
	}

	entries, err := o.Store.ScanLog(ctx, number, c.Tail.Cursor, limit)
	keys := map[string]bool{}
	for _, e := range entries {
		if e.Stage != weir.Queued || e.IsHeld || keys[e.KeyHash()] {
			continue
		}

		keys[e.KeyHash()] = true
		if r.Count++; r.First == "" {
			r.First = e.Message.Key
		}
	}

	return err
}
