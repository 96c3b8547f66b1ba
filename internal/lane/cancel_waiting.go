package lane

import (
	"context"
	"slices"
	"strings"
	"time"

	"weir/internal/clock"
	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// WaitingFilter selects waiting messages. An empty field selects all.
type WaitingFilter struct {
	Key       string
	KeyPrefix string
	Contract  string
	Stage     weir.Stage // scheduled, queued or retrying
	Lane      *int
	From, To  time.Time // accepted at or after From, and before To
}

// selectLanes returns the lanes that can hold selected messages.
func (f *WaitingFilter) selectLanes(n int) []int {
	var lanes []int
	for i := range n {
		if (f.Lane == nil || *f.Lane == i) && (f.Key == "" || Of(f.Key, n) == i) {
			lanes = append(lanes, i)
		}
	}
	return lanes
}

// isSelected reports whether the filter selects a waiting message.
func (f *WaitingFilter) isSelected(e *Entry) bool {
	m := &e.Message
	switch {
	case e.Stage.Final(),
		f.Key != "" && m.Key != f.Key,
		!strings.HasPrefix(m.Key, f.KeyPrefix),
		f.Contract != "" && m.Contract != f.Contract,
		f.Stage != "" && e.Stage != f.Stage,
		m.AcceptedAt.Before(f.From),
		!f.To.IsZero() && !m.AcceptedAt.Before(f.To):
		return false
	}
	return true
}

// WaitingPosition is the position of a walk through the waiting messages. The zero value is its beginning.
type WaitingPosition struct {
	Lane  int         `json:"l"` // index among the lanes that the filter selects
	Part  waitingPart `json:"p"`
	After string      `json:"a"` // the last row read there; "" = none
}

// IsValid reports whether the position can come from a walk.
func (p WaitingPosition) IsValid() bool {
	prefix := map[waitingPart]string{partScheduled: rows.DuePrefix, partLog: rows.MessagePrefix,
		partHeld: rows.HeldPrefix}[p.Part]
	return p.Lane >= 0 && prefix != "" && (p.After == "" || strings.HasPrefix(p.After, prefix))
}

// waitingPart is one of the three places of a lane for waiting messages. A release moves a message from the
// first to the last, a block from the second to the last. The walk reads them in this order, so it misses no
// message that moves meanwhile.
type waitingPart int

const (
	partScheduled waitingPart = iota
	partLog
	partHeld
	partEnd
)

// CancelCounts counts the messages that CancelMany has selected.
type CancelCounts struct {
	Selected  int64 // waiting and selected
	Cancelled int64 // of those: scheduled, and cancelled on return
	Asked     int64 // of those: the holder cancels them, unless their request is in flight
	TooLate   int64 // of those: final before the write
	Lanes     []int // lanes whose holder was asked, in rising order
}

// waitingPage is the number of rows that one step of the walk reads.
const waitingPage = 500

// CancelWaiting cancels the waiting messages that a filter selects, in steps. It returns after limit messages,
// or when ctx ends, with the position to continue at; done reports that none is left. With dryRun it only
// counts. Repeating a step does no harm.
func (s *Store) CancelWaiting(ctx context.Context, f WaitingFilter, from WaitingPosition, limit int,
	dryRun bool) (counts CancelCounts, at WaitingPosition, done bool, err error) {
	lanes := f.selectLanes(s.Lanes)
	at = from
	for looked := 0; at.Lane < len(lanes); {
		if looked >= limit || ctx.Err() != nil {
			return counts, at, false, nil
		}
		number := lanes[at.Lane]
		entries, next, err := s.readWaitingPage(ctx, number, at)
		if err == nil {
			looked += len(entries)
			entries = slices.DeleteFunc(entries, func(e *Entry) bool { return !f.isSelected(e) })
			counts.Selected += int64(len(entries))
			if !dryRun && len(entries) > 0 {
				err = s.cancelEach(ctx, number, entries, &counts)
			}
		}
		if err != nil {
			return counts, at, false, errUnavailable("cancel", err)
		}
		at = next
	}
	return counts, at, true, nil
}

// readWaitingPage reads one page of messages at a position, and returns the position behind it.
func (s *Store) readWaitingPage(ctx context.Context, lane int, at WaitingPosition) ([]*Entry, WaitingPosition, error) {
	if at.Part == partLog {
		return s.readWaitingLog(ctx, lane, at)
	}
	prefix := rows.DuePrefix
	if at.Part == partHeld {
		prefix = rows.HeldPrefix
	}
	page, err := s.Table.Range(ctx, waitingQuery(s.partitionOf(lane), prefix, at.After, waitingColumns))
	if err != nil {
		return nil, at, err
	}
	var seqs []int64
	for _, r := range page.Rows {
		seq := heldFromRow(r).Seq
		if at.Part == partScheduled {
			d, err := parseDue(r.Key)
			if err != nil {
				return nil, at, err
			}
			seq = d.Seq
		}
		seqs = append(seqs, seq)
	}
	slices.Sort(seqs)
	seqs = slices.Compact(seqs)
	slices.Reverse(seqs)
	entries, _, err := s.ReadMany(ctx, lane, seqs)
	return entries, at.positionAfter(page), err
}

// readWaitingLog reads one page of the log from the cursor on.
func (s *Store) readWaitingLog(ctx context.Context, lane int, at WaitingPosition) ([]*Entry, WaitingPosition, error) {
	behind := at.After
	if behind == "" {
		c, err := s.ReadControl(ctx, lane)
		if err != nil {
			return nil, at, err
		}
		behind = rows.MessageKey(max(c.Tail.Cursor-1, 0))
	}
	page, err := s.Table.Range(ctx, waitingQuery(s.partitionOf(lane), rows.MessagePrefix, behind, scanColumns))
	if err != nil {
		return nil, at, err
	}
	entries, err := s.entriesFrom(ctx, lane, page.Rows)
	// Scheduled and held messages are read in parts of their own.
	entries = slices.DeleteFunc(entries, func(e *Entry) bool { return e.IsHeld || e.Stage == weir.Scheduled })
	return entries, at.positionAfter(page), err
}

func waitingQuery(partition, prefix, behind string, columns []string) storage.Query {
	q := storage.Query{Partition: partition, From: prefix, To: rows.PrefixEnd(prefix), Limit: waitingPage,
		Columns: columns}
	if behind != "" {
		q.From, q.After = "", behind
	}
	return q
}

// positionAfter returns the position behind a page.
func (p WaitingPosition) positionAfter(page storage.Page) WaitingPosition {
	if page.More || len(page.Rows) == waitingPage {
		p.After = page.Rows[len(page.Rows)-1].Key
		return p
	}
	if p.Part, p.After = p.Part+1, ""; p.Part == partEnd {
		p = WaitingPosition{Lane: p.Lane + 1}
	}
	return p
}

// cancelEach cancels messages of one lane, or asks the holder to, many with one transaction.
func (s *Store) cancelEach(ctx context.Context, lane int, entries []*Entry, counts *CancelCounts) error {
	if !slices.Contains(counts.Lanes, lane) {
		counts.Lanes = append(counts.Lanes, lane)
	}
	for len(entries) > 0 {
		nonce, at := newNonce(), s.Now().UTC().Truncate(time.Microsecond)
		n, ops := s.cancelGroup(entries, at, nonce)
		if err := s.cancelTogether(ctx, lane, entries[:n], ops, nonce, counts); err != nil {
			return err
		}
		entries = entries[n:]
	}
	return nil
}

// cancelGroup returns the operations that cancel the first n messages in one transaction.
func (s *Store) cancelGroup(entries []*Entry, at time.Time, nonce string) (n int, ops []storage.Op) {
	for _, e := range entries {
		more := []storage.Op{{Kind: storage.Insert, Key: cancelKey(e.Seq()), Values: rows.Values(rows.Seq.Is(e.Seq()))}}
		if e.Stage == weir.Scheduled {
			more = cancelOps(e, at, nonce)
		}
		if len(ops)+len(more) >= storage.MaxOps { // one operation is for head
			break
		}
		ops, n = append(ops, more...), n+1
	}
	return n, ops
}

// cancelTogether cancels a group with one transaction. If a message has changed since it was read, or the
// answer was lost, it cancels each message alone.
func (s *Store) cancelTogether(ctx context.Context, lane int, group []*Entry, ops []storage.Op, nonce string,
	counts *CancelCounts) error {
	err := s.raiseRequestSeq(ctx, lane, ops)
	if storage.Is(err, storage.Precondition) && storage.FailedAt(err) <= 0 {
		if clock.Sleep(ctx, s.drawPause(conflictPause)) { // an append was faster
			err = s.raiseRequestSeq(ctx, lane, ops)
		}
	}
	if err == nil {
		for _, e := range group {
			counts.countCancelled(e.Stage == weir.Scheduled)
		}
		if slices.ContainsFunc(group, func(e *Entry) bool {
			return e.Stage == weir.Scheduled && e.Message.Callback != ""
		}) && s.Notifier != nil {
			s.Notifier.WakeOutbox(lane)
		}
		return nil
	}
	for _, e := range group {
		st, err := s.cancelWithNonce(ctx, e.Message.ID, nonce)
		switch weir.KindOf(err) {
		case weir.Conflict, weir.NotFound:
			counts.TooLate++
			continue
		}
		if err != nil {
			return err
		}
		counts.countCancelled(st.Stage == weir.Cancelled)
	}
	return nil
}

// countCancelled counts a message that was cancelled, or whose holder was asked.
func (c *CancelCounts) countCancelled(atOnce bool) {
	if atOnce {
		c.Cancelled++
		return
	}
	c.Asked++
}
