package lane

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

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
	Rand   func() float64 // random number from 0 to 1, called concurrently; nil = math/rand

	SettleTime time.Duration // of an unanswered request in the CMS; 0 = the longest that settings allow

	Notifier Notifier // nil = events go to callbacks only

	EarlierEpochs []Epoch // they may still have messages; oldest first; set by Open
	recordOrigin  string  // Origin of the adopted record of lanes
}

// drawPause returns a random duration from 0 to span.
func (s *Store) drawPause(span time.Duration) time.Duration {
	draw := s.Rand
	if draw == nil {
		draw = rand.Float64
	}
	return time.Duration(draw() * float64(span))
}

func (s *Store) partitionOf(lane int) string { return rows.Partition(s.Epoch, lane) }

// Entry is a message of the log.
type Entry struct {
	Message        weir.Message // Body is nil until LoadBody
	Stage          weir.Stage
	Attempts       []weir.Attempt // the first and the last ten
	AttemptCount   int            // attempts that count
	IsHeld         bool           // it has a row among the held messages
	keyHash        string
	status         weir.Status
	row            map[string]any // nil = the body is in Message
	isHeaderOnly   bool           // row lacks the body
	attemptsBefore int            // attempts before the last replay
	isEdited       bool           // the body to send is not the accepted one
	replayAskedAt  time.Time      // a requested replay; zero = none
	releasedPos    string         // its position among the held messages, if that is not its position in the log
}

// NewEntry returns the entry of a message that was just filed, with its body, as ReadLog would return it.
func NewEntry(m weir.Message) *Entry {
	stage := stageOf(&m)
	return &Entry{Message: m, Stage: stage, keyHash: KeyHash(m.Key), status: weir.Status{Message: m, Stage: stage}}
}

// stageOf returns the stage in which a message is filed.
func stageOf(m *weir.Message) weir.Stage {
	if m.DueAt.IsZero() {
		return weir.Queued
	}
	return weir.Scheduled
}

// Status returns the message's status. An entry of ScanLog lacks the attempts.
func (e *Entry) Status() weir.Status { return e.status }

// KeyHash returns the hash by which row keys name an ordering key.
func (e *Entry) KeyHash() string { return e.keyHash }

// Seq returns the message's sequence number.
func (e *Entry) Seq() int64 { return e.Message.ID.Seq }

// BlockID returns the block that holds this message if it has to wait for a retry.
func (e *Entry) BlockID() string { return BlockIDOf(&e.Message) }

// BlockIDOf is Entry.BlockID for a message that was filed.
func BlockIDOf(m *weir.Message) string { return blockIDOf(m.Key, m.ID.Seq, m.Skip) }

// IsBodyRemote reports whether LoadBody has to read from storage.
func (e *Entry) IsBodyRemote() bool {
	return e.Message.Body == nil && (e.isHeaderOnly || e.bodyIn().blob.Of(e.row) != "")
}

// DropBody removes the body from memory; LoadBody reads it again.
func (e *Entry) DropBody() { e.Message.Body, e.row, e.isHeaderOnly = nil, nil, true }

// HasBody reports whether the body is in memory, compressed or not.
func (e *Entry) HasBody() bool { return e.Message.Body != nil || !e.IsBodyRemote() }

// LoadBody fills in the body. It reads a blob for a large body, and the row for an entry of ScanLog.
func (s *Store) LoadBody(ctx context.Context, e *Entry) error {
	if e.Message.Body != nil {
		return nil
	}
	if e.isHeaderOnly {
		r, err := s.Table.Get(ctx, s.partitionOf(e.Message.ID.Lane), rows.MessageKey(e.Seq()))
		if err != nil {
			return err
		}
		e.row, e.isHeaderOnly = r.Values, false
	}
	body, err := s.loadBody(ctx, e.row, e.bodyIn())
	if err != nil {
		return err
	}
	e.Message.Body, e.row = body, nil
	return nil
}

// entryFrom returns the entry of an m_ row.
func (s *Store) entryFrom(lane int, r storage.Row) (*Entry, error) {
	seq, err := rows.SeqOfMessage(r.Key)
	if err != nil {
		return nil, fmt.Errorf("lane: row %q: %w", r.Key, err)
	}
	v := r.Values
	m := weir.Message{
		ID:       weir.ID{Epoch: s.Epoch, Lane: lane, Seq: seq, Nonce: rows.Nonce.Of(v)},
		Origin:   originFrom(rows.Origin.Of(v)),
		Contract: rows.Contract.Of(v), Key: rows.Key.Of(v), Version: rows.Version.Of(v),
		Supersede: rows.Supersede.Of(v), Skip: rows.Skip.Of(v), ContentType: rows.ContentType.Of(v),
		TraceParent: rows.TraceParent.Of(v), TraceState: rows.TraceState.Of(v), Callback: rows.Callback.Of(v),
		DueAt: rows.DueAt.Of(v), AcceptedAt: rows.AcceptedAt.Of(v), Size: int(rows.Size.Of(v)),
	}
	attempts, err := unpackAttempts(rows.Attempts.Of(v))
	if err != nil {
		return nil, fmt.Errorf("lane: row %q: %w", r.Key, err)
	}
	edited := !rows.EditedAt.Of(v).IsZero()
	if edited {
		m.Version, m.ContentType = rows.EditedVersion.Of(v), rows.EditedType.Of(v)
		m.Size, m.Edition = int(rows.EditedSize.Of(v)), int(rows.Edition.Of(v))
	}
	st := weir.Status{
		Message: m, Stage: weir.Stage(rows.Stage.Of(v)), Attempts: attempts, AttemptCount: int(rows.AttemptCount.Of(v)),
		LastError: rows.LastError.Of(v), CMSStatus: int(rows.CMSStatus.Of(v)), NextAttemptAt: rows.NextAttemptAt.Of(v),
		FinishedAt: rows.FinishedAt.Of(v), SupersededBy: rows.SupersededBy.Of(v), Version: string(r.ETag),
		Replays: int(rows.Replays.Of(v)), ReplayAskedAt: rows.ReplayAskedAt.Of(v),
		ReplayForced: rows.ReplayForced.Of(v), ReplayRefused: rows.ReplayRefused.Of(v),
		EditedAt: rows.EditedAt.Of(v), EditNote: rows.EditNote.Of(v), Held: rows.IsHeld.Of(v),
	}
	return &Entry{Message: m, Stage: st.Stage, Attempts: attempts, AttemptCount: st.AttemptCount,
		IsHeld: rows.IsHeld.Of(v), releasedPos: rows.OrderPos.Of(v), keyHash: KeyHash(m.Key), status: st, row: v,
		replayAskedAt: rows.ReplayAskedAt.Of(v), attemptsBefore: int(rows.AttemptsBeforeReplay.Of(v)),
		isEdited: edited}, nil
}

