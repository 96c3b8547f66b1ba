package dashboard

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"weir/internal/httpio"
	"weir/internal/weir"
	"weir/internal/wire"
)

type messageView struct {
	*page
	M          wire.MessageLine
	Look       badge
	Events     []event
	WithBody   bool
	Body       []token
	BodyCut    bool
	BodyError  string
	IsRedacted bool // the page hides values of the body, or the whole body
	Edited     bool
	Difference string

	DifferenceCut bool
	// DifferenceError is the reason why there is no difference, such as the size of the bodies.
	DifferenceError string
	Preview         *preview // nil = no preview was made
	Changes         []Change // newest first
	CanReplay       bool
	Obstacle        string // the reason why a replay needs force; "" = no force is needed
	CanCancel       bool
}

// BodyVersion returns the version of the body that the page shows. Each edit changes the version.
// An erasure also changes the version, because an open page must then remove the body.
func (v *messageView) BodyVersion() string {
	if !v.M.ErasedAt.IsZero() {
		return "erased"
	}
	if v.Edited {
		return formatISO(v.M.Edited.At)
	}
	return "accepted"
}

// Which returns the name of the body that the page shows: "edited" if the message was edited,
// otherwise "accepted".
func (v *messageView) Which() string {
	if v.Edited {
		return "edited"
	}
	return "accepted"
}

// event is an event in a message's history.
type event struct {
	At    time.Time
	Look  badge
	Title string
	Text  string
	Facts []labelledValue
	Wait  string // time since the previous event
	Link  string // id of a related message
	// note on earlier events that have no entry: attempts that are not kept, or a replay
	Gap string

	IsFirstAttempt bool
}

// NextAt returns the one time at which a waiting message is expected to be sent; zero = not known.
// The message's own retry can be due while a pause or an earlier message of its key still holds it
// up; then the forecast counts.
func (v *messageView) NextAt() time.Time {
	if v.M.ExpectedAt.After(v.M.NextAttemptAt) {
		return v.M.ExpectedAt
	}
	return v.M.NextAttemptAt
}

type labelledValue struct{ Name, Value string }

func (d *Dashboard) messagePage(ctx context.Context, p *page, r *http.Request) (view, error) {
	id, err := httpio.MessageID(r)
	if err != nil {
		return nil, err
	}

	m, err := d.Source.Message(ctx, id)
	if err != nil {
		return nil, err
	}

	v := &messageView{page: p, M: m, Look: stageBadge(m.Stage), Edited: m.Edited.Exists(),
		CanReplay: m.Stage == weir.Dead && m.ErasedAt.IsZero(), CanCancel: !m.Stage.Final()}
	p.Title, p.Refresh = "Message "+m.ID, true
	v.Events = messageEvents(m.Message, p.Now)
	reading := d.newLoader(ctx, p)
	reading.loadChangesOf(m, &v.Changes)
	var uncounted wire.Uncounted
	if from, to, isLong := m.FirstLongWait(); isLong {
		reading.loadPart("the pauses of its lane", func() (err error) {
			uncounted, err = d.Source.Uncounted(ctx, m.Lane, from, to)
			return err
		})
	}

	if v.CanReplay {
		reading.loadObstacleOf(id, &v.Obstacle)
	}

	// otherwise the request is an update, and the browser already has the body
	if p.known != v.BodyVersion() {
		release, err := d.Reads.Take(ctx)
		p.held = append(p.held, release)
		if v.WithBody = true; err == nil {
			d.loadBodies(reading, v, id)
		} else {
			p.noteUnread("the body")
		}
	}

	reading.waitAll()
	v.explainFirstWait(uncounted)

	return v, nil
}

// explainFirstWait notes in the story that the CMS was away, or refused everything, before the
// first attempt. Attempts that do not count have no event of their own.
func (v *messageView) explainFirstWait(u wire.Uncounted) {
	for i := range v.Events {
		if e := &v.Events[i]; len(v.M.AttemptLog) > 0 && e.IsFirstAttempt && e.Gap == "" {
			e.Gap = u.Sentence()
		}
	}
}

