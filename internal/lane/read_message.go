package lane

import (
	"context"

	"weir/internal/lane/epochs"
	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// LoadMessage reads a message with its accepted body. NotFound: as for Status, or the content
// was erased.
func (s *Store) LoadMessage(ctx context.Context, id weir.ID) (weir.Message, error) {
	return s.loadVersion(ctx, id, false)
}

// loadVersion reads a message with its edited body, or with the accepted one.
func (s *Store) loadVersion(ctx context.Context, id weir.ID, edited bool) (weir.Message, error) {
	e, err := s.findMessage(ctx, id)
	if err != nil {
		return weir.Message{}, err
	}
	if edited && !e.isEdited {
		return weir.Message{}, &weir.Error{Kind: weir.NotFound, Op: "load", Message: "the message was not edited"}
	}
	if e.IsErased() {
		return weir.Message{}, &weir.Error{Kind: weir.NotFound, Op: "load",
			Message: "the content of the message was erased"}
	}
	if !edited {
		e.useAccepted()
	}
	at := s.ForEpoch(epochs.Epoch{Number: e.Message.ID.Epoch})
	err = at.LoadBody(ctx, e)
	if storage.Is(err, storage.NotFound) {
		return weir.Message{}, &weir.Error{Kind: weir.NotFound, Op: "load",
			Message: "the message was removed after its retention", Err: err}
	}
	if err != nil {
		return weir.Message{}, APIError("load", err)
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

// ReadStatus reads the status of a message in this epoch, by its sequence number.
func (s *Store) ReadStatus(ctx context.Context, lane int, seq int64) (weir.Status, error) {
	e, err := s.ReadMessage(ctx, lane, seq)
	if err == nil {
		err = s.rowsOfLane(lane).fillFromPacked(ctx, e)
	}
	if err != nil {
		return weir.Status{}, err
	}
	return e.status, nil
}