// Status returns the status of a message, whichever epoch has it now. It returns NotFound for an id with an
// unknown epoch or lane, and for one with a wrong nonce.
func (s *Store) Status(ctx context.Context, id weir.ID) (weir.Status, error) {
	e, err := s.findMessage(ctx, id)
	if err != nil {
		return weir.Status{}, err
	}
	return e.status, nil
}

// findMessage reads a message by its id, in the epoch that has it now. Its errors are for callers of the API.
func (s *Store) findMessage(ctx context.Context, id weir.ID) (*Entry, error) {
	e, err := s.followCopies(ctx, id)
	if storage.Is(err, storage.NotFound) {
		return nil, &weir.Error{Kind: weir.NotFound, Op: "status",
			Message: "there is no message with this id, or it was removed after its retention"}
	}
	if err != nil {
		return nil, errUnavailable("status", err)
	}
	return e, nil
}

// ReadLog reads at most limit messages from seq on, final ones too. It stops before a gap: then the answer was
// no snapshot, and the next read has the rest.
func (s *Store) ReadLog(ctx context.Context, lane int, seq int64, limit int) ([]*Entry, error) {
	return s.readLog(ctx, lane, seq, limit, nil)
}

// headerColumns are a message's columns except for body and attempts.
var headerColumns = rows.Names(rows.Nonce, rows.Origin, rows.Contract, rows.Key, rows.Version, rows.Supersede,
	rows.Skip, rows.ContentType, rows.TraceParent, rows.TraceState, rows.Callback, rows.DueAt, rows.AcceptedAt,
	rows.Size, rows.Stage, rows.AttemptCount, rows.LastError, rows.CMSStatus, rows.IsHeld, rows.OrderPos,
	rows.AttemptsBeforeReplay, rows.Replays, rows.EditedAt, rows.EditedVersion, rows.EditedType,
	rows.EditedSize, rows.Edition, rows.ReplayAskedAt)

// ScanLog is ReadLog without bodies. It is for reading far ahead.
func (s *Store) ScanLog(ctx context.Context, lane int, seq int64, limit int) ([]*Entry, error) {
	entries, err := s.readLog(ctx, lane, seq, limit, headerColumns)
	for _, e := range entries {
		e.isHeaderOnly = true
	}
	return entries, err
}

func (s *Store) readLog(ctx context.Context, lane int, seq int64, limit int, columns []string) ([]*Entry, error) {
	found, err := rows.ReadFirst(ctx, s.Table,
		storage.Query{Partition: s.partitionOf(lane), From: rows.MessageKey(seq),
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

// ReadMessage reads one message.
func (s *Store) ReadMessage(ctx context.Context, lane int, seq int64) (*Entry, error) {
	r, err := s.Table.Get(ctx, s.partitionOf(lane), rows.MessageKey(seq))
	if err != nil {
		return nil, err
	}
	return s.entryFrom(lane, r)
}

// plainAttempts is the size up to which attempts are stored as text. Most messages have one attempt, and
// compressing it costs more than it saves.
const plainAttempts = 1 << 10

// packAttempts returns the value of the column: text, or compressed bytes if the text is long.
func packAttempts(a []weir.Attempt) (any, error) {
	data, err := json.Marshal(a)
	if err != nil || len(data) <= plainAttempts {
		return string(data), err
	}
	return compressBytes(data)
}

func unpackAttempts(packed any) (attempts []weir.Attempt, err error) {
	var data []byte
	switch packed := packed.(type) {
	case string:
		data = []byte(packed)
	case []byte:
		if data, err = decompressBytes(packed); err != nil {
			return nil, err
		}
	}
	if len(data) == 0 {
		return nil, nil
	}
	return attempts, json.Unmarshal(data, &attempts)
}

// errUnavailable returns the error that the API answers after a storage error.
func errUnavailable(op string, err error) error {
	switch storage.KindOf(err) {
	case storage.Throttled, storage.Unavailable, storage.Ambiguous:
		return &weir.Error{Kind: weir.Unavailable, Op: op,
			Message: "storage cannot be reached at the moment; try again", RetryAfter: 5 * time.Second, Err: err}
	}
	return fmt.Errorf("%s: %w", op, err)
}
