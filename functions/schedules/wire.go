package schedules

import (
	"fmt"
	"net/http"
	"unicode/utf8"

	"weir/internal/contract"
	"weir/internal/recur"
	"weir/internal/weir"
	"weir/internal/wire"
)

// maxOverhead limits the bytes of a definition without its message.
const maxOverhead = 64 << 10

// MaxDefinition returns the largest size of a definition whose message has up to maxBody bytes. An
// escaped byte of XML can take six bytes in JSON.
func MaxDefinition(maxBody int64) int64 { return 6*maxBody + maxOverhead }

// readDefinition parses the body of a PUT, or of a POST for a preview. The caller must call release
// when the definition is no longer needed, also after an error.
func (f *Function) readDefinition(w http.ResponseWriter, r *http.Request) (d recur.Definition,
	release func(), err error) {
	var in wire.ScheduleDefinition
	if release, err = f.Intake.ReadJSON(w, r, MaxDefinition(f.MaxBody), &in); err != nil {
		return recur.Definition{}, release, err
	}
	d, err = f.buildDefinition(r, in)
	return d, release, err
}

func (f *Function) buildDefinition(r *http.Request,
	in wire.ScheduleDefinition) (recur.Definition, error) {
	if in.Name != "" && in.Name != r.PathValue("name") {
		return recur.Definition{},
			malformedError("the name in the body differs from the name in the address")
	}

	d := recur.Definition{Cron: in.Cron, TimeZone: in.TimeZone, ContentType: in.ContentType,
		Overlap: recur.Overlap(in.Overlap), Missed: recur.Missed(in.Missed), Paused: in.Paused,
		Start: in.Start,
		End:   in.End}

	return f.addMessage(r, d, in)
}

func malformedError(message string) error {
	return &weir.Error{Kind: weir.Malformed, Op: "schedules", Message: message}
}

// addMessage adds the message to the definition. The message is the text in the request's body, or
// a copy of a stored message.
func (f *Function) addMessage(r *http.Request, d recur.Definition,
	in wire.ScheduleDefinition) (recur.Definition, error) {
	if (in.Message == nil) == (in.MessageID == "") {
		return d, missingMessageError("message", "give either message or messageId")
	}

	if in.Message != nil {
		d.Message = []byte(*in.Message)
		if size := int64(len(d.Message)); size > f.MaxBody {
			return d, &weir.Error{Kind: weir.TooLarge, Op: "schedules",
				Message: fmt.Sprintf(
					"the message has %d bytes and may have %d (maxBody in weir.yaml)", size,
					f.MaxBody)}
		}

		return d, contract.CheckText(d.ContentType, *in.Message)
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

func describeSchedule(s recur.Schedule) wire.Schedule {
	out := wire.Schedule{
		Name: s.Name, Cron: s.Cron, TimeZone: s.TimeZone, ContentType: s.ContentType,
		Overlap: string(s.Overlap),
		Missed:  string(s.Definition.Missed), Paused: s.Paused, Start: s.Start, End: s.End,
		State: wire.ScheduleState{
			NextRun: s.NextRun, LastDueAt: s.Last.DueAt, LastRun: s.Last.Run,
			LastMessageID: s.Last.MessageID,
			LastFiledAt:   s.Last.At, Filed: s.Filed, Skipped: s.Skipped,
			LastSkippedAt: s.SkippedAt,
			Missed:        s.State.Missed, Refused: s.Refused, Refusal: s.Refusal,
			CopiedFrom: s.CopiedFrom, CreatedAt: s.CreatedAt, ChangedAt: s.ChangedAt,
		},
	}

	if !s.NextAt.IsZero() {
		out.State.NextAt = &s.NextAt
	}

	if utf8.Valid(s.Message) {
		out.Message = string(s.Message)
	} else { // JSON cannot carry a message that is not valid UTF-8
		out.MessageID = s.CopiedFrom
	}

	return out
}

type deletedJSON struct {
	Name    string `json:"name"`
	Deleted bool   `json:"deleted"`
}

const localLayout = "2006-01-02T15:04:05"

func describePreview(p recur.Preview) wire.SchedulePreview {
	out := wire.SchedulePreview{Runs: []wire.ScheduleRun{}, Skipped: []wire.ClockChange{},
		Doubled: []wire.ClockChange{}}
	for _, r := range p.Runs {
		out.Runs = append(out.Runs,
			wire.ScheduleRun{DueAt: r.DueAt, LocalTime: r.Local.Format(localLayout),
				Offset: r.Local.Format("-07:00"), Doubled: string(r.Doubled)})
	}

	for _, c := range p.Skipped {
		out.Skipped = append(out.Skipped,
			wire.ClockChange{LocalTime: c.Local.Format(localLayout), ChangeAt: c.At,
				Note: "clocks are set forward: this local time does not exist"})
	}

	for _, c := range p.Doubled {
		note := "clocks are set back: this local time comes twice, and runs the first time"
		if c.Runs == 2 {
			note = "clocks are set back: this local time comes twice, and runs both times"
		}

		out.Doubled = append(out.Doubled,
			wire.ClockChange{LocalTime: c.Local.Format(localLayout), ChangeAt: c.At,
				Runs: c.Runs, Note: note})
	}

	return out
}
