package schedules

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
	"unicode/utf8"

	"weir/internal/httpio"
	"weir/internal/recur"
	"weir/internal/weir"
)

// request is what PUT takes. Name and State are what GET gives beside it: they may come
// back, and say nothing.
type request struct {
	Name        string          `json:"name"`
	Cron        string          `json:"cron"`
	TimeZone    string          `json:"timeZone"`
	Message     *string         `json:"message"`
	MessageID   string          `json:"messageId"`
	ContentType string          `json:"contentType"`
	Overlap     recur.Overlap   `json:"overlap"`
	Missed      recur.Missed    `json:"missed"`
	Paused      bool            `json:"paused"`
	Start       *time.Time      `json:"start"`
	End         *time.Time      `json:"end"`
	State       json.RawMessage `json:"state"`
}

// slack is what a definition may have beside its message.
const slack = 64 << 10

// definition reads the body of a PUT.
func (f *Function) definition(w http.ResponseWriter, r *http.Request) (recur.Definition, error) {
	var in request
	// In JSON a character of XML can take six bytes.
	if err := httpio.ReadLargeJSON(w, r, 6*f.MaxBody+slack, &in); err != nil {
		return recur.Definition{}, err
	}
	if in.Name != "" && in.Name != r.PathValue("name") {
		return recur.Definition{}, malformed("the name in the body is another than the one in the address")
	}
	d := recur.Definition{Cron: in.Cron, TimeZone: in.TimeZone, ContentType: in.ContentType, Overlap: in.Overlap, Missed: in.Missed, Paused: in.Paused}
	if in.Start != nil {
		d.Start = *in.Start
	}
	if in.End != nil {
		d.End = *in.End
	}
	return f.withMessage(r, d, in)
}

func malformed(message string) error {
	return &weir.Error{Kind: weir.Malformed, Op: "schedules", Message: message}
}

// withMessage fills in the message: the one given, or a copy of a stored one.
func (f *Function) withMessage(r *http.Request, d recur.Definition, in request) (recur.Definition, error) {
	if (in.Message == nil) == (in.MessageID == "") {
		return d, missing("message", "give either message or messageId")
	}
	if in.Message != nil {
		d.Message = []byte(*in.Message)
		if size := int64(len(d.Message)); size > f.MaxBody {
			return d, &weir.Error{Kind: weir.TooLarge, Op: "schedules", Message: fmt.Sprintf("the message has %d bytes and may have %d", size, f.MaxBody)}
		}
		return d, nil
	}
	id, err := weir.ParseID(in.MessageID)
	if err != nil {
		return d, missing("messageId", "this is not a message's id")
	}
	m, err := f.Stored.Load(r.Context(), id)
	if weir.KindOf(err) == weir.NotFound && err != nil {
		return d, missing("messageId", "there is no message with this id")
	}
	if err != nil {
		return d, err
	}
	d.Message, d.CopiedFrom = m.Body, in.MessageID
	if d.ContentType == "" {
		d.ContentType = m.ContentType
	}
	return d, nil
}

func missing(path, message string) error {
	return &weir.Error{Kind: weir.Invalid, Op: "schedules", Message: "the schedule has no message",
		Problems: []weir.Problem{{Path: path, Rule: "required", Message: message}}}
}

// schedule is one as users see it: the definition as PUT takes it, and what came of it.
type schedule struct {
	Name        string        `json:"name"`
	Cron        string        `json:"cron"`
	TimeZone    string        `json:"timeZone"`
	Message     string        `json:"message,omitempty"`
	MessageID   string        `json:"messageId,omitempty"`
	ContentType string        `json:"contentType"`
	Overlap     recur.Overlap `json:"overlap"`
	Missed      recur.Missed  `json:"missed"`
	Paused      bool          `json:"paused"`
	Start       *time.Time    `json:"start,omitempty"`
	End         *time.Time    `json:"end,omitempty"`
	State       state         `json:"state"`
}

