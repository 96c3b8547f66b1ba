package lane

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"weir/internal/storage"
	"weir/internal/weir"
)

// Head is the receivers' control row.
type Head struct {
	ETag       storage.ETag
	Next       int64 // next sequence number, from 1
	RequestSeq int64 // raised by every request
	IsSealed   bool  // the number of lanes is being changed: nothing may be filed
}

// Counts says how many messages have come to each end.
type Counts struct {
	Delivered, Dead, Cancelled, Superseded int64
	Moved                                  int64 // out of a closed lane, into the epoch that followed
}

// Total is the number of messages that are final here.
func (c Counts) Total() int64 { return c.Delivered + c.Dead + c.Cancelled + c.Superseded + c.Moved }

// Tail is the holder's control row.
type Tail struct {
	ETag      storage.ETag
	Nonce     string // of the holder that wrote last
	Fence     int64  // rises each time the lane changes hands
	CommitSeq int64  // rises with each commit
	Cursor    int64  // the next sequence number delivery will look at
	Counts    Counts

	NextDueAt      time.Time // of all that waits below the cursor; zero = nothing does
	LastReleasedAt time.Time // in the place of what was released last; see Change.Release
	RequestsSeen   int64     // head.Touched up to which requests were granted
	PausedUntil    time.Time // the CMS is unavailable: nothing is sent before
	PauseReason    string
	PauseCount     int64     // pauses in a row
	RefusingSince  time.Time // since when the CMS has answered and taken nothing; zero = it takes messages, or does not answer
	ProbedBelow    int64     // while Refusing is set: each key below this place in the log had its turn; 0 = not all had
	SettleUntil    time.Time // something unanswered may still be at work in the CMS
	NextAllowedAt  time.Time // delivery.rate allows nothing before

	Holder      string    // name of the process that took the fence last
	LastError   string    // of the last attempt that was not delivered
	LastErrorAt time.Time // when that was

	IsOpen          bool  // a holder is at work, or died at it
	Crashes         int64 // takeovers in a row that found Open
	InFlightSeq     int64 // in careful running: the message about to be sent
	InFlightCrashes int64 // crashes it stood in Trying at

	IsClosed      bool // the epoch is over, or about to be: nobody may hold the lane
	MovedRecorded bool // and Counts say what moved

	SentBelow    int64 // nothing from this place in the log on was ever sent; 0 = that is not known
	HistoryFence int64 // the fence from which on all holders have kept l_ rows; 0 = the last one has not
}

// Control is one snapshot of both control rows, and of the notes between them.
type Control struct {
	Head   Head
	Tail   Tail
	lane   int
	settle time.Duration // see Store.Settle
	notes  []storage.Row
}

// A note is a row whose key lies between those of the control rows, so that everybody who
// looks at the lane reads it in the same query, at no cost of its own. There are few of
// them at any time.

// WaitingCount is the number of messages not final yet.
func (c Control) WaitingCount() int64 { return c.Head.Next - 1 - c.Tail.Counts.Total() }

// DueLead is how long before a due time a holder takes the lane, to be there at the moment.
const DueLead = 2 * time.Second

// crashLead is that time where the last holder may have died: what it may have sent has to
// settle before anything is sent, and the next one begins to wait for that when it comes.
const crashLead = 20 * time.Second

func (t Tail) lead() time.Duration {
	if t.IsOpen {
		return crashLead
	}
	return DueLead
}

// HasWork says whether a holder would find something to do at this moment.
func (c Control) HasWork(now time.Time) bool {
	if c.Tail.IsClosed {
		return false
	}
	return c.Head.Next > c.Tail.Cursor || c.HasRequests() || dueBy(c.Tail.NextDueAt, now.Add(c.Tail.lead()))
}

// DueAt is NextDue for people: what waits below the cursor goes on then by itself. Zero =
// nothing does, or only once its key is resumed.
func (t Tail) DueAt() time.Time {
	if t.NextDueAt.Before(weir.Forever) {
		return t.NextDueAt
	}
	return time.Time{}
}

