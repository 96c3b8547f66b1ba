package notify

import (
	"context"
	"fmt"
	"slices"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
)

// paused is the data of lane.paused and lane.resumed.
type paused struct {
	Lane   int        `json:"lane"`
	By     string     `json:"by,omitempty"` // operator or cms
	Reason string     `json:"reason,omitempty"`
	Since  time.Time  `json:"since"`
	Until  *time.Time `json:"until,omitempty"` // where it ends by itself, or is looked at again
}

// behind is the data of lane.behind and lane.caught_up.
type behind struct {
	Lane       int        `json:"lane"`
	Waiting    int64      `json:"waiting"`
	OldestAt   *time.Time `json:"oldestWaitingAt,omitempty"`
	AgeSeconds int64      `json:"oldestWaitingSeconds"`
}

// Look takes in what a sweep has read of a lane: there may be mail in its outbox.
func (s *Sender) Look(number int, c lane.Control) {
	if tag := c.Mail(); tag != "" && !s.knows(place{s.Store.Epoch, number}, tag) {
		s.Nudge(number)
	}
}

// State tells what receivers want to know of a lane's own state, as a sweep has read it. oldest
// is since when the oldest of what waits could have been delivered; zero = nothing does.
func (s *Sender) State(ctx context.Context, number int, c lane.Control, oldest time.Time) {
	if !s.anybodyWants(LanePaused) && !s.anybodyWants(LaneBehind) || c.Head.Sealed {
		return
	}
	if err := s.state(ctx, number, c, oldest); err != nil && ctx.Err() == nil {
		s.Log.Warn("notify: state of a lane not told", "lane", number, "err", err)
	}
}

func (s *Sender) anybodyWants(event string) bool {
	return slices.ContainsFunc(s.Receivers, func(r Receiver) bool { return r.wants(event) })
}

// knows says whether the outbox was looked at since the note got this version: then its desk
// comes back to it by itself.
func (s *Sender) knows(at place, tag storage.ETag) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.desks[at]
	return d != nil && d.seen == tag
}

// state tells of a lane that has been paused, or behind, for longer than receivers want, and
// of the end of it.
func (s *Sender) state(ctx context.Context, number int, c lane.Control, oldest time.Time) error {
	now := s.Now().UTC().Truncate(time.Microsecond)
	told := c.Told()
	next := lane.Told{ETag: told.ETag}
	pausedMail, err := s.pausedMail(number, c, told, &next, now)
	if err != nil {
		return err
	}
	behindMail, err := s.behindMail(number, c, oldest, told, &next, now)
	if err != nil || same(told, next) {
		return err
	}
	mail := slices.Concat(pausedMail, behindMail)
	ours, err := s.Store.Tell(ctx, number, next, mail)
	if ours && len(mail) > 0 {
		s.Nudge(number)
	}
	return err
}

func same(a, b lane.Told) bool {
	return a.Paused.Equal(b.Paused) && slices.Equal(a.PausedTo, b.PausedTo) && slices.Equal(a.BehindTo, b.BehindTo)
}

// pauseOf says whether and why a lane is paused. A CMS that is away is asked again and
// again; the pause lasts until it has judged a message, or none is left.
func pauseOf(number int, c lane.Control, now time.Time) (p paused, is bool) {
	if o, by := c.Paused(now); by {
		p = paused{Lane: number, By: "operator", Reason: o.Reason, Since: o.Since}
		if !o.Until.IsZero() {
			p.Until = &o.Until
		}
		return p, true
	}
	if c.Tail.Pauses > 0 && c.Waiting() > 0 {
		until := c.Tail.PausedUntil
		return paused{Lane: number, By: "cms", Reason: c.Tail.PauseReason, Since: now, Until: &until}, true
	}
	return paused{}, false
}

func (s *Sender) pausedMail(number int, c lane.Control, told lane.Told, next *lane.Told, now time.Time) ([]lane.Mail, error) {
	p, is := pauseOf(number, c, now)
	if !is {
		return s.mailAll(number, told.PausedTo, LaneResumed, told.Paused, now, paused{Lane: number, Since: told.Paused})
	}
	if !s.anybodyWants(LanePaused) {
		return nil, nil
	}
	// From when it was first seen on, where that is known: a pause of another kind that
	// follows it is the same to whoever waits.
	if next.Paused = told.Paused; next.Paused.IsZero() {
		next.Paused = p.Since.UTC().Truncate(time.Microsecond)
	}
	p.Since, next.PausedTo = next.Paused, told.PausedTo
	var to []string
	for _, r := range s.Receivers {
		if r.wants(LanePaused) && !slices.Contains(told.PausedTo, r.name()) && now.Sub(p.Since) >= r.PausedFor {
			to = append(to, r.name())
		}
	}
	next.PausedTo = append(slices.Clone(told.PausedTo), to...)
	return s.mailAll(number, to, LanePaused, p.Since, now, p)
}

func (s *Sender) behindMail(number int, c lane.Control, oldest time.Time, told lane.Told, next *lane.Told, now time.Time) ([]lane.Mail, error) {
	if !s.anybodyWants(LaneBehind) && len(told.BehindTo) == 0 {
		return nil, nil
	}
	data := behind{Lane: number, Waiting: c.Waiting()}
	var age time.Duration
	if !oldest.IsZero() {
		age = now.Sub(oldest)
		data.OldestAt, data.AgeSeconds = &oldest, int64(age.Seconds())
	}
	var is, was []string
	for _, r := range s.Receivers {
		knows := slices.Contains(told.BehindTo, r.name())
		switch {
		case r.wants(LaneBehind) && !knows && age >= r.BehindBy:
			is = append(is, r.name())
		case knows && age < r.BehindBy/2: // well below, or it would be told again and again
			was = append(was, r.name())
		case knows:
			next.BehindTo = append(next.BehindTo, r.name())
		}
	}
	next.BehindTo = append(next.BehindTo, is...)
	mail, err := s.mailAll(number, is, LaneBehind, now, now, data)
	if err != nil {
		return nil, err
	}
	over, err := s.mailAll(number, was, LaneCaughtUp, now, now, data)
	return append(mail, over...), err
}

// mailAll makes an event for several receivers. since tells its occurrence apart from others.
func (s *Sender) mailAll(number int, to []string, kind string, since, now time.Time, data any) ([]lane.Mail, error) {
	if len(to) == 0 {
		return nil, nil
	}
	body, err := plain(kind, now, data)
	if err != nil {
		return nil, err
	}
	event := fmt.Sprint(s.Store.MailLease(number), since.UnixMicro())
	var mail []lane.Mail
	for _, name := range to {
		if _, known := s.byName[name]; known {
			mail = append(mail, lane.NewMail(kind, event, now, name, body))
		}
	}
	return mail, nil
}

// ReplayFinished tells that a bulk replay has ended. The same one told again has the same
// webhook-id.
func (s *Sender) ReplayFinished(ctx context.Context, id string, at time.Time, data any) error {
	var to []string
	for _, r := range s.Receivers {
		if r.wants(ReplayFinished) {
			to = append(to, r.name())
		}
	}
	if len(to) == 0 {
		return nil
	}
	body, err := plain(ReplayFinished, at, data)
	if err != nil {
		return err
	}
	var mail []lane.Mail
	for _, name := range to {
		mail = append(mail, lane.NewMail(ReplayFinished, id, at, name, body))
	}
	if err := s.Store.Post(ctx, 0, mail); err != nil {
		return err
	}
	s.Nudge(0)
	return nil
}
