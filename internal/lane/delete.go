package lane

import (
	"context"
	"errors"
	"sync"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
)

// DeleteLane deletes all rows of a lane whose epoch was undone before it opened, or whose messages retention
// has removed. It deletes the control rows last, together: a lane without them has no other rows.
func (s *Store) DeleteLane(ctx context.Context, lane int) error {
	for {
		keys, err := s.deleteNextRows(ctx, lane)
		if err != nil || keys == 0 {
			return err
		}
	}
}

// deleteNextRows deletes as many rows as a transaction holds, and returns their number.
func (s *Store) deleteNextRows(ctx context.Context, lane int) (n int, err error) {
	err = rows.Update(ctx, func() (bool, error) {
		keys, err := s.nextDeleted(ctx, lane)
		if n = len(keys); err != nil || n == 0 {
			return !isUncertain(err), err
		}
		ops := make([]storage.Op, n)
		for i, key := range keys {
			ops[i] = storage.Op{Kind: storage.Delete, Key: key}
		}
		_, err = s.Table.Transact(ctx, s.partitionOf(lane), ops)
		// NotFound: an earlier try, or another process, has deleted one of them.
		return !isUncertain(err) && !storage.Is(err, storage.NotFound), err
	}, func(error) time.Duration { return resendPause })
	return n, err
}

// nextDeleted returns the keys to delete next: first all other rows, then the markers, then the control rows.
func (s *Store) nextDeleted(ctx context.Context, lane int) ([]string, error) {
	found, err := rows.ReadFirst(ctx, s.Table,
		storage.Query{Partition: s.partitionOf(lane), From: rows.ControlEnd,
			Columns: rows.Names(rows.Seq)}, storage.MaxOps)
	if err == nil && len(found) == 0 {
		found, err = rows.ReadFirst(ctx, s.Table,
			storage.Query{Partition: s.partitionOf(lane), To: rows.ControlEnd,
				Columns: rows.Names(rows.Seq)}, storage.MaxOps)
	}
	var control, notes []string
	for _, row := range found {
		if row.Key == rows.HeadKey || row.Key == rows.TailKey {
			control = append(control, row.Key)
		} else {
			notes = append(notes, row.Key)
		}
	}
	if err != nil || len(notes) > 0 {
		return notes, err
	}
	return control, nil
}

// errHalfDeleted means that a lane is neither complete nor deleted.
var errHalfDeleted = errors.New("a control row is missing, and rows of messages are there: nothing is removed")

// checkDeleted returns nil if the lane was deleted, except perhaps for its last rows. Not finding the control
// rows is no proof, and deleting a complete lane would lose its messages.
func (s *Store) checkDeleted(ctx context.Context, lane int) error {
	for _, key := range []string{rows.HeadKey, rows.TailKey} {
		_, err := s.Table.Get(ctx, s.partitionOf(lane), key)
		if storage.Is(err, storage.NotFound) {
			continue
		}
		if err != nil {
			return err
		}
		// Earlier versions deleted the control rows one after the other if a lane had many markers, but all
		// other rows before them.
		if any, err := s.hasRows(ctx, lane, rows.ControlEnd, ""); any || err != nil {
			return errors.Join(err, errHalfDeleted)
		}
	}
	if any, err := s.hasRows(ctx, lane, rows.MessagePrefix, rows.PrefixEnd(rows.MessagePrefix)); any || err != nil {
		return errors.Join(err, errHalfDeleted)
	}
	return nil
}

// hasRows reports whether there are rows in a range of keys; to empty = up to the last.
func (s *Store) hasRows(ctx context.Context, lane int, from, to string) (bool, error) {
	found, err := rows.ReadFirst(ctx, s.Table,
		storage.Query{Partition: s.partitionOf(lane), From: from, To: to, Columns: rows.Names(rows.Stage)}, 1)
	return len(found) > 0, err
}

// maxConcurrent limits the concurrent calls of ForEach.
const maxConcurrent = 8

// ForEach calls f for 0 to n-1, a few at a time, and returns the first error by number.
func ForEach(n int, f func(int) error) error {
	errs := make([]error, n)
	turns := make(chan struct{}, maxConcurrent)
	var wg sync.WaitGroup
	for i := range n {
		turns <- struct{}{}
		wg.Go(func() {
			errs[i] = f(i)
			<-turns
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
