package overview

import (
	"context"
	"slices"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/weir"
)

// source is one lane of a search. It gives the lane's messages, the newest first: from the
// log backwards, or, where an index of the lane names those of the stage that is looked for,
// by their numbers.
type source struct {
	*search
	store   *lane.Store
	lane    int
	earlier bool  // of an epoch that is over
	share   int   // of the bodies to be looked through
	batch   int   // and of those, at a time
	span    int64 // of the log, to be read first

	past  *lane.Past // nil = an index alone tells
	dead  bool       // past is of the list of dead messages
	floor int64      // past is read down to here
	picks []int64    // numbers to be read next, falling
	rest  []int64    // and when past is read

	ready []*lane.Entry // found and not handed out

	opened int   // bytes of bodies that were looked through
	full   bool  // the share is used up
	resume int64 // and the search goes on below here
}

// picksAtOnce is how many messages that an index names are read at once.
const picksAtOnce = 50

// deadSpan is how much of the log the list of dead messages is read for at first: it is
// thin, mostly.
const deadSpan = 10_000

// standingPages is how much of what waits in lines or is scheduled a search reads; where
// there is more, the log is searched instead.
const standingPages = 10

// open finds out where to begin. before is the number below which to go on; 0 = begin with
// the newest.
func (s *source) open(ctx context.Context, before int64) error {
	control, err := s.store.Control(ctx, s.lane)
	if storage.Is(err, storage.NotFound) && s.earlier {
		return nil // dropped: nothing is left of it
	}
	if err != nil {
		return err
	}
	looks, next := 1, control.Head.Next
	switch {
	case before > 0:
		next = min(before, next)
	case !s.filter.To.IsZero():
		var more int
		if next, more, err = s.store.FirstAfter(ctx, s.lane, next, s.filter.To.Add(clockMargin)); err != nil {
			return err
		}
		looks += more
	}
	s.spend(cost{looks: looks})
	s.past = s.store.Past(s.lane, next, s.span)
	switch {
	case s.filter.Stage == weir.Dead || s.filter.Fingerprint != "":
		s.dead, s.past = true, s.store.Past(s.lane, next, deadSpan)
	case s.filter.Stage == weir.Scheduled || s.filter.Stage == weir.Retrying || s.filter.Stage == weir.Queued:
		return s.openStanding(ctx, control.Tail.Cursor)
	}
	return nil
}

// openStanding has the lane's lines and its scheduled messages tell what waits below the
// cursor; only what is queued stands in the log besides, above it.
func (s *source) openStanding(ctx context.Context, cursor int64) error {
	standing, err := s.store.Standing(ctx, s.lane, standingPages)
	if err != nil {
		return err
	}
	s.spend(cost{looks: 1, rows: len(standing.Held) + len(standing.Dues)})
	if !standing.Whole {
		return nil
	}
	var picks []int64
	for _, h := range standing.Held {
		if h.Tried == (s.filter.Stage == weir.Retrying) {
			picks = append(picks, h.Seq)
		}
	}
	if s.filter.Stage == weir.Scheduled {
		picks = picks[:0]
		for _, d := range standing.Dues {
			picks = append(picks, d.Seq)
		}
	}
	s.floor = s.past.Before
	if s.filter.Stage == weir.Queued {
		s.floor = cursor
	}
	slices.Sort(picks)
	slices.Reverse(picks)
	s.rest = slices.DeleteFunc(picks, func(seq int64) bool { return seq >= min(s.floor, s.past.Before) })
	return nil
}

// pastDone says whether the log, or the list of dead ones, was read as far as it matters.
func (s *source) pastDone() bool { return s.past == nil || s.past.Before <= max(s.floor, 1) }

// done says whether nothing is left to be read.
func (s *source) done() bool {
	return !s.full && len(s.picks) == 0 && len(s.rest) == 0 && s.pastDone()
}

// end gives up what is left: it is none of what is looked for.
func (s *source) end() { s.past, s.picks, s.rest = nil, nil, nil }

// before is the number below which a later search goes on.
func (s *source) before() int64 {
	switch {
	case len(s.ready) > 0:
		return s.ready[0].Seq() + 1
	case s.full:
		return s.resume
	case len(s.picks) > 0:
		return s.picks[0] + 1
	case !s.pastDone():
		return s.past.Before
	case len(s.rest) > 0:
		return s.rest[0] + 1
	}
	return 1
}

