package notify

import (
	"context"
	"fmt"
	"slices"
	"time"

	"weir/internal/lane"
	"weir/internal/lane/outbox"
	"weir/internal/storage"
)

// pauseData is the data of lane.paused and lane.resumed.
type pauseData struct {
	Lane   int       `json:"lane"`
	By     string    `json:"by,omitempty"` // the cause of the pause: "operator" or "cms"
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since"`
	// end of the pause, or time of the next try to reach the CMS
	Until *time.Time `json:"until,omitempty"`
}

// backlogData is the data of lane.behind and lane.caught_up.
type backlogData struct {
	Lane       int        `json:"lane"`
	Waiting    int64      `json:"waiting"`
	OldestAt   *time.Time `json:"oldestWaitingAt,omitempty"`
	AgeSeconds int64      `json:"oldestWaitingSeconds"`
}

// brakeData is the data of contract.rejected. All lanes send the same data about a brake.
type brakeData struct {
	Contract    string    `json:"contract"`
	Fingerprint string    `json:"fingerprint"`
	CMSStatus   int       `json:"cmsStatus,omitempty"`
	Reason      string    `json:"reason"`
	Since       time.Time `json:"since"`
}

// ObserveLane wakes a worker if a lane's outbox may have events that this process has not read. The
// argument c has the control rows that a sweep has read.
func (s *Sender) ObserveLane(number int, c lane.Control) {
	if tag := outbox.MarkerOf(c); tag != "" &&
		!s.hasSeenMarker(outboxID{s.Store.Epoch, number}, tag) {
		s.WakeOutbox(number)
	}
}

// ReportLane enqueues the events about a lane's pauses and backlogs. The argument c has the control
// rows that a sweep has read. The argument oldest is the time from which the oldest waiting message
// could have been delivered; zero = no message waits.
func (s *Sender) ReportLane(ctx context.Context, number int, c lane.Control, oldest time.Time) {
	subscribed := s.hasSubscriber(LanePaused) || s.hasSubscriber(LaneBehind) ||
		s.hasSubscriber(ContractRejected)
	if !subscribed || c.Head.IsSealed {
		return
	}

	if err := s.reportLane(ctx, number, c, oldest); err != nil && ctx.Err() == nil {
		s.Log.Warn("notify: lane events not enqueued", "lane", number, "err", err)
	}
}

func (s *Sender) hasSubscriber(event string) bool {
	return slices.ContainsFunc(s.Receivers, func(r Receiver) bool { return r.wantsEvent(event) })
}

// hasSeenMarker reports whether this process has a worker that has read the outbox at this version
// of the marker. Such a worker reads the outbox again without a wake.
func (s *Sender) hasSeenMarker(at outboxID, tag storage.ETag) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.workers[at]
	return d != nil && d.knownMarker == tag
}

// reportLane enqueues an event for each receiver whose threshold for a pause or a backlog is
// reached. It also enqueues the events about the end of a pause or a backlog. It enqueues nothing
// if another process has written the lane's state (outbox.LaneState) after c was read.
func (s *Sender) reportLane(ctx context.Context, number int, c lane.Control,
	oldest time.Time) error {
	now := s.Now().UTC().Truncate(time.Microsecond)
	told := outbox.LaneStateOf(c)
	next := outbox.LaneState{ETag: told.ETag}
	pausedMail, err := s.newPauseMail(number, c, told, &next, now)
	if err != nil {
		return err
	}

	behindMail, err := s.newBacklogMail(number, c, oldest, told, &next, now)
	if err != nil {
		return err
	}

	brakeMail, err := s.newBrakeMail(c, told, &next)
	if err != nil || isSameState(told, next) {
		return err
	}

	mail := slices.Concat(pausedMail, behindMail, brakeMail)
	ours, err := outboxOf(s.Store, number).SaveLaneState(ctx, next, mail)
	if ours && len(mail) > 0 {
		s.WakeOutbox(number)
	}

	return err
}

func isSameState(a, b outbox.LaneState) bool {
	return a.PausedSince.Equal(b.PausedSince) &&
		slices.Equal(a.PausedReceivers, b.PausedReceivers) &&
		slices.Equal(a.BehindReceivers, b.BehindReceivers) && slices.Equal(a.Brakes, b.Brakes)
}

// newBrakeMail returns the events about brakes of which receivers do not know yet, and records in
// next of which they know. The id of an event names the brake and not the lane, so that a receiver
// sees that the events of several lanes are the same.
func (s *Sender) newBrakeMail(c lane.Control, told outbox.LaneState,
	next *outbox.LaneState) ([]outbox.Event, error) {
	var mail []outbox.Event
	for _, b := range c.Tail.Brakes {
		body, err := encodeEvent(ContractRejected, b.Since,
			brakeData{Contract: b.Contract, Fingerprint: b.Fingerprint,
				CMSStatus: b.CMSStatus, Reason: b.Reason, Since: b.Since})
		if err != nil {
			return nil, err
		}

		event := fmt.Sprint("brake-", b.Fingerprint, b.Since.UnixMicro())
		for _, r := range s.Receivers {
			if !r.wantsEvent(ContractRejected) || !r.wantsContract(b.Contract) {
				continue
			}

			known := r.rowName() + "/" + b.Fingerprint
			if next.Brakes = append(next.Brakes, known); !slices.Contains(told.Brakes, known) {
				mail = append(mail,
					outbox.NewEvent(ContractRejected, event, b.Since, r.rowName(), body))
			}
		}
	}

	return mail, nil
}

