package lane

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"weir/internal/lane/epochs"
	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// Store reads and writes the lanes of one epoch. Its methods may be called concurrently.
type Store struct {
	Table  storage.Table
	Bodies bodyStore
	Epoch  int
	Lanes  int
	Now    func() time.Time
	Rand   func() float64 // returns a random number from 0 to 1, and is called concurrently; nil = math/rand

	SettleTime time.Duration // the setting "delivery.settle"; 0 = the longest time that settings allow

	Notifier Notifier // nil = events go to callbacks only

	EarlierEpochs []epochs.Epoch // epochs that may still have messages; oldest first; set by UseEpochRecord
	recordOrigin  string         // the field Origin of the adopted record of epochs
}

// A Store has four groups of methods as types of their own: Requests, Pauses, Messages and DeliveryState.

// Requests makes the changes of messages that callers of the API ask for. Most changes are requests to the holder.
type Requests struct{ store *Store }

// Requests returns the changes that callers of the API ask for.
func (s *Store) Requests() Requests { return Requests{s} }

// Pauses begins, ends and reads the pauses of operators.
type Pauses struct{ store *Store }

// Pauses returns the pauses of operators.
func (s *Store) Pauses() Pauses { return Pauses{s} }

// Messages reads messages for callers of the API. It finds a message in whichever epoch has it now.
type Messages struct{ store *Store }

// Messages returns the reads for callers of the API.
func (s *Store) Messages() Messages { return Messages{s} }

// DeliveryState reads the state of delivery that holders keep beside the log: blocks and held messages, due times,
// keys with dead messages, last deliveries, newest versions, remembered ids, and the requests to the holder.
type DeliveryState struct{ store *Store }

// DeliveryState returns the reads of the state of delivery.
func (s *Store) DeliveryState() DeliveryState { return DeliveryState{s} }

// drawPause returns a random duration from 0 to span.
func (s *Store) drawPause(span time.Duration) time.Duration {
	draw := s.Rand
	if draw == nil {
		draw = rand.Float64
	}
	return time.Duration(draw() * float64(span))
}

// Partition returns the table partition with the rows of a lane.
func (s *Store) Partition(lane int) string { return rows.Partition(s.Epoch, lane) }

// LoadBody fills in the body to send. It reads the message's row if the entry lacks the row's body (after ScanLog,
// ReadMany, EntriesFrom or DropBody), and the blob of a large body.
func (s *Store) LoadBody(ctx context.Context, e *Entry) error {
	if e.Message.Body != nil {
		return nil
	}
	if e.isHeaderOnly {
		r, err := s.Table.Get(ctx, s.Partition(e.Message.ID.Lane), rows.MessageKey(e.Seq()))
		if err != nil {
			return err
		}
		e.row, e.isHeaderOnly = r.Values, false
	}
	body, err := loadBody(ctx, s.Bodies, e.row, e.bodyIn())
	if err != nil {
		return err
	}
	e.Message.Body, e.row = body, nil
	return nil
}

// ReadLog reads at most limit messages from seq on, final ones too. A delivery that only a d_ row has is not filled
// in. ReadLog stops before a gap. From the cursor on, a gap means that the answer was no snapshot, and the next read
// has the rest.
func (s *Store) ReadLog(ctx context.Context, lane int, seq int64, limit int) ([]*Entry, error) {
	return s.readLog(ctx, lane, seq, limit, nil)
}

// headerColumns are the columns that ScanLog reads. Body and attempts are not among them.
var headerColumns = rows.Names(rows.Nonce, rows.Origin, rows.Contract, rows.Key, rows.Version, rows.Supersede,
	rows.Skip, rows.ContentType, rows.TraceParent, rows.TraceState, rows.Callback, rows.DueAt, rows.AcceptedAt,
	rows.Size, rows.Stage, rows.AttemptCount, rows.LastError, rows.CMSStatus, rows.IsHeld, rows.OrderPos,
	rows.AttemptsBeforeReplay, rows.Replays, rows.EditedAt, rows.EditedVersion, rows.EditedType,
	rows.EditedSize, rows.Edition, rows.ReplayAskedAt, rows.ErasedAt, rows.DiscardedAt, rows.DiscardAskedAt,
	rows.DiscardReason, rows.DiedAt, rows.Batch, rows.BatchPart, rows.Upstream)

// ScanLog is ReadLog with headerColumns only. It is for reading far ahead.
func (s *Store) ScanLog(ctx context.Context, lane int, seq int64, limit int) ([]*Entry, error) {
	entries, err := s.readLog(ctx, lane, seq, limit, headerColumns)
	for _, e := range entries {
		e.isHeaderOnly = true
	}
	return entries, err
}

func (s *Store) readLog(ctx context.Context, lane int, seq int64, limit int, columns []string) ([]*Entry, error) {
	found, err := rows.ReadFirst(ctx, s.Table,
		storage.Query{Partition: s.Partition(lane), From: rows.MessageKey(seq),
			To: rows.PrefixEnd(rows.MessagePrefix), Columns: columns}, limit)
	if err != nil {
		return nil, err
	}
	var entries []*Entry
	for _, r := range found {
		e, err := s.entryFrom(lane, r)
		if err != nil {
			return nil, err
		}
		if e.Seq() != seq+int64(len(entries)) {
			break
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// ReadMessage reads one message from its own row. A delivery that only a d_ row has is not filled in.
func (s *Store) ReadMessage(ctx context.Context, lane int, seq int64) (*Entry, error) {
	r, err := s.Table.Get(ctx, s.Partition(lane), rows.MessageKey(seq))
	if err != nil {
		return nil, err
	}
	return s.entryFrom(lane, r)
}

// APIError returns the error for the API's answer after a storage error: Unavailable if storage may answer later, and
// otherwise the error itself with op.
func APIError(op string, err error) error {
	switch storage.KindOf(err) {
	case storage.Throttled, storage.Unavailable, storage.Ambiguous:
		return &weir.Error{Kind: weir.Unavailable, Op: op,
			Message: "storage cannot be reached at the moment; try again", RetryAfter: 5 * time.Second, Err: err}
	}
	return fmt.Errorf("%s: %w", op, err)
}