// loadBodies loads the body, the preview of the requests if the message can still be sent, and the
// difference if it was edited.
func (d *Dashboard) loadBodies(reading *loader, v *messageView, id weir.ID) {
	ctx := reading.ctx
	reading.loadPart("the body", func() error {
		body, err := d.Source.Body(ctx, id, v.Edited)
		if e, ok := asError(err); ok && (e.Kind == weir.NotFound || e.Kind == weir.Conflict) {
			v.BodyError = cmp.Or(e.Message, "the body is not kept any more")
			v.IsRedacted = e.Kind == weir.Conflict
			return nil
		}

		part, cut := firstPart(body.Text)
		v.Body, v.BodyCut, v.IsRedacted = indentXML(part), cut, body.IsRedacted

		return err
	})

	if v.CanReplay || v.CanCancel { // otherwise no request of the message follows
		reading.loadPart("the requests", func() error {
			t, err := d.Source.Try(ctx, id, v.Edited)
			if e, ok := asError(err); ok && (e.Kind == weir.NotFound || e.Kind == weir.Conflict) {
				return nil // the load of the body reports the same reason
			}

			if err == nil {
				v.Preview = newPreview(&t)
			}

			return err
		})
	}

	if v.Edited {
		reading.loadPart("the difference", func() error {
			text, err := d.Source.Difference(ctx, id)
			if e, ok := asError(err); ok && e.Kind == weir.TooLarge {
				v.DifferenceError = e.Message
				return nil
			}

			v.Difference, v.DifferenceCut = firstPart(text)
			return err
		})
	}
}

// messageEvents returns the events of a message in the order of time. If the holder has not carried
// out the last requested replay, this request is the last event.
func messageEvents(m wire.Message, now time.Time) []event {
	events := []event{{At: m.AcceptedAt, Look: badge{"accepted", "in", "info"}, Title: "Accepted"}}
	if !m.DeliverAt.IsZero() {
		e := event{At: m.DeliverAt, Look: badge{"due", "clock", "info"}, Title: "Due"}
		if m.DeliverAt.After(now) {
			e.Title = "Will be due"
		}
		events = append(events, e)
	}

	events = append(events, attemptEvents(m)...)
	if m.Edited.Exists() {
		e := event{At: m.Edited.At, Look: badge{"edited", "pen", "info"},
			Title: "Edited, to be replayed", Text: m.Edited.Note}
		if editedLast(m) {
			e.Facts = forcedFact(m)
		}
		events = append(events, e)
	}

	asked, done := lastReplay(m)
	if done {
		events = append(events, asked...)
	}

	slices.SortStableFunc(events, func(a, b event) int { return a.At.Compare(b.At) })

	for i := 1; i < len(events); i++ {
		if wait := events[i].At.Sub(events[i-1].At); wait >= time.Millisecond &&
			events[i].Wait == "" {
			events[i].Wait = spanText(wait)
		}
	}

	events = append(events, outcomeEvents(m, now)...)
	if !done {
		events = append(events, asked...)
	}

	return events
}

// lastReplay returns the event of the last requested replay, and reports whether the holder carried
// out the replay. For a replay that came with an edit and was carried out, lastReplay returns nil
// and false, because the event of the edit mentions the replay.
func lastReplay(m wire.Message) (asked []event, done bool) {
	if m.ReplayAskedAt.IsZero() {
		return nil, false
	}

	e := event{At: m.ReplayAskedAt, Look: badge{"replayed", "in", "info"}, Title: "Replayed",
		Facts: forcedFact(m)}
	done = m.Stage != weir.Dead || m.FinishedAt.After(m.ReplayAskedAt)
	switch {
	case !done:
		e.Title, e.Text = "Replay asked for", m.ReplayRefused
	case editedLast(m):
		return nil, false
	}

	return []event{e}, done
}

// editedLast reports whether the last requested replay came with an edit.
func editedLast(m wire.Message) bool {
	return !m.ReplayAskedAt.IsZero() && !m.Edited.At.Before(m.ReplayAskedAt)
}

// forcedFact returns a note if the last replay was forced. A forced replay can replace newer
// content in the CMS.
func forcedFact(m wire.Message) []labelledValue {
	if !m.ReplayForced {
		return nil
	}
	return []labelledValue{{"by force", "whatever was delivered since"}}
}

