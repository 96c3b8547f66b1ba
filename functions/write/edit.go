package write

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"unicode/utf8"

	"weir/internal/filing"
	"weir/internal/httpio"
	"weir/internal/lane"
	"weir/internal/wake"
	"weir/internal/weir"
)

// Accepter parses a body into a message, or returns an error with every problem.
type Accepter interface {
	Accept(ctx context.Context, contentType string, body []byte) (weir.Message, error)
}

// StatusReader reads the status of a message. If the message does not exist, the error is NotFound.
type StatusReader interface {
	Status(ctx context.Context, id weir.ID) (weir.Status, error)
}

// Edit serves POST /api/messages/{id}/edit. It replays a dead message with the body of the request
// in place of the accepted body. The accepted body stays in the log. All fields of an Edit must be
// set.
type Edit struct {
	Contracts Accepter
	Messages  StatusReader
	Log       Replayer
	Waker     wake.Ringer
	Intake    *httpio.Intake
	MaxBody   int64 // in bytes
	Logger    *slog.Logger
}

// ServeHTTP implements http.Handler. The id is the path value "id".
func (f *Edit) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	st, err := f.editMessage(w, r)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}

	answerReplay(w, st, f.Waker)
	f.Logger.Info("write: edited", "invocation_id", httpio.InvocationID(r), "message_id",
		st.Message.Public().String(), "lane", st.Message.ID.Lane, "seq", st.Message.ID.Seq)
}

func (f *Edit) editMessage(w http.ResponseWriter, r *http.Request) (weir.Status, error) {
	id, err := httpio.MessageID(r)
	if err != nil {
		return weir.Status{}, err
	}

	force, err := readForce(r)
	if err != nil {
		return weir.Status{}, err
	}

	note, err := readNote(r)
	if err != nil {
		return weir.Status{}, err
	}

	if err := filing.CheckNames("an edit has no header ", r.Header, "Idempotency-Key"); err != nil {
		return weir.Status{}, err
	}

	body, release, err := f.Intake.ReadUnpacked(w, r, f.MaxBody, nil)
	defer release()
	if err != nil {
		return weir.Status{}, httpio.NameSetting(err, "maxBody")
	}

	st, err := f.Messages.Status(r.Context(), id)
	if err != nil {
		return weir.Status{}, err
	}

	m, err := f.Contracts.Accept(weir.WithHeaders(r.Context(), r.Header),
		r.Header.Get("Content-Type"), body)
	if err == nil {
		err = checkSameMessage(&st.Message, &m)
	}

	if err != nil {
		return weir.Status{}, err
	}

	return f.Log.Replay(r.Context(), id,
		lane.ReplayOptions{Force: force,
			Edit: &lane.Edit{Body: m.Body, ContentType: m.ContentType, Version: m.Version,
				Note: note, Shown: m.Shown}})
}

func readNote(r *http.Request) (string, error) {
	note := strings.TrimSpace(r.URL.Query().Get("note"))
	if n := utf8.RuneCountInString(note); n > weir.MaxReason || !utf8.ValidString(note) {
		return "", &weir.Error{Kind: weir.Malformed, Op: "edit",
			Message: fmt.Sprintf("the note has %d characters and may have %d", n, weir.MaxReason)}
	}
	return note, nil
}

// checkSameMessage returns an error if an edit changes the contract or the ordering key. Such a
// body is another message, which needs its own position in the log.
func checkSameMessage(accepted, edited *weir.Message) error {
	var problems []weir.Problem
	if edited.Contract != accepted.Contract {
		problems = append(problems, weir.Problem{Rule: "contract",
			Message: fmt.Sprintf("it is a message of the contract %q, and the dead one is of %q",
				edited.Contract, accepted.Contract)})
	}

	if edited.Key != accepted.Key {
		problems = append(problems, weir.Problem{Rule: "key",
			Message: fmt.Sprintf("its key is %q, and the dead one's is %q", edited.Key,
				accepted.Key)})
	}

	if len(problems) == 0 {
		return nil
	}

	return &weir.Error{Kind: weir.Invalid, Op: "edit",
		Message: "the body is another message: post it instead", Problems: problems}
}
