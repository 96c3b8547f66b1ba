package lane

import (
	"cmp"
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/lane/rows"
	"weir/internal/panics"
	"weir/internal/storage"
)

// DeleteLane deletes all rows of a lane. Retention calls DeleteLane for a lane of an earlier epoch
// that has no messages any more. To undo a change of the number of lanes, package relane calls
// DeleteLane for the lanes of the next epoch.
//
// Head and tail are deleted last, in one transaction. So a lane without head and tail has no other
// rows.
func (s *Store) DeleteLane(ctx context.Context, lane int) error {
	d := laneDeletion{s, lane}
	for {
		keys, err := d.deleteNextRows(ctx)
		if err != nil || keys == 0 {
			return err
		}
	}
}

type laneDeletion struct {
	store *Store
	lane  int
}

// deleteNextRows deletes the next rows with one transaction, and returns their number.
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

		// NotFound: an earlier try, or another process, has deleted one of the rows.
		return !rows.IsUncertain(err) && !storage.Is(err, storage.NotFound), err
	}, func(error) time.Duration { return rows.ResendPause })

	return n, err
}

// nextKeys returns the keys of the rows to delete next: first the rows with greater keys than tail,
// then the markers, then head and tail.
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

// errHalfDeleted means that a lane lacks a control row, but still has other rows.
var errHalfDeleted = errors.New(
	"a control row is missing, and other rows are there: nothing is removed")

// checkDone is called if head or tail of the lane is missing. A missing row does not prove that the
// lane was deleted. If the lane still has messages, checkDone returns an error, because a deletion
// would lose these messages.
func (d laneDeletion) checkDone(ctx context.Context) error {
	for _, key := range []string{rows.HeadKey, rows.TailKey} {
		_, err := d.store.Table.Get(ctx, d.store.Partition(d.lane), key)
		if storage.Is(err, storage.NotFound) {
			continue
		}
		if err != nil {
			return err
		}

		return errHalfDeleted // one transaction deletes both rows, so the lane was not deleted
	}

	if any, err := d.hasMessages(ctx); any || err != nil {
		return errors.Join(err, errHalfDeleted)
	}

	return nil
}

func (d laneDeletion) hasMessages(ctx context.Context) (bool, error) {
	return d.hasRows(ctx, rows.MessagePrefix, rows.PrefixEnd(rows.MessagePrefix))
}

// hasRows reports whether the lane has rows whose keys are at least "from" and less than "to". If
// "to" is empty, there is no upper limit.
func (d laneDeletion) hasRows(ctx context.Context, from, to string) (bool, error) {
	found, err := rows.ReadFirst(ctx, d.store.Table,
		storage.Query{Partition: d.store.Partition(d.lane), From: from, To: to,
			Columns: rows.Names(rows.Stage)}, 1)
	return len(found) > 0, err
}

// maxConcurrent limits the concurrent calls of ForEach.
const maxConcurrent = 8

// ForEach calls f for each number from 0 to n-1, with at most maxConcurrent calls at a time. It
// makes all calls even if some fail. It returns the error of the lowest number, so that the result
// does not depend on the order in which calls end.
func ForEach(n int, f func(int) error) error {
	errs := make([]error, n)
	var group errgroup.Group
	group.SetLimit(maxConcurrent)

	for i := range n {
		group.Go(func() error {
			errs[i] = panics.Catch(func() error { return f(i) })
			return nil
		})
	}

	_ = group.Wait() // no call returns an error to the group

	return cmp.Or(errs...)
}
