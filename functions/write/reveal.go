package write

import (
	"context"
	"log/slog"
	"net/http"
	"strings"

	"weir/internal/contract"
	"weir/internal/httpio"
	"weir/internal/weir"
)

// Bodies reads messages with their bodies. LoadEditedMessage returns the error NotFound if the
// message was not edited.
type Bodies interface {
	LoadMessage(ctx context.Context, id weir.ID) (weir.Message, error)
	LoadEditedMessage(ctx context.Context, id weir.ID) (weir.Message, error)
}

// Reveal serves POST /api/messages/{id}/reveal. The answer is the stored body, including the
// redacted values. With the parameter as=text, the answer is the body as UTF-8 text. All fields are
// needed.
//
// A reveal changes nothing. The method is nevertheless POST, because a reveal needs the key of
// functions/write and an entry in the audit log.
type Reveal struct {
	Bodies Bodies
	Logger *slog.Logger
}

// ServeHTTP implements http.Handler. The id is the path value "id".
func (f *Reveal) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m, err := f.loadMessage(r)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}

	w.Header().Set("Cache-Control", "no-store") // so that no cache keeps the redacted values
	httpio.WriteBody(w, m)
}

func (f *Reveal) loadMessage(r *http.Request) (weir.Message, error) {
	id, err := httpio.MessageID(r)
	if err != nil {
		return weir.Message{}, err
	}

	load := f.Bodies.LoadMessage
	switch r.URL.Query().Get("which") {
	case "", "accepted":
	case "edited":
		load = f.Bodies.LoadEditedMessage
	default:
		return weir.Message{}, revealError("which must be accepted or edited")
	}

	as := r.URL.Query().Get("as")
	if as != "" && as != "text" {
		return weir.Message{}, revealError("as must be text, or left out")
	}

	m, err := load(r.Context(), id)
	if err != nil || as == "" {
		return m, err
	}

	text, err := contract.Text(m.ContentType, m.Body)
	if err != nil { // the Content-Type is not XML, or the encoding is unknown or wrong
		text = strings.ToValidUTF8(string(m.Body), "\uFFFD")
	}

	m.Body, m.ContentType = []byte(strings.TrimLeft(text, " ")), "text/plain; charset=utf-8"

	return m, nil
}

func revealError(message string) error {
	return &weir.Error{Kind: weir.Malformed, Op: "reveal", Message: message}
}
