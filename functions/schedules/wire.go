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

// definitionJSON is the body of a PUT or of a POST to preview. A client may send the answer of a GET back:
// State is ignored, and Name, if set, must be the name in the address.
type definitionJSON struct {
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

// maxOverhead limits the bytes of a definition without its message.
const maxOverhead = 64 << 10

// readDefinition parses the body of a PUT, or of a POST to preview.
func (f *Function) readDefinition(w http.ResponseWriter, r *http.Request) (recur.Definition, error) {
	var in definitionJSON
	// An escaped byte of XML can take six bytes in JSON.
	if err := httpio.ReadLargeJSON(w, r, 6*f.MaxBody+maxOverhead, &in); err != nil {
		return recur.Definition{}, err
	}
	if in.Name != "" && in.Name != r.PathValue("name") {
		return recur.Definition{}, malformedError("the name in the body differs from the name in the address")
	}
	d := recur.Definition{Cron: in.Cron, TimeZone: in.TimeZone, ContentType: in.ContentType, Overlap: in.Overlap,
		Missed: in.Missed, Paused: in.Paused}
	if in.Start != nil {
		d.Start = *in.Start
	}
	if in.End != nil {
		d.End = *in.End
	}
	return f.addMessage(r, d, in)
}

func malformedError(message string) error {
	return &weir.Error{Kind: weir.Malformed, Op: "schedules", Message: message}
}

// addMessage adds the message to the definition: the one in the body, or a copy of a stored message.
func (f *Function) addMessage(r *http.Request, d recur.Definition, in definitionJSON) (recur.Definition, error) {
	if (in.Message == nil) == (in.MessageID == "") {
		return d, missingMessageError("message", "give either message or messageId")
	}
	if in.Message != nil {
		d.Message = []byte(*in.Message)
		if size := int64(len(d.Message)); size > f.MaxBody {
			return d, &weir.Error{Kind: weir.TooLarge, Op: "schedules",
				Message: fmt.Sprintf("the message has %d bytes and may have %d", size, f.MaxBody)}
		}
		return d, nil
	}
	id, err := weir.ParseID(in.MessageID)
	if err != nil {
		return d, missingMessageError("messageId", "this is not a message's id")
	}
	m, err := f.Stored.LoadMessage(r.Context(), id)
	if weir.KindOf(err) == weir.NotFound && err != nil {
		return d, missingMessageError("messageId", "there is no message with this id")
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

func missingMessageError(path, message string) error {
	return &weir.Error{Kind: weir.Invalid, Op: "schedules", Message: "the schedule has no message",
		Problems: []weir.Problem{{Path: path, Rule: "required", Message: message}}}
}

// scheduleJSON is the JSON form of a schedule: the definition of PUT, and its state.
type scheduleJSON struct {
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
	State       stateJSON     `json:"state"`
}

type stateJSON struct {
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

func describeSchedule(s recur.Schedule) scheduleJSON {
	out := scheduleJSON{
		Name: s.Name, Cron: s.Cron, TimeZone: s.TimeZone, ContentType: s.ContentType, Overlap: s.Overlap,
		Missed: s.Definition.Missed,
		Paused: s.Paused, Start: timeOrNil(s.Start), End: timeOrNil(s.End),
		State: stateJSON{
			NextAt: timeOrNil(s.NextAt), NextRun: s.NextRun, LastDueAt: timeOrNil(s.Last.DueAt), LastRun: s.Last.Run,
			LastID: s.Last.MessageID, LastAt: timeOrNil(s.Last.At),
			Filed: s.Filed, Skipped: s.Skipped, SkippedAt: timeOrNil(s.SkippedAt), Missed: s.State.Missed,
			Refused: s.Refused, Refusal: s.Refusal,
			CopiedFrom: s.CopiedFrom, CreatedAt: s.CreatedAt, ChangedAt: s.ChangedAt,
		},
	}
	if utf8.Valid(s.Message) {
		out.Message = string(s.Message)
	} else { // not valid UTF-8, so JSON cannot hold it
		out.MessageID = s.CopiedFrom
	}
	return out
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// deletedJSON is the answer to a removal.
type deletedJSON struct {
	Name    string `json:"name"`
	Deleted bool   `json:"deleted"`
}

// runReceipt is the answer to a run by hand.
type runReceipt struct {
	ID         string     `json:"id"`
	Stage      weir.Stage `json:"stage"`
	Key        string     `json:"key"`
	Lane       int        `json:"lane"`
	Sequence   int64      `json:"sequence"`
	AcceptedAt time.Time  `json:"acceptedAt"`
	Run        int64      `json:"run"`
}

// previewJSON is the JSON form of a preview.
type previewJSON struct {
	Runs    []runJSON     `json:"runs"`
	Skipped []clockChange `json:"skipped"`
	Doubled []clockChange `json:"doubled"`
}

type runJSON struct {
	DueAt   time.Time     `json:"dueAt"`
	Local   string        `json:"localTime"`
	Offset  string        `json:"offset"`
	Doubled recur.Doubled `json:"doubled,omitempty"`
}

// clockChange is a local time that a change of clocks skips or repeats.
type clockChange struct {
	Local string    `json:"localTime"`
	At    time.Time `json:"clocksChangeAt"`
	Runs  int       `json:"runs"`
	Note  string    `json:"note"`
}

const localLayout = "2006-01-02T15:04:05"

func describePreview(p recur.Preview) previewJSON {
	out := previewJSON{Runs: []runJSON{}, Skipped: []clockChange{}, Doubled: []clockChange{}}
	for _, r := range p.Runs {
		out.Runs = append(out.Runs, runJSON{r.DueAt, r.Local.Format(localLayout), r.Local.Format("-07:00"), r.Doubled})
	}
	for _, c := range p.Skipped {
		out.Skipped = append(out.Skipped,
			clockChange{c.Local.Format(localLayout), c.At, 0, "clocks are set forward: this local time does not exist"})
	}
	for _, c := range p.Doubled {
		note := "clocks are set back: this local time comes twice, and runs the first time"
		if c.Runs == 2 {
			note = "clocks are set back: this local time comes twice, and runs both times"
		}
		out.Doubled = append(out.Doubled, clockChange{c.Local.Format(localLayout), c.At, c.Runs, note})
	}
	return out
}
