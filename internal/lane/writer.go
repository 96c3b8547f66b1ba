package lane

import (
	"context"
	"errors"

	"weir/internal/clock"
	"weir/internal/lane/rows"
	"weir/internal/storage"
)

// ErrFenced means that another holder has taken the lane: this process cannot commit any more.
var ErrFenced = errors.New("fenced: another holder has the lane")

// Writer commits to a lane as its holder. It is for one goroutine at a time.
type Writer struct {
	store *Store
	lane  int
	tail  Tail
	// lostCommits is the number of commits that were refused since the last successful commit. A copy of a refused
	// commit may still arrive and succeed. So the next commit skips the numbers of the refused commits: it is not
	// taken for such a copy.
	lostCommits int64
}

// RaiseFence raises the fence for a new holder, which has the lane's lease: it writes tail under nonce. From
// then on storage refuses every commit of an earlier holder. seen is tail as last read; it may be out of date.
// The zero Tail means that tail was not read. change adapts the stored tail, for example to count a crash. If storage
// does not answer the write, RaiseFence tries until ctx, the lease's context, ends. ErrClosed: tail is closed after
// the change, so no process may hold the lane, and nothing was written.
func (s *Store) RaiseFence(ctx context.Context, lane int, nonce string, seen Tail,
	change func(*Tail)) (*Writer, error) {
	for {
		if seen.ETag == "" { // as a condition, "" would match any tail
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
		// A former holder has committed between our read and our write. The lease is ours, so the former holder
		// can do so only a few times.
		if ctx.Err() != nil {
			return nil, err
		}
		seen = Tail{}
	}
}

// Tail returns tail as last committed.
func (w *Writer) Tail() Tail { return w.tail }

// Commit writes the rows of a batch and the changed tail in one transaction. ErrFenced: tail has changed, and this
// commit was not done. As a rule another holder has the lane then. After any other error the caller does not know
// whether the commit was done.
func (w *Writer) Commit(ctx context.Context, b *Batch) error {
	next := w.tail
	next.CommitSeq += 1 + w.lostCommits
	b.updateTail(&next)
	ops, err := b.buildOps(next.Cursor)
	if err != nil {
		return err
	}
	saveSums(ops, next.Counts)
	return w.writeTail(ctx, next, ops)
}

// writeTail sends one transaction until its result is known. If tail has our nonce and this commit's number, the
// transaction was done. If tail is unchanged, the transaction is sent again unchanged. Otherwise the result is
// ErrFenced.
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

// rowRefusal is the error of a transaction that was refused because of one row.
type rowRefusal struct {
	row string
	err error
}

func (r *rowRefusal) Error() string { return r.err.Error() }
func (r *rowRefusal) Unwrap() error { return r.err }

// refusalOf adds the key of the refused row to the error, if storage names that row.
func refusalOf(err error, ops []storage.Op) error {
	switch i := storage.FailedAt(err); {
	case i <= 0 || i >= len(ops):
		return err
	default:
		return &rowRefusal{ops[i].Key, err}
	}
}

// refusedRow returns the key of a row: a commit was refused because of that row, and wrote nothing. If a late copy of
// the commit still arrives and is done, the next commit returns ErrFenced.
func refusedRow(err error) (string, bool) {
	var r *rowRefusal
	if !errors.As(err, &r) {
		return "", false
	}
	return r.row, true
}

// findOutcome reads tail until it is known whether next was written, or ctx ends.
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
