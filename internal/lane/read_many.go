package lane

import (
	"cmp"
	"context"
	"slices"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// ListColumns are the columns that EntriesFrom needs. The columns of the body and of the attempts
// are not among them.
var ListColumns = append(slices.Clone(headerColumns),
	rows.Names(rows.FinishedAt, rows.NextAttemptAt, rows.SupersededBy,
		rows.Blob, rows.EditedBlob, rows.EditNote, rows.ReplayRefused, rows.IdempotencyRow,
		rows.MovedIdempotencyRow,
		rows.Shown, rows.EditedShown)...)

// maxPage is the largest number of rows that storage returns in one answer.
const maxPage = 1000

// EntriesFrom returns the entries of messages' rows (m_), in the order of the rows. The rows must
// be in the order of the log, and must have ListColumns. If a delivery can be in a packed row (d_),
// which has the deliveries of many messages, EntriesFrom reads the packed rows with one more query.
func (s *Store) EntriesFrom(ctx context.Context, lane int, found []storage.Row) ([]*Entry, error) {
	entries := make([]*Entry, 0, len(found))
	low, high := int64(0), int64(0)
	for _, r := range found {
		e, isWhole := s.entryFrom(lane, r)
		if !isWhole {
			continue
		}

		e.isHeaderOnly = true
		entries = append(entries, e)

		if e.Stage == weir.Queued && !e.IsHeld {
			if low == 0 {
				low = e.Seq()
			}
			high = e.Seq()
		}
	}

	if low == 0 {
		return entries, nil
	}

	packed, err := s.rowsOfLane(lane).readPackedRows(ctx, low, high)
	for _, e := range entries {
		if e.Stage == weir.Queued && !e.IsHeld {
			e.findInPacked(packed)
		}
	}

	return entries, err
}

// HasIdempotencyKey reports whether key is the idempotency key with which the message was posted.
// The entry must come from EntriesFrom or ReadMany.
func (e *Entry) HasIdempotencyKey(key string) bool {
	row := cmp.Or(rows.IdempotencyRow.Of(e.row), rows.MovedIdempotencyRow.Of(e.row))
	return row == idempotencyKeyRow(e.Message.Key, key)
}

// FindSubmission finds the message that was posted with an ordering key and an idempotency key, in
// any epoch. It returns the message's id in the epoch that has the message now; the nonce can be
// missing in the id. It returns the zero id if there is no such message.
func (ms Messages) FindSubmission(ctx context.Context, key,
	idempotencyKey string) (weir.ID, error) {
	lane := ms.store.LaneOf(key)
	row, err := ms.store.Table.Get(ctx, ms.store.Partition(lane),
		idempotencyKeyRow(key, idempotencyKey))
	if err == nil {
		return weir.ID{Epoch: ms.store.Epoch, Lane: lane, Seq: rows.Seq.Of(row.Values)}, nil
	}
	if !storage.Is(err, storage.NotFound) {
		return weir.ID{}, err
	}

	_, id, err := ms.store.readEarlierIdempotency(ctx, key, idempotencyKey)
	if err != nil || id.IsZero() {
		return weir.ID{}, err
	}

	e, err := ms.followCopies(ctx, id)
	if storage.Is(err, storage.NotFound) {
		return weir.ID{}, nil // retention has just removed the message
	}
	if err != nil {
		return weir.ID{}, err
	}

	return e.Message.ID, nil
}

func (e *Entry) findInPacked(found []packedRow) {
	for _, f := range found {
		f.fillEntry(e)
	}
}

// manyGap is the largest distance between two successive sequence numbers that ReadMany reads with
// the same query.
const manyGap = 32

// ReadMany reads messages without their bodies. seqs are the sequence numbers, the highest first.
// ReadMany returns the messages that still exist, in the order of seqs. looks is the number of
// queries for messages; queries for packed rows (d_) do not count.
func (s *Store) ReadMany(ctx context.Context, lane int, seqs []int64) (entries []*Entry, looks int,
	err error) {
	var groups [][]int64
	for _, seq := range seqs {
		if n := len(groups); n > 0 && groups[n-1][len(groups[n-1])-1]-seq <= manyGap &&
			groups[n-1][0]-seq < maxPage {
			groups[n-1] = append(groups[n-1], seq)
			continue
		}
		groups = append(groups, []int64{seq})
	}

	found := make([][]*Entry, len(groups))
	err = ForEach(len(groups), func(i int) (err error) {
		found[i], err = s.readGroup(ctx, lane, groups[i])
		return err
	})

	return slices.Concat(found...), len(groups), err
}

// readGroup reads messages with neighbouring sequence numbers by one query.
func (s *Store) readGroup(ctx context.Context, lane int, seqs []int64) ([]*Entry, error) {
	found, _, err := rows.ReadPages(ctx, s.Table,
		rows.Messages(s.Partition(lane), seqs[len(seqs)-1], seqs[0]+1, ListColumns), maxPage)
	if err != nil {
		return nil, err
	}

	wanted := slices.DeleteFunc(found, func(r storage.Row) bool {
		seq, isWhole := s.SeqOf(lane, rows.MessagePrefix, r)
		return !isWhole || !slices.Contains(seqs, seq)
	})

	entries, err := s.EntriesFrom(ctx, lane, wanted)
	slices.Reverse(entries)

	return entries, err
}

// FindAcceptedAfter returns seq, a sequence number: all messages of the log from seq on were
// accepted after the time in the argument "at". Some hundreds of messages directly before seq can
// also have been accepted after that time. Copies from an earlier epoch are at the beginning of the
// log, and count as accepted before that time. next is the log's next sequence number. looks is the
// number of queries.
func (s *Store) FindAcceptedAfter(ctx context.Context, lane int, next int64,
	at time.Time) (seq int64, looks int, err error) {
	low, high := int64(1), next
	for high-low > maxPage/2 {
		mid := low + (high-low)/2
		page, err := s.Table.Range(ctx,
			storage.Query{Partition: s.Partition(lane), From: rows.MessageKey(mid),
				To: rows.MessageKey(high), Limit: 1,
				Columns: rows.Names(rows.AcceptedAt, rows.Origin)})
		if err != nil {
			return 0, looks, err
		}

		looks++

		if len(page.Rows) == 0 {
			high = mid
			continue
		}

		v := page.Rows[0].Values
		if rows.Origin.Of(v) == "" && rows.AcceptedAt.Of(v).After(at) {
			high = mid
			continue
		}

		after, isWhole := s.SeqOf(lane, rows.MessagePrefix, page.Rows[0])
		if !isWhole {
			after = mid // the first message behind mid is not known
		}

		low = after + 1
	}

	return high, looks, nil
}
