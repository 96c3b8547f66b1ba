package lane

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
)

// Head is the control row that receivers and the API write.
type Head struct {
	ETag storage.ETag
	Next int64 // next sequence number, from 1
	// rises with each request, each change of a due time and each change of an operator's pauses
	RequestSeq int64
	IsSealed   bool // no message is appended, because the number of lanes is being changed
}

// Control is a snapshot of both control rows and of the markers between them.
type Control struct {
	Head    Head
	Tail    Tail
	lane    int
	settle  time.Duration // Store.SettleTime, or longestSettle if the store has none
	markers []storage.Row

	// those of Tail.Missing that the settings of this process lack, too
	missing []MissingContract
	// the settings of this process have another contract of Tail.Missing
	isContractBack bool
}

// A marker is a row whose key sorts between head and tail. Each reader of the control rows reads
// the markers with the same query, at no extra cost.

// Marker returns the marker with this key, and reports whether there is one.
func (c Control) Marker(key string) (storage.Row, bool) {
	for _, r := range c.markers {
		if r.Key == key {
			return r, true
		}
	}
	return storage.Row{}, false
}

// Markers returns the markers whose keys begin with prefix, in the order of their keys.
func (c Control) Markers(prefix string) []storage.Row {
	var found []storage.Row
	for _, r := range c.markers {
		if strings.HasPrefix(r.Key, prefix) {
			found = append(found, r)
		}
	}
	return found
}

// UpdateOp returns the operation that writes columns of head if head still has the ETag of h. If
// head has changed since it was read, the whole transaction fails. The sealing of a lane changes
// head, too. So a transaction that begins with this operation fails if the lane was sealed after
// head was read. Packages that keep their own rows in a lane rely on this.
func (h Head) UpdateOp(cells ...rows.Cell) storage.Op {
	return storage.Op{Kind: storage.Merge, Key: rows.HeadKey, IfMatch: h.ETag,
		Values: rows.Values(cells...)}
}

// MissingContracts returns the contracts for which messages of the lane wait, and which the
// settings of this process lack.
func (c Control) MissingContracts() []MissingContract { return c.missing }

// WaitingCount returns the number of appended messages, without those that tail counts as final or
// as moved to the next epoch.
func (c Control) WaitingCount() int64 { return c.Head.Next - 1 - c.Tail.Counts.Total() }

// HasWork reports whether there is work for a holder now. It ignores pauses and the settle time.
func (c Control) HasWork(now time.Time) bool {
	if c.Tail.IsClosed {
		return false
	}
	return c.Head.Next > c.Tail.Cursor || c.HasRequests() || c.isContractBack ||
		isDueBy(c.Tail.NextDueAt, now.Add(c.Tail.leadTime()))
}

// HasUntried reports whether the CMS refuses messages, and an untried message may be ready to be
// sent. The pause for the refused messages must not delay an untried message. A scheduled or held
// message counts only from shortly before the time at which it can be sent.
func (c Control) HasUntried(now time.Time) bool {
	return c.Tail.ProbedBelow > 0 &&
		(c.Head.Next > c.Tail.ProbedBelow ||
			isDueBy(c.Tail.NextUntriedAt, now.Add(c.Tail.leadTime())))
}

// pausedForCMSUntil returns the end of the pause for the CMS; zero = there is no such pause. A
// pause for refused messages ends at once if HasUntried returns true. Otherwise it ends shortly
// before Tail.NextUntriedAt at the latest.
func (c Control) pausedForCMSUntil(now time.Time) time.Time {
	if c.HasUntried(now) {
		return time.Time{}
	}

	until := ignoreFarFuture(c.Tail.PausedUntil, now.Add(longestPause))
	if untried := c.Tail.NextUntriedAt; c.Tail.ProbedBelow > 0 && !untried.IsZero() {
		if at := untried.Add(-c.Tail.leadTime()); at.Before(until) {
			return at
		}
	}

	return until
}

// HasRequests reports whether a request, a change of a due time or a change of an operator's pauses
// was not yet seen by a holder.
func (c Control) HasRequests() bool { return c.Head.RequestSeq != c.Tail.RequestsSeen }

// NextWorkAt returns the time from which on a process can work on the lane; false = there is no
// work. An operator's pause, a pause for the CMS and the settle time delay this time. If there are
// requests, the time is now, even during a pause.
func (c Control) NextWorkAt(now time.Time) (time.Time, bool) {
	at := now
	if !c.HasWork(now) {
		if c.Tail.NextDueAt.IsZero() || c.Tail.IsClosed {
			return time.Time{}, false
		}
		at = c.Tail.NextDueAt.Add(-c.Tail.leadTime())
	}

	if c.HasRequests() && !c.Tail.IsClosed {
		return now, true // requests are carried out during a pause, too
	}

	var paused time.Time
	if p, ok := c.LanePause(now); ok {
		paused = p.Ends()
	}

	for _, shut := range []time.Time{paused, c.pausedForCMSUntil(now),
		ignoreFarFuture(c.Tail.SettleUntil, now.Add(c.settle))} {
		if shut.After(at) {
			at = shut
		}
	}

	return at, true
}