// read reads on, and keeps what is looked for. It may find nothing where more is left.
func (s *source) read(ctx context.Context) error {
	if s.dead && len(s.picks) == 0 {
		if err := s.readDead(ctx); err != nil {
			return err
		}
	}
	if len(s.picks) == 0 && s.pastDone() {
		s.picks, s.rest = s.rest, nil
	}
	var entries []*lane.Entry
	var err error
	switch {
	case len(s.picks) > 0:
		entries, err = s.readPicks(ctx)
	case !s.dead:
		entries, err = s.readLog(ctx)
	}
	if err != nil {
		return err
	}
	return s.keep(ctx, entries)
}

func (s *source) readDead(ctx context.Context) error {
	looks, rows := s.past.Looks, s.past.Rows
	list, err := s.past.ReadDead(ctx)
	s.spend(cost{s.past.Looks - looks, s.past.Rows - rows})
	for _, d := range list {
		if s.filter.takesDead(d) {
			s.picks = append(s.picks, d.Seq)
		}
	}
	return err
}

func (s *source) readPicks(ctx context.Context) ([]*lane.Entry, error) {
	n := min(len(s.picks), picksAtOnce)
	entries, looks, err := s.store.ReadMany(ctx, s.lane, s.picks[:n])
	s.picks = s.picks[n:]
	if s.dead {
		looks = 0 // each of them is shown, mostly: their number is bounded by the limit
	}
	s.spend(cost{looks, len(entries)})
	return entries, err
}

func (s *source) readLog(ctx context.Context) ([]*lane.Entry, error) {
	looks, rows := s.past.Looks, s.past.Rows
	entries, err := s.past.Read(ctx)
	s.spend(cost{s.past.Looks - looks, s.past.Rows - rows})
	return slices.DeleteFunc(entries, func(e *lane.Entry) bool { return e.Seq() < s.floor }), err
}

// keep keeps what is looked for.
func (s *source) keep(ctx context.Context, entries []*lane.Entry) error {
	var found []*lane.Entry
	for _, e := range entries {
		if s.filter.past(e) {
			s.end()
			break
		}
		copied := s.earlier && (e.Stage == weir.Scheduled || e.Stage == weir.Dead)
		if !copied && s.filter.takes(e) {
			found = append(found, e)
		}
	}
	if s.filter.Text == "" {
		s.ready = found
		return nil
	}
	return s.lookThrough(ctx, found)
}

// lookThrough keeps what has the text. Where the bodies' share is used up the search ends
// here, and goes on here.
func (s *source) lookThrough(ctx context.Context, found []*lane.Entry) error {
	hits := map[*lane.Entry]bool{}
	var closed []*lane.Entry // whose bodies have to be opened
	held := 0
	for i, e := range found {
		size := e.Message.Size
		switch {
		case s.needle.inRow(e):
			hits[e] = true
		case e.InBlob() || size > searchBodies:
			s.unsearched()
		case s.opened > 0 && s.opened+size > s.share:
			s.full, s.resume, found = true, e.Seq()+1, found[:i]
		default:
			if held > 0 && held+size > s.batch {
				if err := s.openBodies(ctx, closed, hits); err != nil {
					return err
				}
				closed, held = nil, 0
			}
			s.opened, held = s.opened+size, held+size
			closed = append(closed, e)
		}
		if s.full {
			break
		}
	}
	if err := s.openBodies(ctx, closed, hits); err != nil {
		return err
	}
	s.ready = slices.DeleteFunc(found, func(e *lane.Entry) bool { return !hits[e] })
	return nil
}

// openBodies opens bodies, notes which of them have the text, and keeps none.
func (s *source) openBodies(ctx context.Context, closed []*lane.Entry, hits map[*lane.Entry]bool) error {
	looks, err := s.store.LoadInline(ctx, s.lane, closed)
	if err != nil {
		return err
	}
	s.spend(cost{looks: looks})
	for _, e := range closed {
		hits[e] = s.needle.inBody(e.Message.Body)
		e.Message.Body = nil
	}
	return nil
}
