package lane

import (
	"encoding/json"
	"fmt"
	"time"

	"weir/internal/clock"
	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// Entry is a message of the log.
type Entry struct {
	Message  weir.Message // Body is nil until LoadBody, except in an entry of NewEntry
	Stage    weir.Stage
	Attempts []weir.Attempt // if there are more than twenty: the first ten and the last ten
	// number of attempts; some attempts do not count, see weir.Outcome
	AttemptCount   int
	IsHeld         bool // the message is in a block
	keyHash        string
	status         weir.Status
	attemptsBefore int // AttemptCount at the last replay; 0 = never replayed
	// position in its key's order, as Release has set it; empty = the position in the log
	releasedPos string
	storedBody
}

// NewEntry returns the entry of a message that was just appended, with its body. The entry has no
// ETag, because no row was read.
func (s *Store) NewEntry(m weir.Message) *Entry {
	stage := stageOf(&m)
	return &Entry{Message: m, Stage: stage, keyHash: s.KeyHash(m.Key),
		status: weir.Status{Message: m, Stage: stage}}
}

// stageOf returns the stage of a newly appended message.
func stageOf(m *weir.Message) weir.Stage {
	if m.DueAt.IsZero() {
		return weir.Queued
	}
	return weir.Scheduled
}

// Status returns the message's status. The status of an entry from ScanLog has only the values of
// headerColumns.
func (e *Entry) Status() weir.Status { return e.status }

// KeyHash returns the hash of the ordering key, folded. Messages with the same hash have one order.
// Row keys contain this hash.
func (e *Entry) KeyHash() string { return e.keyHash }

// Seq returns the message's sequence number.
func (e *Entry) Seq() int64 { return e.Message.ID.Seq }

// BlockID returns the id of the block that the message gets if it has to wait. With onFailure:
// skip, this block is for the message alone; otherwise it is the block of the key. A message with
// onFailure: skip can also be held in the block of its key.
func (e *Entry) BlockID() string { return blockIDOf(&e.Message, e.keyHash) }

// BlockIDOf is Entry.BlockID for a message without an entry. The message must have its sequence
// number.
func (s *Store) BlockIDOf(m *weir.Message) string { return blockIDOf(m, s.KeyHash(m.Key)) }

// storedBody is a message's row, from which the body to send can be read.
type storedBody struct {
	row          map[string]any // nil = the body is in Message, or isHeaderOnly is set
	isHeaderOnly bool           // row is nil or lacks the body: LoadBody reads the row
	isEdited     bool           // the body to send is an edited one
}

// IsBodyRemote reports whether LoadBody has to read from storage.
func (e *Entry) IsBodyRemote() bool {
	return e.Message.Body == nil && (e.isHeaderOnly || e.bodyIn().blob.Of(e.row) != "")
}

// DropBody removes the body from memory; LoadBody reads it again.
func (e *Entry) DropBody() { e.Message.Body, e.row, e.isHeaderOnly = nil, nil, true }

// HasBody reports whether the body is in memory, compressed or not.
func (e *Entry) HasBody() bool { return e.Message.Body != nil || !e.IsBodyRemote() }

// bodyIn returns the columns of the body to send.
func (b *storedBody) bodyIn() bodyColumns {
	if b.isEdited {
		return editedBody
	}
	return acceptedBody
}

// IsBodyInBlob reports whether the body to send is in a blob. The entry must come from EntriesFrom
// or ReadMany, which read the names of blobs.
func (b *storedBody) IsBodyInBlob() bool { return b.bodyIn().blob.Of(b.row) != "" }

// EditedBlob returns the name of the edited body's blob; "" = there is none.
func (b *storedBody) EditedBlob() string { return editedBody.blob.Of(b.row) }

// WaitingSince returns the time from which on a waiting message can be sent: the latest of its
// acceptance, its due time and the last request to replay it.
func (e *Entry) WaitingSince() time.Time {
	return clock.Later(clock.Later(e.Message.AcceptedAt, e.Message.DueAt), e.status.ReplayAskedAt)
}

// IsReplayed reports whether the message was ever replayed.
func (e *Entry) IsReplayed() bool { return e.Message.Replays > 0 }

// entryFrom returns the entry of a message's row in the log (m_). It returns false if the row's key
// is damaged. If other columns are damaged, the entry lacks their values.
func (s *Store) entryFrom(lane int, r storage.Row) (*Entry, bool) {
	seq, isWhole := s.SeqOf(lane, rows.MessagePrefix, r)
	if !isWhole {
		return nil, false
	}

	v := r.Values
	m := weir.Message{
		ID:       weir.ID{Epoch: s.Epoch, Lane: lane, Seq: seq, Nonce: rows.Nonce.Of(v)},
		Origin:   originFrom(rows.Origin.Of(v)),
		Upstream: rows.Upstream.Of(v),
		Contract: s.Contracts.PresentName(rows.Contract.Of(v)), Key: rows.Key.Of(v),
		Version:   rows.Version.Of(v),
		Supersede: rows.Supersede.Of(v), Skip: rows.Skip.Of(v), ContentType: rows.ContentType.Of(v),
		TraceParent: rows.TraceParent.Of(v), TraceState: rows.TraceState.Of(v),
		Callback: rows.Callback.Of(v),
		DueAt:    rows.DueAt.Of(v), AcceptedAt: rows.AcceptedAt.Of(v), Size: int(rows.Size.Of(v)),
		Replays: int(rows.Replays.Of(v)), Batch: rows.Batch.Of(v),
		BatchPart: int(rows.BatchPart.Of(v)),
	}

	attempts, err := unpackAttempts(rows.Attempts.Of(v))
	if err != nil {
		s.reportDamaged(lane, r.Key, err)
		attempts = nil
	}

	edited := !rows.EditedAt.Of(v).IsZero()
	if edited {
		m.Version, m.ContentType = rows.EditedVersion.Of(v), rows.EditedType.Of(v)
		m.Size, m.Edition = int(rows.EditedSize.Of(v)), int(rows.Edition.Of(v))
	}

	if m.Shown, err = unpackShown(shownText(v)); err != nil {
		s.reportDamaged(lane, r.Key, err)
	}

	st := weir.Status{
		Message: m, Stage: weir.Stage(rows.Stage.Of(v)), Attempts: attempts,
		AttemptCount: int(rows.AttemptCount.Of(v)),
		LastError:    rows.LastError.Of(v), CMSStatus: int(rows.CMSStatus.Of(v)),
		NextAttemptAt: rows.NextAttemptAt.Of(v),
		FirstFailedAt: rows.FirstFailedAt.Of(v), RetryUntil: rows.RetryUntil.Of(v),
		FinishedAt: rows.FinishedAt.Of(v), SupersededBy: rows.SupersededBy.Of(v),
		Version:       string(r.ETag),
		ReplayAskedAt: rows.ReplayAskedAt.Of(v), ReplayForced: rows.ReplayForced.Of(v),
		ReplayRefused:  rows.ReplayRefused.Of(v),
		VersionWarning: rows.VersionWarning.Of(v), ErasedAt: rows.ErasedAt.Of(v),
		DiscardAskedAt: rows.DiscardAskedAt.Of(v), DiscardReason: rows.DiscardReason.Of(v),
		DiedAt:   rows.DiedAt.Of(v),
		EditedAt: rows.EditedAt.Of(v), EditNote: rows.EditNote.Of(v), Held: rows.IsHeld.Of(v),
	}

	return &Entry{Message: m, Stage: st.Stage, Attempts: attempts, AttemptCount: st.AttemptCount,
		IsHeld: rows.IsHeld.Of(v), releasedPos: rows.OrderPos.Of(v), keyHash: s.KeyHash(m.Key),
		status:         st,
		attemptsBefore: int(rows.AttemptsBeforeReplay.Of(v)),
		storedBody:     storedBody{row: v, isEdited: edited}}, true
}

// plainAttempts is the largest size, in bytes, of attempts that are stored as text. Most messages
// have one attempt, whose compression costs more than it saves.
const plainAttempts = 1 << 10

// packAttempts returns the value of rows.Attempts: text, or compressed bytes if the text is long.
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
			return nil, fmt.Errorf("attempts: %w", err)
		}
	}

	if len(data) == 0 {
		return nil, nil
	}

	if err := json.Unmarshal(data, &attempts); err != nil {
		return nil, fmt.Errorf("attempts: %w", err)
	}

	return attempts, nil
}

// packShown encodes the shown values of a message as JSON for a row. If there are no values, it
// returns "".
func packShown(values map[string]string) string {
	if len(values) == 0 {
		return ""
	}

	text, err := json.Marshal(values)
	if err != nil {
		panic(err) // impossible: a map of strings can always be encoded
	}

	return string(text)
}

func unpackShown(text string) (values map[string]string, err error) {
	if text == "" {
		return nil, nil
	}

	if err := json.Unmarshal([]byte(text), &values); err != nil {
		return nil, fmt.Errorf("shown values: %w", err)
	}
	return values, nil
}

// shownText returns the packed shown values of a message's row: those of the edited body if there
// is one.
func shownText(v map[string]any) string {
	if rows.EditedAt.Of(v).IsZero() {
		return rows.Shown.Of(v)
	}
	return rows.EditedShown.Of(v)
}
