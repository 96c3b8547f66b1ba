package lane

import (
	"cmp"
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/lane/rows"
	"weir/internal/storage"
)

// DeleteLane deletes all rows of a lane whose epoch was undone before it opened, or whose messages retention
// has removed. It deletes the control rows last, together: a lane without them has no other rows.
func (s *Store) DeleteLane(ctx context.Context, lane int) error {
	d := laneDeletion{s, lane}
	for {
		keys, err := d.deleteNextRows(ctx)
		if err != nil || keys == 0 {
			return err
		}
	}
}

// laneDeletion deletes one lane.
type laneDeletion struct {
	store *Store
	lane  int
}

// deleteNextRows deletes as many rows as a transaction holds, and returns their number.
func (d laneDeletion) deleteNextRows(ctx context.Context) (n int, err error) {
	err = rows.Update(ctx, func() (bool, error) {
		keys, err := d.nextKeys(ctx)
		if n = len(keys); err != nil || n == 0 {
			return !rows.IsUncertain(err), err
		}
		ops := make([]storage.Op, n)
		for i, key := range keys {
			ops[i] = storage.Op{Kind: storage.Delete, Key: key}
		}
		_, err = d.store.Table.Transact(ctx, d.store.Partition(d.lane), ops)
		// NotFound: an earlier try, or another process, has deleted one of them.
		return !rows.IsUncertain(err) && !storage.Is(err, storage.NotFound), err
	}, func(error) time.Duration { return rows.ResendPause })
	return n, err
}

// nextKeys returns the keys to delete next: first all other rows, then the markers, then the control rows.
func (d laneDeletion) nextKeys(ctx context.Context) ([]string, error) {
	found, err := rows.ReadFirst(ctx, d.store.Table,
		storage.Query{Partition: d.store.Partition(d.lane), From: rows.ControlEnd,
			Columns: rows.Names(rows.Seq)}, storage.MaxOps)
	if err == nil && len(found) == 0 {
		found, err = rows.ReadFirst(ctx, d.store.Table,
			storage.Query{Partition: d.store.Partition(d.lane), To: rows.ControlEnd,
				Columns: rows.Names(rows.Seq)}, storage.MaxOps)
	}
	var control, markers []string
	for _, row := range found {
		if row.Key == rows.HeadKey || row.Key == rows.TailKey {
			control = append(control, row.Key)
		} else {
			markers = append(markers, row.Key)
		}
	}
	if err != nil || len(markers) > 0 {
		return markers, err
	}
	return control, nil
}

// errHalfDeleted means that a lane is neither complete nor deleted.
var errHalfDeleted = errors.New("a control row is missing, and rows of messages are there: nothing is removed")

// checkDone returns nil if the lane was deleted, except perhaps for rows that are not of messages. The caller has
// found a control row missing. That is no proof of a deletion, and deleting a complete lane would lose its messages.
func (d laneDeletion) checkDone(ctx context.Context) error {
	for _, key := range []string{rows.HeadKey, rows.TailKey} {
		_, err := d.store.Table.Get(ctx, d.store.Partition(d.lane), key)
		if storage.Is(err, storage.NotFound) {
			continue
		}
		if err != nil {
			return err
		}
		// Earlier versions deleted the control rows one after the other if a lane had many markers. But they deleted
		// all rows behind the control rows first.
		if any, err := d.hasRows(ctx, rows.ControlEnd, ""); any || err != nil {
			return errors.Join(err, errHalfDeleted)
		}
	}
	if any, err := d.hasMessages(ctx); any || err != nil {
		return errors.Join(err, errHalfDeleted)
	}
	return nil
}

// hasMessages reports whether the lane has rows of messages.
func (d laneDeletion) hasMessages(ctx context.Context) (bool, error) {
	return d.hasRows(ctx, rows.MessagePrefix, rows.PrefixEnd(rows.MessagePrefix))
}

// hasRows reports whether there are rows in the range of keys [from, to). An empty to means: up to the last row.
func (d laneDeletion) hasRows(ctx context.Context, from, to string) (bool, error) {
	found, err := rows.ReadFirst(ctx, d.store.Table,
		storage.Query{Partition: d.store.Partition(d.lane), From: from, To: to, Columns: rows.Names(rows.Stage)}, 1)
	return len(found) > 0, err
}

// maxConcurrent limits the concurrent calls of ForEach.
const maxConcurrent = 8

// ForEach calls f for 0 to n-1, maxConcurrent at a time. It calls f for each number even if a call fails, and returns
// the error of the lowest number, so that the result does not depend on the order in which the calls end.
func ForEach(n int, f func(int) error) error {
	errs := make([]error, n)
	var group errgroup.Group
	group.SetLimit(maxConcurrent)
	for i := range n {
		group.Go(func() error {
			errs[i] = f(i)
			return nil
		})
	}
	_ = group.Wait() // no call returns an error to the group
	return cmp.Or(errs...)
}
