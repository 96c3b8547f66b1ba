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
	IsRedacted bool // RedactedMark stands in place of values of the body
	Edited     bool
	Difference string

	DifferenceCut bool
	Preview       *preview // nil = the preview could not be made
	Changes       []Change // newest first
	CanReplay     bool
	Obstacle      string // the reason for which a replay needs force; "" = there is none
	CanCancel     bool
}

// BodyVersion identifies the body to send. It changes with each edit. It also changes if the content is erased,
// because the browser must then no longer show the body.
func (v *messageView) BodyVersion() string {
	if !v.M.ErasedAt.IsZero() {
		return "erased"
	}
	if v.Edited {
		return formatISO(v.M.Edited.At)
	}
	return "accepted"
}

// Which returns "accepted" or "edited", for the body to send.
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
	Gap   string // note on the time before this event: attempts that are not kept, or a replay
}

// labelledValue is a value with a label.
type labelledValue struct{ Name, Value string }

func (d *Dashboard) messagePage(ctx context.Context, p *page, r *http.Request) (view, error) {
	id, err := httpio.MessageID(r)
	if err != nil {
		return nil, err
	}
	m, err := d.Messages.Message(ctx, id)
	if err != nil {
		return nil, err
	}
	v := &messageView{page: p, M: m, Look: stageBadge(m.Stage), Edited: m.Edited.Exists(),
		CanReplay: m.Stage == weir.Dead && m.ErasedAt.IsZero(), CanCancel: !m.Stage.Final()}
	p.Title, p.Refresh = "Message "+m.ID, true
	v.Events = messageEvents(m.Message, p.Now)
	reading := d.newLoader(ctx, p)
	reading.loadChangesOf(m, &v.Changes)
	if v.CanReplay {
		reading.loadObstacleOf(id, &v.Obstacle)
	}
	if p.known != v.BodyVersion() { // otherwise the request is an update, and the browser already has the body
		d.loadBodies(reading, v, id)
	}
	reading.waitAll()
	return v, nil
}

// loadBodies loads the body of a message, and the parts of its page that depend on the body.
func (d *Dashboard) loadBodies(reading *loader, v *messageView, id weir.ID) {
	ctx := reading.ctx
	v.WithBody = true
	reading.loadPart("the body", func() error {
		body, err := d.Messages.Body(ctx, id, v.Edited)
		if e, ok := asError(err); ok && (e.Kind == weir.NotFound || e.Kind == weir.Conflict) {
			v.BodyError = cmp.Or(e.Message, "the body is not kept any more")
			v.IsRedacted = e.Kind == weir.Conflict
			return nil
		}
		part, cut := firstPart(body.Text)
		v.Body, v.BodyCut, v.IsRedacted = indentXML(part), cut, body.IsRedacted
		return err
	})
	reading.loadPart("the requests", func() error {
		t, err := d.Messages.Try(ctx, id, v.Edited)
		if e, ok := asError(err); ok && (e.Kind == weir.NotFound || e.Kind == weir.Conflict) {
			return nil // the page shows this reason in place of the body
		}
		if err == nil {
			v.Preview = newPreview(&t)
		}
		return err
	})
	if v.Edited {
		reading.loadPart("the difference", func() error {
			text, err := d.Messages.Difference(ctx, id)
			v.Difference, v.DifferenceCut = firstPart(text)
			return err
		})
	}
}

// messageEvents returns the events of a message in order. The last event is the message's end or its wait. Only a
// requested replay can follow, if the holder has not carried it out yet.
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
		e := event{At: m.Edited.At, Look: badge{"edited", "pen", "info"}, Title: "Edited, to be replayed",
			Text: m.Edited.Note}
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
		if wait := events[i].At.Sub(events[i-1].At); wait >= time.Millisecond && events[i].Wait == "" {
			events[i].Wait = spanText(wait)
		}
	}
	events = append(events, outcomeEvents(m)...)
	if !done {
		events = append(events, asked...)
	}
	return events
}

// lastReplay returns the event of the last requested replay, and whether the holder carried it out. If it carried out
// a replay that came with an edit, lastReplay returns no event, because the event of the edit mentions the replay.
func lastReplay(m wire.Message) (asked []event, done bool) {
	if m.ReplayAskedAt.IsZero() {
		return nil, false
	}
	e := event{At: m.ReplayAskedAt, Look: badge{"replayed", "in", "info"}, Title: "Replayed", Facts: forcedFact(m)}
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

// forcedFact notes that a replay was forced. An operator who finds an older version in the CMS needs this note.
func forcedFact(m wire.Message) []labelledValue {
	if !m.ReplayForced {
		return nil
	}
	return []labelledValue{{"by force", "whatever was delivered since"}}
}

// stepText describes one request of a chain.
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
		e := event{At: a.At, Look: l, Title: "Attempt " + formatCount(a.Number) + ": " + l.Word, Text: a.Reason}
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

// outcomeEvents returns the event of the message's end, or of its wait. A discarded message also has the event of its
// death.
func outcomeEvents(m wire.Message) []event {
	l := stageBadge(m.Stage)
	switch m.Stage {
	case weir.Delivered:
		return []event{{At: m.FinishedAt, Look: l, Title: "Delivered", Wait: ""}}
	case weir.Dead:
		return []event{{At: m.FinishedAt, Look: l, Title: "Dead", Text: cmp.Or(m.LastError, "given up")}}
	case weir.Cancelled:
		return []event{{At: m.FinishedAt, Look: l, Title: "Cancelled"}}
	case weir.Discarded:
		return []event{
			{At: m.DiedAt, Look: stageBadge(weir.Dead), Title: "Dead", Text: cmp.Or(m.LastError, "given up")},
			{At: m.FinishedAt, Look: l, Title: "Discarded", Text: m.DiscardReason},
		}
	case weir.Superseded:
		return []event{{At: m.FinishedAt, Look: l, Title: "Superseded by a newer version", Link: m.SupersededBy}}
	}
	e := event{Look: l, Title: "Waits", Text: m.WaitsFor}
	if m.Replays > 0 {
		e.Title = "Waits, having been replayed"
	}
	if m.Position > 0 {
		e.Facts = append(e.Facts, labelledValue{"number in line for its key", formatCount(m.Position)})
	}
	return []event{e}
}

// serveText answers with a body as UTF-8 text, for the editor.
func (d *Dashboard) serveText(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), timeLimit)
	defer cancel()
	id, err := httpio.MessageID(r)
	var body Body
	if err == nil {
		body, err = d.Messages.Body(ctx, id, r.URL.Query().Get("which") == "edited")
	}
	if err != nil {
		httpio.WriteError(w, r, d.Log, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if body.IsRedacted {
		w.Header().Set("Weir-Redacted", "true") // the editor then fetches the values, with the key of write
	}
	w.Write([]byte(body.Text))
}