type state struct {
	NextAt     *time.Time `json:"nextAt"` // null: paused, or over
	NextRun    int64      `json:"nextRun"`
	LastDueAt  *time.Time `json:"lastDueAt,omitempty"`
	LastRun    int64      `json:"lastRun,omitempty"`
	LastID     string     `json:"lastMessageId,omitempty"`
	LastAt     *time.Time `json:"lastFiledAt,omitempty"`
	Filed      int64      `json:"filed"`
	Skipped    int64      `json:"skipped"`
	SkippedAt  *time.Time `json:"lastSkippedAt,omitempty"`
	Missed     int64      `json:"missed"`
	Refused    int64      `json:"refused"`
	Refusal    string     `json:"refusal,omitempty"`
	CopiedFrom string     `json:"copiedFrom,omitempty"`
	CreatedAt  time.Time  `json:"createdAt"`
	ChangedAt  time.Time  `json:"changedAt"`
}

func describe(s recur.Schedule) schedule {
	out := schedule{
		Name: s.Name, Cron: s.Cron, TimeZone: s.TimeZone, ContentType: s.ContentType, Overlap: s.Overlap, Missed: s.Definition.Missed,
		Paused: s.Paused, Start: moment(s.Start), End: moment(s.End),
		State: state{
			NextAt: moment(s.NextAt), NextRun: s.NextRun, LastDueAt: moment(s.Last.DueAt), LastRun: s.Last.Run, LastID: s.Last.MessageID, LastAt: moment(s.Last.At),
			Filed: s.Filed, Skipped: s.Skipped, SkippedAt: moment(s.SkippedAt), Missed: s.State.Missed, Refused: s.Refused, Refusal: s.Refusal,
			CopiedFrom: s.CopiedFrom, CreatedAt: s.CreatedAt, ChangedAt: s.ChangedAt,
		},
	}
	if utf8.Valid(s.Message) {
		out.Message = string(s.Message)
	} else { // JSON cannot hold it: name where it came from
		out.MessageID = s.CopiedFrom
	}
	return out
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// deleted is the answer to a removal.
type deleted struct {
	Name    string `json:"name"`
	Deleted bool   `json:"deleted"`
}

// ran is the answer to a run by hand.
type ran struct {
	ID         string     `json:"id"`
	Stage      weir.Stage `json:"stage"`
	Key        string     `json:"key"`
	Lane       int        `json:"lane"`
	Sequence   int64      `json:"sequence"`
	AcceptedAt time.Time  `json:"acceptedAt"`
	Run        int64      `json:"run"`
}

// preview is the next runs as users see them.
type preview struct {
	Runs    []run    `json:"runs"`
	Skipped []change `json:"skipped"`
	Doubled []change `json:"doubled"`
}

type run struct {
	DueAt   time.Time     `json:"dueAt"`
	Local   string        `json:"localTime"`
	Offset  string        `json:"offset"`
	Doubled recur.Doubled `json:"doubled,omitempty"`
}

// change is a local time that a change of clocks leaves out or repeats.
type change struct {
	Local string    `json:"localTime"`
	At    time.Time `json:"clocksChangeAt"`
	Runs  int       `json:"runs"`
	Note  string    `json:"note"`
}

const localLayout = "2006-01-02T15:04:05"

func describePreview(p recur.Preview) preview {
	out := preview{Runs: []run{}, Skipped: []change{}, Doubled: []change{}}
	for _, r := range p.Runs {
		out.Runs = append(out.Runs, run{r.DueAt, r.Local.Format(localLayout), r.Local.Format("-07:00"), r.Doubled})
	}
	for _, c := range p.Skipped {
		out.Skipped = append(out.Skipped, change{c.Local.Format(localLayout), c.At, 0, "clocks are set forward: this local time does not exist"})
	}
	for _, c := range p.Doubled {
		note := "clocks are set back: this local time comes twice, and runs the first time"
		if c.Runs == 2 {
			note = "clocks are set back: this local time comes twice, and runs both times"
		}
		out.Doubled = append(out.Doubled, change{c.Local.Format(localLayout), c.At, c.Runs, note})
	}
	return out
}
