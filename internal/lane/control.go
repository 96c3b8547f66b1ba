package lane

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// Head is the control row that receivers write.
type Head struct {
	ETag       storage.ETag
	Next       int64 // next sequence number, from 1
	RequestSeq int64 // raised by each request
	IsSealed   bool  // the number of lanes is being changed: no message may be filed
}

// Counts has the number of messages in each final stage.
type Counts struct {
	Delivered, Dead, Cancelled, Superseded int64
	Moved                                  int64 // copied from a closed lane into the next epoch
}

// Total returns the number of final messages.
func (c Counts) Total() int64 { return c.Delivered + c.Dead + c.Cancelled + c.Superseded + c.Moved }

// Tail is the control row that the holder writes.
type Tail struct {
	ETag      storage.ETag
	Nonce     string // of the holder that wrote it last
	Fence     int64  // rises with each new holder of the lane
	CommitSeq int64  // rises with each commit
	Cursor    int64  // next sequence number to deliver
	Counts    Counts

	NextDueAt      time.Time // when the first message below the cursor can continue; zero = none waits there
	LastReleasedAt time.Time // in the position of the last released message; see Change.Release
	RequestsSeen   int64     // Head.RequestSeq up to which requests were carried out
	PausedUntil    time.Time // the CMS is unavailable: no message is sent before
	PauseReason    string
	PauseCount     int64     // in a row
	RefusingSince  time.Time // since when the CMS refuses everything; zero = it takes messages, or does not answer
	ProbedBelow    int64     // if RefusingSince is set: all keys with messages below it were tried; 0 = not all
	SettleUntil    time.Time // an unanswered request may be at work in the CMS
	NextAllowedAt  time.Time // by delivery.rate

	Holder      string // process that raised the fence last
	LastError   string // of the last attempt that did not deliver
	LastErrorAt time.Time

	IsOpen          bool  // a holder is at work, or has crashed
	Crashes         int64 // takeovers in a row that found IsOpen
	InFlightSeq     int64 // in careful running: the message that is about to be sent
	InFlightCrashes int64 // crashes while it was InFlightSeq

	IsClosed      bool // the epoch is over, or about to end: no process may hold the lane
	MovedRecorded bool // Counts include the moved messages

	SentBelow    int64 // messages from here on were never sent; 0 = not known
	HistoryFence int64 // since this fence all holders have written l_ rows; 0 = the last one has not
}

// Control is a snapshot of both control rows and of the markers between them.
type Control struct {
	Head    Head
	Tail    Tail
	lane    int
	settle  time.Duration // see Store.SettleTime
	markers []storage.Row
}

// A marker is a row whose key sorts between head and tail. Each reader of the control rows reads the markers
// with the same query, at no extra cost. A lane has only a few at any time.

// WaitingCount returns the number of messages that are not final.
func (c Control) WaitingCount() int64 { return c.Head.Next - 1 - c.Tail.Counts.Total() }

// DueLead is how long before a due time a process takes the lane, so that it holds the lane when the
// message falls due.
const DueLead = 2 * time.Second

// crashLead replaces DueLead if the last holder may have crashed: the new holder has to wait until a request of
// the last one has settled.
const crashLead = 20 * time.Second

func (t Tail) leadTime() time.Duration {
	if t.IsOpen {
		return crashLead
	}
	return DueLead
}

// HasWork reports whether there is work for a holder now.
func (c Control) HasWork(now time.Time) bool {
	if c.Tail.IsClosed {
		return false
	}
	return c.Head.Next > c.Tail.Cursor || c.HasRequests() || isDueBy(c.Tail.NextDueAt, now.Add(c.Tail.leadTime()))
}

// DueAt returns when the messages below the cursor can continue. It is zero if there are none, or if they wait
// for an operator to resume their key.
func (t Tail) DueAt() time.Time {
	if t.NextDueAt.Before(weir.Forever) {
		return t.NextDueAt
	}
	return time.Time{}
}

