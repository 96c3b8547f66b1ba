package write

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"weir/internal/httpio"
	"weir/internal/lane"
	"weir/internal/wake"
	"weir/internal/weir"
	"weir/internal/wire"
)

// Eraser erases the content of a final message; see lane.Requests.Erase.
type Eraser interface {
	Erase(ctx context.Context, id weir.ID) (weir.Status, error)
}

// Redactor redacts the audit log. Redact removes the parameters of the entries with the given
// subject, a message's id. In the parameters of all other entries, Redact replaces the ordering key
// whose lane.ErasedKey is erasedKey. See audit.Log.
type Redactor interface {
	Redact(ctx context.Context, subject, erasedKey string) error
}

// Files removes the file in the archive that became a message, if there is one; see
// inbox.Collector.
type Files interface {
	EraseMessage(ctx context.Context, id string, acceptedAt time.Time) error
}

// Erase serves POST /api/messages/{id}/erase. All fields are needed, except Files.
type Erase struct {
	Messages StatusReader
	Log      Eraser
	Audit    Redactor
	Files    Files // nil = weir.yaml has no intake.files
	Waker    wake.Ringer
	Logger   *slog.Logger
}

// ServeHTTP implements http.Handler. The id is the path value "id". The status is 200 if this or an
// earlier request has erased the content.
func (f *Erase) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	st, err := f.eraseMessage(r)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}

	httpio.WriteJSON(w, http.StatusOK, wire.NewMessage(st))
	f.Waker.Ring(st.Message.ID.Lane)
	f.Logger.Info("write: erased", "invocation_id", httpio.InvocationID(r), "message_id",
		st.Message.Public().String(), "lane", st.Message.ID.Lane, "seq", st.Message.ID.Seq)
}

// eraseMessage redacts the audit log, removes the message's file, and then erases the message. Then
// it looks for a file again: a collector can have written it meanwhile, and any collector that
// writes it later sees that the message is erased. A repeated request does all steps again, because
// an entry of the log or a file can have come later.
func (f *Erase) eraseMessage(r *http.Request) (weir.Status, error) {
	id, err := httpio.MessageID(r)
	if err != nil {
		return weir.Status{}, err
	}

	before, err := f.Messages.Status(r.Context(), id)
	if err != nil {
		return weir.Status{}, err
	}

	if !before.Stage.Final() {
		// returns the reason for which the message cannot be erased
		return f.Log.Erase(r.Context(), id)
	}

	if err := f.redactAudit(r.Context(), id, before); err != nil {
		return weir.Status{}, err
	}

	if err := f.removeFile(r.Context(), before.Message); err != nil {
		return weir.Status{}, err
	}

	erased, err := f.Log.Erase(r.Context(), id)
	if err != nil {
		return weir.Status{}, err
	}

	return erased, f.removeFile(r.Context(), before.Message)
}

// removeFile removes the file of a message from the archive, if there is one.
func (f *Erase) removeFile(ctx context.Context, m weir.Message) error {
	if f.Files == nil {
		return nil
	}

	if err := f.Files.EraseMessage(ctx, m.Public().String(), m.AcceptedAt); err != nil {
		return &weir.Error{Kind: weir.Unavailable, Op: "erase",
			Message: "the files of the message cannot be removed at the moment; try again",
			Err:     err}
	}

	return nil
}

// redactAudit redacts the entries of a message. Their subject is the id with which a client asked
// for the change: the public id, or the id in another epoch.
func (f *Erase) redactAudit(ctx context.Context, asked weir.ID, before weir.Status) error {
	m := &before.Message
	erasedKey := m.Key
	if before.ErasedAt.IsZero() {
		erasedKey = lane.ErasedKey(m.Key)
	}

	for _, subject := range slices.Compact([]string{asked.String(), m.Public().String()}) {
		if err := f.Audit.Redact(ctx, subject, erasedKey); err != nil {
			return err
		}
	}

	return nil
}
