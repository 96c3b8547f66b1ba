package lane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"weir/internal/lane/outbox"
	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// A row is damaged if its key, or a column that Weir packs, cannot be read. Weir writes no such
// row: a person or a tool has changed it, or storage has damaged it. The rows of other messages are
// whole, so a damaged row must not stop its lane. All readers treat it alike:
//
//   - They pass over a row whose key cannot be read. It stays in storage.
//   - They read a message without its attempts or shown values if these are damaged: the message
//     can still be sent.
//   - A packed row (d_) whose content is damaged counts as the delivery of each message of its range
//     that is below the cursor, and that is neither final nor held by its own row: only a packed row
//     can have the delivery of such a message.
//
// Each damaged row is reported once for each process, and FindDamaged finds all of them.

// DamagedRow names a damaged row of a lane.
type DamagedRow struct {
	Partition, Key string
	Err            error // which column, and why it cannot be read
}

// Damages reports the damaged rows that the stores of a process have read: each row once. It is
// safe for concurrent use, and nil reports nothing.
type Damages struct {
	Log *slog.Logger
	// OnFound, if set, is called once for each row. It must return at once.
	OnFound func()

	mu    sync.Mutex
	known map[string]bool
}

// maxKnownDamages bounds the memory of Damages. Further damaged rows are not reported.
const maxKnownDamages = 1000

// Report reports a damaged row, unless it was reported before.
func (d *Damages) Report(found DamagedRow) {
	if d == nil || !d.addKnown(found.Partition+" "+found.Key) {
		return
	}

	if d.OnFound != nil {
		d.OnFound()
	}

	if d.Log != nil {
		d.Log.Error("lane: damaged row passed over", "lane", found.Partition, "key", found.Key,
			"err", found.Err)
	}
}

func (d *Damages) addKnown(name string) (isNew bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known[name] || len(d.known) >= maxKnownDamages {
		return false
	}

	if d.known == nil {
		d.known = map[string]bool{}
	}

	d.known[name] = true

	return true
}

// reportDamaged reports a row of a lane that cannot be read because of err.
func (s *Store) reportDamaged(lane int, key string, err error) {
	s.Damages.Report(DamagedRow{Partition: s.Partition(lane), Key: key, Err: err})
}

// damageColumns are the columns that damageScan reads.
var damageColumns = rows.Names(rows.Attempts, rows.Shown, rows.EditedShown, rows.EditedAt,
	rows.FirstSeq, rows.PackedMessages, rows.IsHeld, rows.Seq)

// FindDamaged returns the damaged rows of a lane, and the rows of keys' queues that contradict each
// other.
func (s *Store) FindDamaged(ctx context.Context, lane int) ([]DamagedRow, error) {
	scan := damageScan{partition: s.Partition(lane), emptyBlocks: map[string]bool{},
		blocks: map[string]bool{}, heldByNone: map[int64]bool{}}
	q := storage.Query{Partition: scan.partition, Columns: damageColumns}
	for r, err := range rows.Scan(ctx, s.Table, q) {
		if err != nil {
			return scan.found, err
		}
		scan.check(r)
	}

	for _, id := range slices.Sorted(maps.Keys(scan.emptyBlocks)) {
		scan.add(rows.BlockKey(id), errors.New("no message is held in it"))
	}

	for _, seq := range slices.Sorted(maps.Keys(scan.heldByNone)) {
		scan.add(rows.MessageKey(seq), errors.New("the message is held, and no queue has it"))
	}

	return scan.found, nil
}

// damageScan checks the rows of a lane in the order of their keys: blocks (b_) come first, then
// messages (m_), then the rows of held messages (r_).
type damageScan struct {
	partition   string
	found       []DamagedRow
	blocks      map[string]bool // ids of all blocks
	emptyBlocks map[string]bool // ids of the blocks in which no held message was found
	heldByNone  map[int64]bool  // held messages that were found in no queue
}

func (d *damageScan) add(key string, err error) {
	d.found = append(d.found, DamagedRow{Partition: d.partition, Key: key, Err: err})
}

