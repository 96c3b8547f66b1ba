package lists

import (
	"context"
	"slices"
	"strings"

	"weir/internal/lane"
	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// WaitingPlace is the place up to which the waiting messages of a lane were read. The zero value is
// the beginning.
type WaitingPlace struct {
	Part  WaitingPart `json:"p"`
	After string      `json:"a"` // key of the last row that was read in this part; "" = none
}

// WaitingPart is one of the three parts of a lane's rows that have waiting messages. A message
// moves only to partHeld: from partScheduled when the message is due, or from partLog when the
// message's key is blocked. So a walk that reads partHeld last misses no message that moves.
type WaitingPart int

const (
	partScheduled WaitingPart = iota
	partLog
	partHeld
	partEnd // number of parts
)

// prefix returns the beginning of the keys of the part's rows; "" = there is no such part.
func (p WaitingPart) prefix() string {
	switch p {
	case partScheduled:
		return rows.DuePrefix
	case partLog:
		return rows.MessagePrefix
	case partHeld:
		return rows.HeldPrefix
	}

	return ""
}

// IsValid reports whether ReadWaitingPage can have returned the place.
func (p WaitingPlace) IsValid() bool {
	prefix := p.Part.prefix()
	return prefix != "" && (p.After == "" || strings.HasPrefix(p.After, prefix))
}

// waitingPage is the largest number of rows of a page.
const waitingPage = 500

// ReadWaitingPage reads one page of the waiting messages of a lane. It returns the place of the
// next page, and reports whether there is none. If the lane's messages move meanwhile, a walk from
// the zero place to the end reads each message at least once.
func (l Reader) ReadWaitingPage(ctx context.Context, number int,
	at WaitingPlace) (entries []*lane.Entry, next WaitingPlace, isLast bool, err error) {
	if at.Part == partLog {
		return l.readLogPage(ctx, number, at)
	}

	page, err := l.Store.Table.Range(ctx, at.query(l.Store.Partition(number), rows.Names(rows.Seq)))
	if err != nil {
		return nil, at, false, err
	}

	entries, _, err = l.Store.ReadMany(ctx, number, l.seqsOf(number, at, page))
	next, isLast = at.following(page)

	return entries, next, isLast, err
}

// seqsOf returns the sequence numbers of a page of scheduled or held messages, the highest first.
func (l Reader) seqsOf(number int, at WaitingPlace, page storage.Page) []int64 {
	var seqs []int64
	if at.Part == partScheduled {
		for _, d := range l.Store.DueTimesOf(number, page.Rows) {
			seqs = append(seqs, d.Seq)
		}
	} else {
		for _, r := range page.Rows {
			seqs = append(seqs, lane.HeldFrom(r).Seq)
		}
	}

	slices.Sort(seqs)
	seqs = slices.Compact(seqs)
	slices.Reverse(seqs)

	return seqs
}

// readLogPage reads one page of the log. The first page begins at the lane's cursor.
func (l Reader) readLogPage(ctx context.Context, number int, at WaitingPlace) ([]*lane.Entry,
	WaitingPlace, bool, error) {
	from := at
	if from.After == "" {
		control, err := l.Store.ReadControl(ctx, number)
		if err != nil {
			return nil, at, false, err
		}
		from.After = rows.MessageKey(max(control.Tail.Cursor-1, 0))
	}

	page, err := l.Store.Table.Range(ctx, from.query(l.Store.Partition(number), lane.ListColumns))
	if err != nil {
		return nil, at, false, err
	}

	entries, err := l.Store.EntriesFrom(ctx, number, page.Rows)

	// Scheduled and held messages are read in their own parts.
	entries = slices.DeleteFunc(entries,
		func(e *lane.Entry) bool { return e.IsHeld || e.Stage == weir.Scheduled })
	next, isLast := at.following(page)

	return entries, next, isLast, err
}

func (p WaitingPlace) query(partition string, columns []string) storage.Query {
	prefix := p.Part.prefix()
	q := storage.Query{Partition: partition, From: prefix, To: rows.PrefixEnd(prefix),
		Limit: waitingPage, Columns: columns}
	if p.After != "" {
		q.From, q.After = "", p.After
	}
	return q
}

// following returns the place of the page after this page, and reports whether there is none.
func (p WaitingPlace) following(page storage.Page) (next WaitingPlace, isLast bool) {
	if page.More || len(page.Rows) == waitingPage {
		p.After = page.Rows[len(page.Rows)-1].Key
		return p, false
	}
	p.Part, p.After = p.Part+1, ""
	return p, p.Part == partEnd
}
