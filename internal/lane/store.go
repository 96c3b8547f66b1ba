package lane

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"weir/internal/fold"
	"weir/internal/lane/epochs"
	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// Store reads and writes the lanes of one epoch. Its methods are safe for concurrent use.
type Store struct {
	Table  storage.Table
	Bodies bodyStore
	Epoch  int
	Lanes  int
	Fold   fold.Rules // the differences between keys that share a lane and an order
	Now    func() time.Time
	// returns a random number in [0, 1); must be safe for concurrent use; nil = math/rand
	Rand func() float64

	// the setting "delivery.settle"; 0 = the longest settle time that the settings allow
	SettleTime time.Duration

	Notifier Notifier // nil = events go to callbacks only

	Contracts *Contracts // the contracts in the settings; nil = every name is that of a contract

	Damages *Damages // gets the damaged rows that the store reads; nil = they are not reported

	// epochs whose lanes can still have messages; oldest first; set by UseEpochRecord
	EarlierEpochs []epochs.Epoch
	recordOrigin  string // the field Origin of the record that UseEpochRecord adopted
}

// ForEpoch returns a store for the lanes of an epoch. The returned store does not look into earlier
// epochs.
func (s *Store) ForEpoch(e epochs.Epoch) *Store {
	other := *s
	other.Epoch, other.Lanes, other.Fold, other.EarlierEpochs = e.Number, e.Lanes, e.Fold, nil
	return &other
}

// Store has many methods, so four groups of them belong to types of their own: Requests, Pauses,
// Messages and DeliveryState.

// Requests makes the changes of messages that callers of the API ask for. For most changes it
// writes a request to the holder.
type Requests struct{ store *Store }

// Requests returns the methods that change messages for callers of the API.
func (s *Store) Requests() Requests { return Requests{s} }

// Pauses begins, ends and reads the pauses that operators ask for.
type Pauses struct{ store *Store }

// Pauses returns the methods for the pauses of operators.
func (s *Store) Pauses() Pauses { return Pauses{s} }

// Messages reads messages for callers of the API. It finds a message in any epoch that is still
// stored.
type Messages struct{ store *Store }

// Messages returns the methods that read messages for callers of the API.
func (s *Store) Messages() Messages { return Messages{s} }

// DeliveryState reads the state that holders store in rows of their own: blocks and held messages,
// due times, keys with dead messages, last deliveries, newest versions and remembered ids. It also
// reads the requests to the holder.
type DeliveryState struct{ store *Store }

// DeliveryState returns the methods that read the state of delivery.
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

// LoadBody sets the entry's body to the body that is sent. If the entry already has a body,
// LoadBody does nothing. If the entry lacks the columns with the body, for example after ScanLog,
// LoadBody reads the message's row again. It reads a large body from a blob.
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

// ReadLog reads at most limit messages from the sequence number seq on, including final messages.
// It reads only each message's own row, so the result does not show a delivery that is only in a
// packed row. ReadLog stops at the first sequence number whose row is missing in storage's answer.
// From the cursor on, every message has its own row, but the answer can lack a row that was
// inserted during the read. The next call finds that row.
func (s *Store) ReadLog(ctx context.Context, lane int, seq int64, limit int) ([]*Entry, error) {
	return s.readLog(ctx, lane, seq, limit, nil)
}

// headerColumns are the columns that ScanLog reads. The columns with the body and the attempts are
// not among them.
var headerColumns = rows.Names(rows.Nonce, rows.Origin, rows.Contract, rows.Key, rows.Version,
	rows.Supersede,
	rows.Skip, rows.ContentType, rows.TraceParent, rows.TraceState, rows.Callback, rows.DueAt,
	rows.AcceptedAt,
	rows.Size, rows.Stage, rows.AttemptCount, rows.LastError, rows.CMSStatus, rows.IsHeld,
	rows.OrderPos,
	rows.AttemptsBeforeReplay, rows.Replays, rows.EditedAt, rows.EditedVersion, rows.EditedType,
	rows.EditedSize, rows.Edition, rows.ReplayAskedAt, rows.ErasedAt, rows.DiscardAskedAt,
	rows.DiscardReason, rows.DiedAt, rows.Batch, rows.BatchPart, rows.Upstream)

// ScanLog reads the same messages as ReadLog, but only their headerColumns. Use it to read many
// messages ahead.
func (s *Store) ScanLog(ctx context.Context, lane int, seq int64, limit int) ([]*Entry, error) {
	entries, err := s.readLog(ctx, lane, seq, limit, headerColumns)
	for _, e := range entries {
		e.isHeaderOnly = true
	}
	return entries, err
}

func (s *Store) readLog(ctx context.Context, lane int, seq int64, limit int,
	columns []string) ([]*Entry, error) {
	q := storage.Query{Partition: s.Partition(lane), From: rows.MessageKey(seq),
		To: rows.PrefixEnd(rows.MessagePrefix), Columns: columns}
	var entries []*Entry
	for {
		wanted := limit - len(entries)
		found, err := rows.ReadFirst(ctx, s.Table, q, wanted)
		if err != nil {
			return nil, err
		}

		for _, r := range found {
			q.After = r.Key
			e, isWhole := s.entryFrom(lane, r)
			if !isWhole {
				continue
			}
			if e.Seq() != seq+int64(len(entries)) {
				return entries, nil
			}

			entries = append(entries, e)
		}

		if len(found) < wanted || len(entries) == limit {
			return entries, nil
		}
	}
}

// ReadMessage reads one message from its own row. The result does not show a delivery that is only
// in a packed row.
func (s *Store) ReadMessage(ctx context.Context, lane int, seq int64) (*Entry, error) {
	r, err := s.Table.Get(ctx, s.Partition(lane), rows.MessageKey(seq))
	if err != nil {
		return nil, err
	}
	e, _ := s.entryFrom(lane, r) // the key is not damaged
	return e, nil
}

// APIError turns a storage error into the error that the API answers with. If a repeated call can
// succeed, the result has the kind Unavailable. Otherwise the result wraps err, with op in the
// text.
func APIError(op string, err error) error {
	switch storage.KindOf(err) {
	case storage.Throttled, storage.Unavailable, storage.Ambiguous:
		return &weir.Error{Kind: weir.Unavailable, Op: op,
			Message:    "storage cannot be reached at the moment; try again",
			RetryAfter: 5 * time.Second, Err: err}
	}
	return fmt.Errorf("%s: %w", op, err)
}
