package write

import (
	"context"
	"log/slog"
	"net/http"

	"weir/internal/httpio"
	"weir/internal/lane"
	"weir/internal/weir"
	"weir/internal/wire"
)

// Eraser erases the content of a final message; see lane.Requests.Erase.
type Eraser interface {
	Erase(ctx context.Context, id weir.ID) (weir.Status, error)
}

// Redactor redacts the audit log. Redact removes the parameters of the entries with the given subject. In the
// parameters of all other entries, Redact replaces the given text.
type Redactor interface {
	Redact(ctx context.Context, subject, text, replacement string) error
}

// Files removes the file in the archive that became a message, if there is one; see inbox.Collector.
type Files interface {
	EraseMessage(ctx context.Context, id string) error
}

// Erase serves POST /api/messages/{id}/erase. All fields are needed, except Files.
type Erase struct {
	Messages StatusReader
	Log      Eraser
	Audit    Redactor
	Files    Files // nil = weir.yaml has no intake.files
	Caller   Caller
	Logger   *slog.Logger
}

// ServeHTTP implements http.Handler. The id is the path value "id". The status is 200 if this or an earlier request has
// erased the content.
func (f *Erase) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	st, err := f.eraseMessage(r)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}
	httpio.WriteJSON(w, http.StatusOK, wire.NewMessage(st))
	f.Caller.Call(st.Message.ID.Lane)
	f.Logger.Info("write: erased", "invocation_id", httpio.InvocationID(r), "message_id",
		st.Message.Public().String(), "lane", st.Message.ID.Lane, "seq", st.Message.ID.Seq)
}

// eraseMessage redacts the audit log, removes the message's file, and then erases the message. The redaction needs the
// ordering key, which an erased message no longer has. Because the message is erased last, a repeated request can still
// do all steps after an error.
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
		return f.Log.Erase(r.Context(), id) // returns the reason for which the message cannot be erased
	}
	if before.ErasedAt.IsZero() {
		key := before.Message.Key
		if err := f.Audit.Redact(r.Context(), id.String(), key, lane.ErasedKey(key)); err != nil {
			return weir.Status{}, err
		}
	}
	if f.Files != nil {
		if err := f.Files.EraseMessage(r.Context(), before.Message.Public().String()); err != nil {
			return weir.Status{}, &weir.Error{Kind: weir.Unavailable, Op: "erase",
				Message: "the files of the message cannot be removed at the moment; try again", Err: err}
		}
	}
	return f.Log.Erase(r.Context(), id)
}