// HasUntried reports whether a message may wait that had no turn yet, while the CMS refuses those
// that had one: the pause is for these, and a message of another key must not wait for its end.
func (c Control) HasUntried(now time.Time) bool {
	return c.Tail.ProbedBelow > 0 && (c.Head.Next > c.Tail.ProbedBelow || dueBy(c.Tail.NextDueAt, now))
}

// HasRequests says whether a request waits, or a scheduled message has another moment.
func (c Control) HasRequests() bool { return c.Head.RequestSeq != c.Tail.RequestsSeen }

// NextWorkAt gives the moment from which there is work that may be sent, and false when
// there is none in sight. A pause, the operator's or the CMS's, puts it off, and so does a
// settling CMS.
func (c Control) NextWorkAt(now time.Time) (time.Time, bool) {
	at := now
	if !c.HasWork(now) {
		if c.Tail.NextDueAt.IsZero() || c.Tail.IsClosed {
			return time.Time{}, false
		}
		at = c.Tail.NextDueAt.Add(-c.Tail.lead())
	}
	if c.HasRequests() && !c.Tail.IsClosed {
		return now, true // requests are granted while nothing may be sent, too
	}
	var paused time.Time
	if p, ok := c.LanePause(now); ok {
		paused = p.Ends()
	}
	refused := believed(c.Tail.PausedUntil, now.Add(longestPause))
	if c.HasUntried(now) {
		refused = time.Time{}
	}
	for _, shut := range []time.Time{paused, refused, believed(c.Tail.SettleUntil, now.Add(c.settle))} {
		if shut.After(at) {
			at = shut
		}
	}
	return at, true
}

// longestPause is the longest pause that a holder makes for the CMS, and longestSettle the
// longest settle time that settings allow.
const longestPause, longestSettle = time.Hour, time.Hour

// believed returns a moment in tail that puts work off, or none if it is further ahead than
// settings allow: then the clock of the holder that wrote it was wrong, and the next holder
// corrects it.
func believed(at, latest time.Time) time.Time {
	if at.After(latest.Add(2 * clockSkew)) {
		return time.Time{}
	}
	return at
}

func dueBy(due, now time.Time) bool { return !due.IsZero() && !due.After(now) }

func (h Head) values() map[string]any {
	return map[string]any{"Next": h.Next, "Touched": h.RequestSeq, "Sealed": h.IsSealed}
}

func headFrom(r storage.Row) Head {
	v := values{r.Values}
	return Head{ETag: r.ETag, Next: v.int("Next"), RequestSeq: v.int("Touched"), IsSealed: v.bool("Sealed")}
}

func (t Tail) values() map[string]any {
	return sparse(map[string]any{
		"Nonce": t.Nonce, "Fence": t.Fence, "Commit": t.CommitSeq, "Cursor": t.Cursor,
		"Delivered": t.Counts.Delivered, "Dead": t.Counts.Dead,
		"Cancelled": t.Counts.Cancelled, "Superseded": t.Counts.Superseded, "Moved": t.Counts.Moved,
		"NextDue": timeValue(t.NextDueAt), "Placed": timeValue(t.LastReleasedAt), "TouchedSeen": t.RequestsSeen,
		"PausedUntil": timeValue(t.PausedUntil), "PauseReason": t.PauseReason, "Pauses": t.PauseCount, "Refusing": timeValue(t.RefusingSince), "Probed": t.ProbedBelow,
		"SettleUntil": timeValue(t.SettleUntil), "RateNext": timeValue(t.NextAllowedAt),
		"Holder": t.Holder, "LastError": t.LastError, "LastErrorAt": timeValue(t.LastErrorAt),
		"Open": t.IsOpen, "Crashes": t.Crashes, "Trying": t.InFlightSeq, "TryingCrashes": t.InFlightCrashes,
		"Closed": t.IsClosed, "Booked": t.MovedRecorded, "Taken": t.SentBelow, "Watched": t.HistoryFence,
	})
}