// stepText describes the answer to one request of a chain.
func stepText(s wire.Step) string {
	text := "no answer"
	if s.Status != 0 {
		text = formatCount(s.Status)
	}

	text += " in " + spanText(time.Duration(s.Duration))
	if s.Reason != "" {
		text += ", then from the first step again: " + s.Reason
	}

	return text
}

func attemptEvents(m wire.Message) []event {
	var events []event
	for i, a := range m.AttemptLog {
		l := outcomeBadge(a.Outcome)
		e := event{At: a.At, Look: l, IsFirstAttempt: a.Number == 1,
			Title: "Attempt " + formatCount(a.Number) + ": " + l.Word, Text: a.Reason}
		if a.Number == 0 || i > 0 && a.Number == m.AttemptLog[i-1].Number {
			e.Title = "Not counted" // for example, storage did not return the body
		}

		if a.Status != 0 {
			e.Facts = append(e.Facts, labelledValue{"the CMS answered", formatCount(a.Status)})
		}

		e.Facts = append(e.Facts, labelledValue{"took", spanText(time.Duration(a.Duration))})
		for _, s := range a.Steps {
			e.Facts = append(e.Facts, labelledValue{"step " + s.Name, stepText(s)})
		}

		if a.Answer != "" {
			e.Facts = append(e.Facts, labelledValue{"answer", a.Answer})
		}

		if i > 0 && a.Number > m.AttemptLog[i-1].Number+1 {
			e.Gap = formatPlural(a.Number-m.AttemptLog[i-1].Number-1, "attempt is", "attempts are") + " not kept"
		} else if i > 0 && m.AttemptLog[i-1].Outcome == weir.OutcomeRejected &&
			!(m.ReplayAskedAt.After(m.AttemptLog[i-1].At) && m.ReplayAskedAt.Before(a.At)) {
			e.Gap = "dead, then replayed"
		}

		events = append(events, e)
	}

	return events
}

// outcomeEvents returns the event that made the message final, or an event that says that the
// message waits. For a discarded message it also returns the event of its death.
func outcomeEvents(m wire.Message, now time.Time) []event {
	l := stageBadge(m.Stage)
	switch m.Stage {
	case weir.Delivered:
		return []event{{At: m.FinishedAt, Look: l, Title: "Delivered", Wait: ""}}
	case weir.Dead:
		return []event{{At: m.FinishedAt, Look: l, Title: "Dead",
			Text: cmp.Or(m.LastError, "given up")}}
	case weir.Cancelled:
		return []event{{At: m.FinishedAt, Look: l, Title: "Cancelled"}}
	case weir.Discarded:
		return []event{
			{At: m.DiedAt, Look: stageBadge(weir.Dead), Title: "Dead",
				Text: cmp.Or(m.LastError, "given up")},
			{At: m.FinishedAt, Look: l, Title: "Discarded", Text: m.DiscardReason},
		}

	case weir.Superseded:
		return []event{{At: m.FinishedAt, Look: l, Title: "Superseded by a newer version",
			Link: m.SupersededBy}}
	}

	e := event{Look: l, Title: "Waits", Text: m.WaitsFor}
	if m.Replays > 0 {
		e.Title = "Waits, having been replayed"
	}

	if !m.RetriesUntil.IsZero() {
		e.Facts = append(e.Facts,
			labelledValue{"tried again at least until", formatTime(m.RetriesUntil, now)})
	}

	if m.Position > 0 {
		e.Facts = append(e.Facts,
			labelledValue{"number in line for its key", formatCount(m.Position)})
	}

	return []event{e}
}

// serveText answers with a message's body as UTF-8 text, for the editor of the page.
func (d *Dashboard) serveText(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), timeLimit)
	defer cancel()
	release, err := d.Reads.Take(ctx)
	defer release()
	id, idErr := httpio.MessageID(r)
	err = cmp.Or(idErr, err)
	var body Body
	if err == nil {
		body, err = d.Source.Body(ctx, id, r.URL.Query().Get("which") == "edited")
	}

	if err != nil {
		httpio.WriteError(w, r, d.Log, err)
		return
	}

	w.Header().Set("Content-Type", "text/plain; charset=utf-8")

	if body.IsRedacted {
		// the editor then reveals the body, with the key of functions/write
		w.Header().Set("Weir-Redacted", "true")
	}

	w.Write([]byte(body.Text))
}