// findPause returns the pause of a lane, and reports whether the lane is paused. A pause for the
// CMS goes on while Weir tries to reach the CMS again. It ends when the CMS has answered for a
// message, or no message waits.
func findPause(number int, c lane.Control, now time.Time) (p pauseData, is bool) {
	if o, by := c.LanePause(now); by {
		p = pauseData{Lane: number, By: "operator", Reason: o.Reason, Since: o.Since}
		if !o.Until.IsZero() {
			p.Until = &o.Until
		}
		return p, true
	}

	if c.Tail.PauseCount > 0 && c.WaitingCount() > 0 {
		until := c.Tail.PausedUntil
		return pauseData{Lane: number, By: "cms", Reason: c.Tail.PauseReason, Since: now,
			Until: &until}, true
	}

	return pauseData{}, false
}

// newPauseMail returns the events about the beginning or the end of a pause, and records the pause
// in next.
func (s *Sender) newPauseMail(number int, c lane.Control, told outbox.LaneState,
	next *outbox.LaneState, now time.Time) ([]outbox.Event, error) {
	p, is := findPause(number, c, now)
	if !is {
		return s.newMails(number, told.PausedReceivers, LaneResumed, told.PausedSince, now,
			pauseData{Lane: number, Since: told.PausedSince})
	}

	if !s.hasSubscriber(LanePaused) {
		return nil, nil
	}

	// If an operator's pause and a pause for the CMS follow each other without a gap, they count as
	// one pause, because receivers see one interruption.
	if next.PausedSince = told.PausedSince; next.PausedSince.IsZero() {
		next.PausedSince = p.Since.UTC().Truncate(time.Microsecond)
	}

	p.Since, next.PausedReceivers = next.PausedSince, told.PausedReceivers
	var to []string
	for _, r := range s.Receivers {
		if r.wantsEvent(LanePaused) && !slices.Contains(told.PausedReceivers, r.rowName()) &&
			now.Sub(p.Since) >= r.PausedFor {
			to = append(to, r.rowName())
		}
	}

	next.PausedReceivers = append(slices.Clone(told.PausedReceivers), to...)

	return s.newMails(number, to, LanePaused, p.Since, now, p)
}

// newBacklogMail returns the events about the beginning or the end of a backlog, and records the
// backlog in next.
func (s *Sender) newBacklogMail(number int, c lane.Control, oldest time.Time, told outbox.LaneState,
	next *outbox.LaneState,
	now time.Time) ([]outbox.Event, error) {
	if !s.hasSubscriber(LaneBehind) && len(told.BehindReceivers) == 0 {
		return nil, nil
	}

	data := backlogData{Lane: number, Waiting: c.WaitingCount()}
	var age time.Duration
	if !oldest.IsZero() {
		age = now.Sub(oldest)
		data.OldestAt, data.AgeSeconds = &oldest, int64(age.Seconds())
	}

	var is, was []string
	for _, r := range s.Receivers {
		knows := slices.Contains(told.BehindReceivers, r.rowName())
		switch {
		case r.wantsEvent(LaneBehind) && !knows && age >= r.BehindBy:
			is = append(is, r.rowName())
		case knows && age < r.BehindBy/2: // at half of BehindBy, so that LaneBehind and LaneCaughtUp do not alternate
			was = append(was, r.rowName())
		case knows:
			next.BehindReceivers = append(next.BehindReceivers, r.rowName())
		}
	}

	next.BehindReceivers = append(next.BehindReceivers, is...)
	mail, err := s.newMails(number, is, LaneBehind, now, now, data)
	if err != nil {
		return nil, err
	}

	over, err := s.newMails(number, was, LaneCaughtUp, now, now, data)

	return append(mail, over...), err
}

// newMails returns an event for each receiver in the list "to", if the receiver is still in the
// settings. The argument "since" is part of the event's id, so that two pauses of a lane have
// different events.
func (s *Sender) newMails(number int, to []string, kind string, since, now time.Time,
	data any) ([]outbox.Event, error) {
	if len(to) == 0 {
		return nil, nil
	}

	body, err := encodeEvent(kind, now, data)
	if err != nil {
		return nil, err
	}

	event := fmt.Sprint(outboxOf(s.Store, number).LeaseName(), since.UnixMicro())
	var mail []outbox.Event
	for _, name := range to {
		if _, known := s.receiverByName[name]; known {
			mail = append(mail, outbox.NewEvent(kind, event, now, name, body))
		}
	}

	return mail, nil
}

// ReplayFinished enqueues the event which says that a bulk replay has ended. A repeated call makes
// an event with the same webhook-id.
func (s *Sender) ReplayFinished(ctx context.Context, id string, at time.Time, data any) error {
	var to []string
	for _, r := range s.Receivers {
		if r.wantsEvent(ReplayFinished) {
			to = append(to, r.rowName())
		}
	}

	if len(to) == 0 {
		return nil
	}

	body, err := encodeEvent(ReplayFinished, at, data)
	if err != nil {
		return err
	}

	var mail []outbox.Event
	for _, name := range to {
		mail = append(mail, outbox.NewEvent(ReplayFinished, id, at, name, body))
	}

	if err := outboxOf(s.Store, 0).Enqueue(ctx, mail); err != nil {
		return err
	}

	s.WakeOutbox(0)

	return nil
}