func tailFrom(r storage.Row) Tail {
	v := values{r.Values}
	return Tail{
		ETag: r.ETag, Nonce: v.string("Nonce"), Fence: v.int("Fence"), CommitSeq: v.int("Commit"), Cursor: v.int("Cursor"),
		Counts:    Counts{v.int("Delivered"), v.int("Dead"), v.int("Cancelled"), v.int("Superseded"), v.int("Moved")},
		NextDueAt: v.time("NextDue"), LastReleasedAt: v.time("Placed"), RequestsSeen: v.int("TouchedSeen"),
		PausedUntil: v.time("PausedUntil"), PauseReason: v.string("PauseReason"), PauseCount: v.int("Pauses"), RefusingSince: v.time("Refusing"), ProbedBelow: v.int("Probed"),
		SettleUntil: v.time("SettleUntil"), NextAllowedAt: v.time("RateNext"),
		Holder: v.string("Holder"), LastError: v.string("LastError"), LastErrorAt: v.time("LastErrorAt"),
		IsOpen: v.bool("Open"), Crashes: v.int("Crashes"), InFlightSeq: v.int("Trying"), InFlightCrashes: v.int("TryingCrashes"),
		IsClosed: v.bool("Closed"), MovedRecorded: v.bool("Booked"), SentBelow: v.int("Taken"), HistoryFence: v.int("Watched"),
	}
}

// ReadControl reads both control rows of a lane in one snapshot.
func (s *Store) ReadControl(ctx context.Context, lane int) (Control, error) {
	rows, err := s.controlRows(ctx, lane)
	if err != nil {
		return Control{}, err
	}
	c := Control{lane: lane, settle: cmp.Or(s.SettleTime, longestSettle)}
	for _, r := range rows {
		switch r.Key {
		case headKey:
			c.Head = headFrom(r)
		case tailKey:
			c.Tail = tailFrom(r)
		default:
			c.notes = append(c.notes, r)
		}
	}
	if c.Head.ETag == "" || c.Tail.ETag == "" {
		return Control{}, &storage.Error{Op: "lane control", Kind: storage.NotFound, Index: -1}
	}
	return c, nil
}

// controlTries bounds how often controlRows reads anew.
const controlTries = 8

// controlRows reads the control rows and the notes between them in one snapshot. Storage may cut
// any answer, and a cut answer that is taken for the whole lacks tail. Pages that follow each
// other are a snapshot only if a second read returns the same versions.
func (s *Store) controlRows(ctx context.Context, lane int) ([]storage.Row, error) {
	var before []storage.Row
	for range controlTries {
		rows, pages, err := s.readControlRows(ctx, lane)
		if err != nil || pages == 1 || before != nil && slices.EqualFunc(before, rows, sameVersion) {
			return rows, err
		}
		before = rows
	}
	return nil, &storage.Error{Op: "lane control", Kind: storage.Unavailable, Index: -1, Err: errNoSnapshot}
}

var errNoSnapshot = errors.New("storage cuts each answer, and the rows change between two")

func sameVersion(a, b storage.Row) bool { return a.Key == b.Key && a.ETag == b.ETag }

func (s *Store) readControlRows(ctx context.Context, lane int) (rows []storage.Row, pages int, err error) {
	q := storage.Query{Partition: s.partition(lane), From: headKey, To: controlAfter}
	for {
		page, err := s.Table.Range(ctx, q)
		if err != nil {
			return nil, pages, err
		}
		rows, pages = append(rows, page.Rows...), pages+1
		if !page.More {
			return rows, pages, nil
		}
		q.From, q.After = "", page.Rows[len(page.Rows)-1].Key
	}
}

// EnsureControlRows makes the lane's control rows where they are missing.
func (s *Store) EnsureControlRows(ctx context.Context, lane int) error { return s.ensure(ctx, lane, 0) }

func (s *Store) ensure(ctx context.Context, lane int, fence int64) error {
	if _, err := s.ReadControl(ctx, lane); !storage.Is(err, storage.NotFound) {
		return err
	}
	_, err := s.Table.Transact(ctx, s.partition(lane), []storage.Op{
		{Kind: storage.Insert, Key: headKey, Values: Head{Next: 1}.values()},
		{Kind: storage.Insert, Key: tailKey, Values: Tail{Cursor: 1, Fence: fence, SentBelow: 1, HistoryFence: 1}.values()},
	})
	if err != nil && !storage.Is(err, storage.Conflict) {
		return err
	}
	return nil
}
