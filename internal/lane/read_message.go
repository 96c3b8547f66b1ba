package lane

import (
	"context"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// LoadMessage reads a message with its body, as accepted. NotFound: as for Status.
func (s *Store) LoadMessage(ctx context.Context, id weir.ID) (weir.Message, error) {
	return s.loadVersion(ctx, id, false)
}

func (s *Store) loadVersion(ctx context.Context, id weir.ID, edited bool) (weir.Message, error) {
	e, err := s.findMessage(ctx, id)
	if err != nil {
		return weir.Message{}, err
	}
	if edited && !e.isEdited {
		return weir.Message{}, &weir.Error{Kind: weir.NotFound, Op: "load", Message: "the message was not edited"}
	}
	if !edited {
		e.useAccepted()
	}
	at := s.ForEpoch(Epoch{e.Message.ID.Epoch, 0})
	err = at.LoadBody(ctx, e)
	if storage.Is(err, storage.NotFound) {
		return weir.Message{}, &weir.Error{Kind: weir.NotFound, Op: "load",
			Message: "the message was removed after its retention", Err: err}
	}
	if err != nil {
		return weir.Message{}, errUnavailable("load", err)
	}
	return e.Message, nil
}

// useAccepted replaces the edited message in the entry by the accepted one.
func (e *Entry) useAccepted() {
	e.isEdited = false
	m := &e.Message
	m.Version, m.ContentType, m.Edition = rows.Version.Of(e.row), rows.ContentType.Of(e.row), 0
	m.Size = int(rows.Size.Of(e.row))
}