// HasUntried reports whether a message may wait that had no turn yet, while the CMS refuses those
// that had one: the pause is for these, and a message of another key must not wait for its end.
func (c Control) HasUntried(now time.Time) bool {
	return c.Tail.ProbedBelow > 0 && (c.Head.Next > c.Tail.ProbedBelow || isDueBy(c.Tail.NextDueAt, now))
}

// HasRequests reports whether a request waits, or the due time of a scheduled message was changed.
func (c Control) HasRequests() bool { return c.Head.RequestSeq != c.Tail.RequestsSeen }

// NextWorkAt returns when the next message may be sent; false = there is no work. A pause of the operator or
// for the CMS, and the settle time, put the work off.
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
	refused := ignoreFarFuture(c.Tail.PausedUntil, now.Add(longestPause))
	if c.HasUntried(now) {
		refused = time.Time{}
	}
	for _, shut := range []time.Time{paused, refused, ignoreFarFuture(c.Tail.SettleUntil, now.Add(c.settle))} {
		if shut.After(at) {
			at = shut
		}
	}
	return at, true
}

// longestPause is the longest pause of a holder for the CMS, longestSettle the longest settle time that
// settings allow.
const longestPause, longestSettle = time.Hour, time.Hour

// ignoreFarFuture returns a time of tail that puts work off, or zero if it is later than settings allow. Then
// the clock of the holder that wrote it was wrong, and the next holder corrects it.
func ignoreFarFuture(at, latest time.Time) time.Time {
	if at.After(latest.Add(2 * clockSkew)) {
		return time.Time{}
	}
	return at
}

func isDueBy(due, now time.Time) bool { return !due.IsZero() && !due.After(now) }

func (h Head) headValues() map[string]any {
	return rows.Values(rows.NextSeq.Is(h.Next), rows.RequestSeq.Is(h.RequestSeq), rows.IsSealed.Is(h.IsSealed))
}

func headFrom(r storage.Row) Head {
	v := r.Values
	return Head{ETag: r.ETag, Next: rows.NextSeq.Of(v), RequestSeq: rows.RequestSeq.Of(v),
		IsSealed: rows.IsSealed.Of(v)}
}

func (t Tail) tailValues() map[string]any {
	return rows.Sparse(
		rows.Nonce.Is(t.Nonce), rows.Fence.Is(t.Fence), rows.CommitSeq.Is(t.CommitSeq), rows.Cursor.Is(t.Cursor),
		rows.Delivered.Is(t.Counts.Delivered), rows.Dead.Is(t.Counts.Dead),
		rows.Cancelled.Is(t.Counts.Cancelled), rows.Superseded.Is(t.Counts.Superseded), rows.Moved.Is(t.Counts.Moved),
		rows.NextDueAt.Is(t.NextDueAt), rows.LastReleasedAt.Is(t.LastReleasedAt), rows.RequestsSeen.Is(t.RequestsSeen),
		rows.PausedUntil.Is(t.PausedUntil), rows.PauseReason.Is(t.PauseReason), rows.PauseCount.Is(t.PauseCount),
		rows.RefusingSince.Is(t.RefusingSince), rows.ProbedBelow.Is(t.ProbedBelow),
		rows.SettleUntil.Is(t.SettleUntil), rows.NextAllowedAt.Is(t.NextAllowedAt),
		rows.Holder.Is(t.Holder), rows.LastError.Is(t.LastError), rows.LastErrorAt.Is(t.LastErrorAt),
		rows.IsOpen.Is(t.IsOpen), rows.Crashes.Is(t.Crashes), rows.InFlightSeq.Is(t.InFlightSeq),
		rows.InFlightCrashes.Is(t.InFlightCrashes),
		rows.IsClosed.Is(t.IsClosed), rows.MovedRecorded.Is(t.MovedRecorded), rows.SentBelow.Is(t.SentBelow),
		rows.HistoryFence.Is(t.HistoryFence),
	)
}