// longestPause is the longest time for which a holder pauses for the CMS. longestSettle is the
// longest settle time that settings allow.
const longestPause, longestSettle = time.Hour, time.Hour

// ignoreFarFuture returns a time of tail, or zero if the time is later than latest by more than the
// possible clock skew. Such a time comes from a holder whose clock was wrong, and the next holder
// corrects tail.
func ignoreFarFuture(at, latest time.Time) time.Time {
	if at.After(latest.Add(2 * ClockSkew)) {
		return time.Time{}
	}
	return at
}

func isDueBy(due, now time.Time) bool { return !due.IsZero() && !due.After(now) }

func (h Head) headValues() map[string]any {
	return rows.Values(rows.NextSeq.Is(h.Next), rows.RequestSeq.Is(h.RequestSeq),
		rows.IsSealed.Is(h.IsSealed))
}

func headFrom(r storage.Row) Head {
	v := r.Values
	return Head{ETag: r.ETag, Next: rows.NextSeq.Of(v), RequestSeq: rows.RequestSeq.Of(v),
		IsSealed: rows.IsSealed.Of(v)}
}

// ReadControl reads a lane's head, tail and markers in one snapshot. It returns NotFound if head or
// tail is missing.
func (s *Store) ReadControl(ctx context.Context, lane int) (Control, error) {
	found, err := s.rowsOfLane(lane).readSnapshot(ctx)
	if err != nil {
		return Control{}, err
	}

	c := Control{lane: lane, settle: cmp.Or(s.SettleTime, longestSettle)}
	for _, r := range found {
		switch r.Key {
		case rows.HeadKey:
			c.Head = headFrom(r)
		case rows.TailKey:
			c.Tail = tailFrom(r)
		default:
			c.markers = append(c.markers, r)
		}
	}

	for _, m := range c.Tail.Missing {
		if s.Contracts.Has(m.Contract) {
			c.isContractBack = true
		} else {
			c.missing = append(c.missing, m)
		}
	}

	if c.Head.ETag == "" || c.Tail.ETag == "" {
		return Control{}, &storage.Error{Op: "lane control", Kind: storage.NotFound, Index: -1}
	}

	return c, nil
}

// maxControlReads is the largest number of reads in one readSnapshot.
const maxControlReads = 8

// readSnapshot reads the control rows and the markers between them as they were at one moment. An
// answer of one page is such a snapshot, but storage can split any answer into pages. Several pages
// count as a snapshot only if the next read returns the same rows with the same ETags.
func (p partition) readSnapshot(ctx context.Context) ([]storage.Row, error) {
	var before []storage.Row
	for range maxControlReads {
		found, pages, err := p.readControlRows(ctx)
		if err != nil || pages == 1 ||
			before != nil && slices.EqualFunc(before, found, sameVersion) {
			return found, err
		}
		before = found
	}

	return nil, &storage.Error{Op: "lane control", Kind: storage.Unavailable, Index: -1,
		Err: errNoSnapshot}
}

var errNoSnapshot = errors.New("storage cuts each answer, and the rows change between two")

func sameVersion(a, b storage.Row) bool { return a.Key == b.Key && a.ETag == b.ETag }

func (p partition) readControlRows(ctx context.Context) (found []storage.Row, pages int,
	err error) {
	q := storage.Query{Partition: p.name, From: rows.HeadKey, To: rows.ControlEnd}
	for page, err := range rows.Pages(ctx, p.table, q) {
		if err != nil {
			return nil, pages, err
		}
		found, pages = append(found, page.Rows...), pages+1
	}

	return found, pages, nil
}

// EnsureControlRows creates the lane's control rows if they are missing. fence is the fence in the
// new tail. The first holder gets the next higher fence.
func (s *Store) EnsureControlRows(ctx context.Context, lane int, fence int64) error {
	if _, err := s.ReadControl(ctx, lane); !storage.Is(err, storage.NotFound) {
		return err
	}

	_, err := s.Table.Transact(ctx, s.Partition(lane), []storage.Op{
		{Kind: storage.Insert, Key: rows.HeadKey, Values: Head{Next: 1}.headValues()},
		{Kind: storage.Insert, Key: rows.TailKey,
			Values: Tail{Cursor: 1, Fence: fence, SentBelow: 1}.tailValues()},
	})
	if err != nil && !storage.Is(err, storage.Conflict) {
		return err
	}

	return nil
}