func (d *damageScan) check(r storage.Row) {
	err := checkRow(r)
	seq, keyErr := rows.SeqOfMessage(r.Key)
	switch block, _, _ := strings.Cut(strings.TrimPrefix(r.Key, rows.HeldPrefix), "_"); {
	case strings.HasPrefix(r.Key, rows.BlockPrefix):
		id := strings.TrimPrefix(r.Key, rows.BlockPrefix)
		d.blocks[id], d.emptyBlocks[id] = true, true
	case strings.HasPrefix(r.Key, rows.MessagePrefix) && keyErr == nil && rows.IsHeld.Of(r.Values):
		d.heldByNone[seq] = true
	case strings.HasPrefix(r.Key, rows.HeldPrefix) && err == nil && !d.blocks[block]:
		err = errors.New("its queue has no row")
	case strings.HasPrefix(r.Key, rows.HeldPrefix):
		delete(d.emptyBlocks, block)
	}

	if strings.HasPrefix(r.Key, rows.HeldPrefix) {
		delete(d.heldByNone, rows.Seq.Of(r.Values))
	}

	if err != nil {
		d.add(r.Key, err)
	}
}

// checkRow returns an error if a row is damaged. It knows no fault of a row whose prefix it does
// not know: a later version of Weir can have written the row.
func checkRow(r storage.Row) error {
	prefix, _, _ := strings.Cut(r.Key, "_")
	var err error
	switch prefix + "_" {
	case rows.MessagePrefix:
		_, err = rows.SeqOfMessage(r.Key)
		_, attemptsErr := unpackAttempts(rows.Attempts.Of(r.Values))
		_, shownErr := unpackShown(shownText(r.Values))
		err = errors.Join(err, attemptsErr, shownErr)

	case rows.PackedPrefix:
		_, err = packedRowFrom(r)
	case rows.DuePrefix:
		_, err = ParseDueKey(r.Key)
	case rows.DeadPrefix:
		_, err = rows.ParseSeq(strings.TrimPrefix(r.Key, rows.DeadPrefix))
	case rows.HeldPrefix:
		err = checkHeld(HeldFrom(r))
	case rows.EventPrefix:
		err = outbox.CheckRow(r)
	}

	return err
}

// DueTimesOf returns the due times in the keys of s_ rows, in order. It passes over damaged rows.
func (s *Store) DueTimesOf(lane int, found []storage.Row) []DueTime {
	dues := make([]DueTime, 0, len(found))
	for _, d := range s.dueMessagesOf(lane, found) {
		dues = append(dues, d.DueTime)
	}
	return dues
}

// dueMessagesOf returns the scheduled messages of s_ rows, in order. It passes over damaged rows.
func (s *Store) dueMessagesOf(lane int, found []storage.Row) []DueMessage {
	dues := make([]DueMessage, 0, len(found))
	for _, r := range found {
		d, err := ParseDueKey(r.Key)
		if err != nil {
			s.reportDamaged(lane, r.Key, err)
			continue
		}
		dues = append(dues, DueMessage{d, rows.Key.Of(r.Values)})
	}

	return dues
}

// SeqOf returns the sequence number in the key of a row whose key has a prefix and a sequence
// number. It returns false if the row is damaged.
func (s *Store) SeqOf(lane int, prefix string, r storage.Row) (int64, bool) {
	seq, err := rows.ParseSeq(strings.TrimPrefix(r.Key, prefix))
	if err != nil {
		s.reportDamaged(lane, r.Key, fmt.Errorf("key: %w", err))
		return 0, false
	}

	return seq, true
}

// setDeliveredUnread makes the entry that of a delivered message whose delivery is in a damaged
// packed row.
func (e *Entry) setDeliveredUnread(version storage.ETag) {
	e.Stage, e.AttemptCount, e.Attempts = weir.Delivered, 1, nil
	st := &e.status
	st.Stage, st.AttemptCount, st.Attempts, st.Version = e.Stage, e.AttemptCount, nil,
		string(version)
}
