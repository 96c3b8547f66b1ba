package lane

import (
	"context"
	"errors"
	"slices"
	"strings"

	"weir/internal/clock"
	"weir/internal/lane/rows"
	"weir/internal/storage"
)

// ErrFenced means that tail was changed, usually by a new holder of the lane. This Writer can no
// longer commit.
var ErrFenced = errors.New("fenced: another holder has the lane")

// Writer commits to a lane as its holder. It is not safe for concurrent use.
type Writer struct {
	store *Store
	lane  int
	tail  Tail
	// lostCommits is the number of commits that were refused since the last successful commit. A
	// late copy of a refused commit can still succeed. So the next commit skips the numbers of the
	// refused commits: findOutcome must not mistake such a copy for the next commit.
	lostCommits int64
}

// RaiseFence makes the caller the holder of a lane. The caller must have the lane's lease.
// RaiseFence writes tail with a greater fence and with nonce. From then on storage refuses every
// commit of an earlier holder.
//
// seen is tail as last read, and is allowed to be out of date; the zero Tail means that tail was
// not read. change adapts the stored tail, for example to count a crash, and can be called several
// times. If storage does not answer, RaiseFence tries again until ctx ends; ctx is the context of
// the lease.
//
// If change leaves tail closed, RaiseFence writes nothing and returns ErrClosed.
func (s *Store) RaiseFence(ctx context.Context, lane int, nonce string, seen Tail,
	change func(*Tail)) (*Writer, error) {
	for {
		if seen.ETag == "" { // an empty ETag as a condition would match any tail
			c, err := s.ReadControl(ctx, lane)
			if err != nil {
				return nil, err
			}
			seen = c.Tail
		}

		w := &Writer{store: s, lane: lane, tail: seen}
		next := seen
		next.Fence++
		next.CommitSeq = 0
		if change(&next); next.IsClosed {
			return nil, ErrClosed
		}

		next.Nonce = nonce
		err := w.writeTail(ctx, next, nil)
		if !errors.Is(err, ErrFenced) {
			return w, err
		}

		// A former holder has committed after tail was read. That holder no longer has the lease,
		// so it can commit only a few times more.
		if ctx.Err() != nil {
			return nil, err
		}

		seen = Tail{}
	}
}

// Tail returns tail as last committed by this Writer.
func (w *Writer) Tail() Tail { return w.tail }

// Commit writes the rows of a transaction and the changed tail in one transaction. ErrFenced means
// that tail has changed, usually because another holder has the lane; then this commit wrote
// nothing. After any other error the caller does not know whether the commit was done.
func (w *Writer) Commit(ctx context.Context, b *Transaction) error {
	next := w.tail
	next.CommitSeq += 1 + w.lostCommits
	b.updateTail(&next)
	ops, err := b.buildOps(next.Cursor)
	if err != nil {
		return err
	}

	for {
		err = w.writeTail(ctx, next, ops)
		i := indexOfGone(err, ops)
		if i < 0 {
			return err
		}

		w.store.reportDamaged(w.lane, ops[i].Key,
			errors.New("the row is gone from the list of dead messages"))
		ops = slices.Delete(ops, i, i+1)
		next.CommitSeq = w.tail.CommitSeq + 1 + w.lostCommits
	}
}

// indexOfGone returns the index of the operation because of which storage refused a commit, if the
// operation removes a row (x_) of the list of dead messages that is gone already. Such a row only
// lists a message, so its absence must not stop the lane. For any other error it returns -1.
func indexOfGone(err error, ops []storage.Op) int {
	row, isRefused := refusedRow(err)
	if !isRefused || !storage.Is(err, storage.NotFound) ||
		!strings.HasPrefix(row, rows.DeadPrefix) {
		return -1
	}
	return slices.IndexFunc(ops,
		func(op storage.Op) bool { return op.Key == row && op.Kind == storage.Delete })
}

// writeTail sends one transaction until its result is known. After an uncertain answer it reads
// tail:
//
//   - If tail has the nonce and the commit number of next, the transaction was done.
//   - If tail is unchanged, writeTail sends the same transaction again.
//   - Otherwise it returns ErrFenced.
func (w *Writer) writeTail(ctx context.Context, next Tail, ops []storage.Op) error {
	all := append([]storage.Op{{Kind: storage.Replace, Key: rows.TailKey, IfMatch: w.tail.ETag,
		Values: next.tailValues()}}, ops...)
	for {
		etags, err := w.store.Table.Transact(ctx, w.store.Partition(w.lane), all)
		if err == nil {
			next.ETag = etags[0]
			w.tail, w.lostCommits = next, 0
			return nil
		}

		if !rows.IsUncertain(err) {
			w.lostCommits++
			return refusalOf(err, all)
		}

		done, err := w.findOutcome(ctx, next)
		if done || err != nil {
			return err
		}

		clock.Sleep(ctx, rows.ResendPause)
	}
}

// rowRefusal is the error of a transaction that storage refused because of one row.
type rowRefusal struct {
	row string
	err error
}

func (r *rowRefusal) Error() string { return r.err.Error() }
func (r *rowRefusal) Unwrap() error { return r.err }

// refusalOf adds the key of the refused row to err, if storage names a row other than tail.
func refusalOf(err error, ops []storage.Op) error {
	switch i := storage.FailedAt(err); {
	case i <= 0 || i >= len(ops):
		return err
	default:
		return &rowRefusal{ops[i].Key, err}
	}
}

// refusedRow returns the key of the row because of which storage refused a commit; false = err
// names no row. A refused commit wrote nothing. If a late copy of the refused commit succeeds after
// all, the next commit returns ErrFenced.
func refusedRow(err error) (string, bool) {
	var r *rowRefusal
	if !errors.As(err, &r) {
		return "", false
	}
	return r.row, true
}

// findOutcome reads tail until it knows whether next was written, or until ctx ends. If another
// change of tail was written, findOutcome returns ErrFenced.
func (w *Writer) findOutcome(ctx context.Context, next Tail) (done bool, err error) {
	for {
		c, err := w.store.ReadControl(ctx, w.lane)
		switch {
		case err == nil && c.Tail.Nonce == next.Nonce && c.Tail.CommitSeq == next.CommitSeq:
			next.ETag = c.Tail.ETag
			w.tail, w.lostCommits = next, 0
			return true, nil

		case err == nil && c.Tail.ETag == w.tail.ETag:
			return false, nil
		case err == nil:
			return false, ErrFenced
		case ctx.Err() != nil:
			return false, err
		}

		clock.Sleep(ctx, rows.ResendPause)
	}
}
