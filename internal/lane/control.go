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
	ETag    storage.ETag
	Next    int64 // next sequence number, from 1
	Touched int64 // raised by every wish
	Sealed  bool  // the number of lanes is being changed: nothing may be filed
}

// Counts says how many messages have come to each end.
type Counts struct {
	Delivered, Dead, Cancelled, Superseded int64
	Moved                                  int64 // out of a closed lane, into the epoch that followed
}

// Sum is the number of messages that are final here.
func (c Counts) Sum() int64 { return c.Delivered + c.Dead + c.Cancelled + c.Superseded + c.Moved }

// Tail is the holder's control row.
type Tail struct {
	ETag   storage.ETag
	Nonce  string // of the holder that wrote last
	Fence  int64  // rises each time the lane changes hands
	Commit int64  // rises with each commit
	Cursor int64  // the next sequence number delivery will look at
	Counts Counts

	NextDue     time.Time // of all that waits below the cursor; zero = nothing does
	Placed      time.Time // in the place of what was released last; see Change.Release
	TouchedSeen int64     // head.Touched up to which wishes were granted
	PausedUntil time.Time // the CMS is unavailable: nothing is sent before
	PauseReason string
	Pauses      int64     // pauses in a row
	Refusing    time.Time // since when the CMS has answered and taken nothing; zero = it takes messages, or does not answer
	Probed      int64     // while Refusing is set: each key below this place in the log had its turn; 0 = not all had
	SettleUntil time.Time // something unanswered may still be at work in the CMS
	RateNext    time.Time // delivery.rate allows nothing before

	Holder      string    // name of the process that took the fence last
	LastError   string    // of the last attempt that was not delivered
	LastErrorAt time.Time // when that was

	Open          bool  // a holder is at work, or died at it
	Crashes       int64 // takeovers in a row that found Open
	Trying        int64 // in careful running: the message about to be sent
	TryingCrashes int64 // crashes it stood in Trying at

	Closed bool // the epoch is over, or about to be: nobody may hold the lane
	Booked bool // and Counts say what moved

	Taken   int64 // nothing from this place in the log on was ever sent; 0 = that is not known
	Watched int64 // the fence from which on all holders have kept l_ rows; 0 = the last one has not
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

// Waiting is the number of messages not final yet.
func (c Control) Waiting() int64 { return c.Head.Next - 1 - c.Tail.Counts.Sum() }

// DueLead is how long before a due time a holder takes the lane, to be there at the moment.
const DueLead = 2 * time.Second

// crashLead is that time where the last holder may have died: what it may have sent has to
// settle before anything is sent, and the next one begins to wait for that when it comes.
const crashLead = 20 * time.Second

func (t Tail) lead() time.Duration {
	if t.Open {
		return crashLead
	}
	return DueLead
}

// Work says whether a holder would find something to do at this moment.
func (c Control) Work(now time.Time) bool {
	if c.Tail.Closed {
		return false
	}
	return c.Head.Next > c.Tail.Cursor || c.Touched() || dueBy(c.Tail.NextDue, now.Add(c.Tail.lead()))
}

// DueAt is NextDue for people: what waits below the cursor goes on then by itself. Zero =
// nothing does, or only once its key is resumed.
func (t Tail) DueAt() time.Time {
	if t.NextDue.Before(weir.Forever) {
		return t.NextDue
	}
	return time.Time{}
}

// Untried reports whether a message may wait that had no turn yet, while the CMS refuses those
// that had one: the pause is for these, and a message of another key must not wait for its end.
func (c Control) Untried(now time.Time) bool {
	return c.Tail.Probed > 0 && (c.Head.Next > c.Tail.Probed || dueBy(c.Tail.NextDue, now))
}

// Touched says whether a wish waits, or a scheduled message has another moment.
func (c Control) Touched() bool { return c.Head.Touched != c.Tail.TouchedSeen }

// WorkAt gives the moment from which there is work that may be sent, and false when
// there is none in sight. A pause, the operator's or the CMS's, puts it off, and so does a
// settling CMS.
func (c Control) WorkAt(now time.Time) (time.Time, bool) {
	at := now
	if !c.Work(now) {
		if c.Tail.NextDue.IsZero() || c.Tail.Closed {
			return time.Time{}, false
		}
		at = c.Tail.NextDue.Add(-c.Tail.lead())
	}
	if c.Touched() && !c.Tail.Closed {
		return now, true // wishes are granted while nothing may be sent, too
	}
	var paused time.Time
	if p, ok := c.Paused(now); ok {
		paused = p.Ends()
	}
	refused := believed(c.Tail.PausedUntil, now.Add(longestPause))
	if c.Untried(now) {
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
	return map[string]any{"Next": h.Next, "Touched": h.Touched, "Sealed": h.Sealed}
}

func headFrom(r storage.Row) Head {
	v := values{r.Values}
	return Head{ETag: r.ETag, Next: v.int("Next"), Touched: v.int("Touched"), Sealed: v.bool("Sealed")}
}

func (t Tail) values() map[string]any {
	return sparse(map[string]any{
		"Nonce": t.Nonce, "Fence": t.Fence, "Commit": t.Commit, "Cursor": t.Cursor,
		"Delivered": t.Counts.Delivered, "Dead": t.Counts.Dead,
		"Cancelled": t.Counts.Cancelled, "Superseded": t.Counts.Superseded, "Moved": t.Counts.Moved,
		"NextDue": timeValue(t.NextDue), "Placed": timeValue(t.Placed), "TouchedSeen": t.TouchedSeen,
		"PausedUntil": timeValue(t.PausedUntil), "PauseReason": t.PauseReason, "Pauses": t.Pauses, "Refusing": timeValue(t.Refusing), "Probed": t.Probed,
		"SettleUntil": timeValue(t.SettleUntil), "RateNext": timeValue(t.RateNext),
		"Holder": t.Holder, "LastError": t.LastError, "LastErrorAt": timeValue(t.LastErrorAt),
		"Open": t.Open, "Crashes": t.Crashes, "Trying": t.Trying, "TryingCrashes": t.TryingCrashes,
		"Closed": t.Closed, "Booked": t.Booked, "Taken": t.Taken, "Watched": t.Watched,
	})
}

func tailFrom(r storage.Row) Tail {
	v := values{r.Values}
	return Tail{
		ETag: r.ETag, Nonce: v.string("Nonce"), Fence: v.int("Fence"), Commit: v.int("Commit"), Cursor: v.int("Cursor"),
		Counts:  Counts{v.int("Delivered"), v.int("Dead"), v.int("Cancelled"), v.int("Superseded"), v.int("Moved")},
		NextDue: v.time("NextDue"), Placed: v.time("Placed"), TouchedSeen: v.int("TouchedSeen"),
		PausedUntil: v.time("PausedUntil"), PauseReason: v.string("PauseReason"), Pauses: v.int("Pauses"), Refusing: v.time("Refusing"), Probed: v.int("Probed"),
		SettleUntil: v.time("SettleUntil"), RateNext: v.time("RateNext"),
		Holder: v.string("Holder"), LastError: v.string("LastError"), LastErrorAt: v.time("LastErrorAt"),
		Open: v.bool("Open"), Crashes: v.int("Crashes"), Trying: v.int("Trying"), TryingCrashes: v.int("TryingCrashes"),
		Closed: v.bool("Closed"), Booked: v.bool("Booked"), Taken: v.int("Taken"), Watched: v.int("Watched"),
	}
}

// Control reads both control rows of a lane in one snapshot.
func (s *Store) Control(ctx context.Context, lane int) (Control, error) {
	rows, err := s.controlRows(ctx, lane)
	if err != nil {
		return Control{}, err
	}
	c := Control{lane: lane, settle: cmp.Or(s.Settle, longestSettle)}
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

// Ensure makes the lane's control rows where they are missing.
func (s *Store) Ensure(ctx context.Context, lane int) error { return s.ensure(ctx, lane, 0) }

func (s *Store) ensure(ctx context.Context, lane int, fence int64) error {
	if _, err := s.Control(ctx, lane); !storage.Is(err, storage.NotFound) {
		return err
	}
	_, err := s.Table.Transact(ctx, s.partition(lane), []storage.Op{
		{Kind: storage.Insert, Key: headKey, Values: Head{Next: 1}.values()},
		{Kind: storage.Insert, Key: tailKey, Values: Tail{Cursor: 1, Fence: fence, Taken: 1, Watched: 1}.values()},
	})
	if err != nil && !storage.Is(err, storage.Conflict) {
		return err
	}
	return nil
}