func tailFrom(r storage.Row) Tail {
	v := r.Values
	return Tail{
		ETag: r.ETag, Nonce: rows.Nonce.Of(v), Fence: rows.Fence.Of(v), CommitSeq: rows.CommitSeq.Of(v),
		Cursor: rows.Cursor.Of(v),
		Counts: Counts{rows.Delivered.Of(v), rows.Dead.Of(v), rows.Cancelled.Of(v), rows.Superseded.Of(v),
			rows.Moved.Of(v)},
		NextDueAt: rows.NextDueAt.Of(v), LastReleasedAt: rows.LastReleasedAt.Of(v),
		RequestsSeen: rows.RequestsSeen.Of(v),
		PausedUntil:  rows.PausedUntil.Of(v), PauseReason: rows.PauseReason.Of(v), PauseCount: rows.PauseCount.Of(v),
		RefusingSince: rows.RefusingSince.Of(v), ProbedBelow: rows.ProbedBelow.Of(v),
		SettleUntil: rows.SettleUntil.Of(v), NextAllowedAt: rows.NextAllowedAt.Of(v),
		Holder: rows.Holder.Of(v), LastError: rows.LastError.Of(v), LastErrorAt: rows.LastErrorAt.Of(v),
		IsOpen: rows.IsOpen.Of(v), Crashes: rows.Crashes.Of(v), InFlightSeq: rows.InFlightSeq.Of(v),
		InFlightCrashes: rows.InFlightCrashes.Of(v),
		IsClosed:        rows.IsClosed.Of(v), MovedRecorded: rows.MovedRecorded.Of(v), SentBelow: rows.SentBelow.Of(v),
		HistoryFence: rows.HistoryFence.Of(v),
	}
}

// ReadControl reads a lane's head, tail and markers in one snapshot.
func (s *Store) ReadControl(ctx context.Context, lane int) (Control, error) {
	found, err := s.controlRows(ctx, lane)
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
	if c.Head.ETag == "" || c.Tail.ETag == "" {
		return Control{}, &storage.Error{Op: "lane control", Kind: storage.NotFound, Index: -1}
	}
	return c, nil
}

// maxControlReads limits how often controlRows reads again.
const maxControlReads = 8

// controlRows reads the control rows and markers in one snapshot. Storage may cut any answer short, and an
// incomplete answer lacks tail. Several pages are a snapshot only if a second read returns the same versions.
func (s *Store) controlRows(ctx context.Context, lane int) ([]storage.Row, error) {
	var before []storage.Row
	for range maxControlReads {
		found, pages, err := s.readControlRows(ctx, lane)
		if err != nil || pages == 1 || before != nil && slices.EqualFunc(before, found, sameVersion) {
			return found, err
		}
		before = found
	}
	return nil, &storage.Error{Op: "lane control", Kind: storage.Unavailable, Index: -1, Err: errNoSnapshot}
}

var errNoSnapshot = errors.New("storage cuts each answer, and the rows change between two")

func sameVersion(a, b storage.Row) bool { return a.Key == b.Key && a.ETag == b.ETag }

func (s *Store) readControlRows(ctx context.Context, lane int) (found []storage.Row, pages int, err error) {
	q := storage.Query{Partition: s.partitionOf(lane), From: rows.HeadKey, To: rows.ControlEnd}
	for page, err := range rows.Pages(ctx, s.Table, q) {
		if err != nil {
			return nil, pages, err
		}
		found, pages = append(found, page.Rows...), pages+1
	}
	return found, pages, nil
}

// EnsureControlRows creates the lane's control rows if they are missing.
func (s *Store) EnsureControlRows(ctx context.Context, lane int) error {
	return s.insertControlRows(ctx, lane, 0)
}

func (s *Store) insertControlRows(ctx context.Context, lane int, fence int64) error {
	if _, err := s.ReadControl(ctx, lane); !storage.Is(err, storage.NotFound) {
		return err
	}
	_, err := s.Table.Transact(ctx, s.partitionOf(lane), []storage.Op{
		{Kind: storage.Insert, Key: rows.HeadKey, Values: Head{Next: 1}.headValues()},
		{Kind: storage.Insert, Key: rows.TailKey,
			Values: Tail{Cursor: 1, Fence: fence, SentBelow: 1, HistoryFence: 1}.tailValues()},
	})
	if err != nil && !storage.Is(err, storage.Conflict) {
		return err
	}
	return nil
}
