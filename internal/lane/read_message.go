package lane

import (
	"context"

	"weir/internal/lane/epochs"
	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// Status returns the status of a message, from the epoch that has the message now. It returns
// NotFound if there is no message with this id, or if retention has removed the message.
func (ms Messages) Status(ctx context.Context, id weir.ID) (weir.Status, error) {
	e, err := ms.findMessage(ctx, id)
	if err != nil {
		return weir.Status{}, err
	}
	return e.status, nil
}

// findMessage reads a message by its id, from the epoch that has the message now. It returns errors
// that the API can answer with.
func (ms Messages) findMessage(ctx context.Context, id weir.ID) (*Entry, error) {
	e, err := ms.followCopies(ctx, id)
	if storage.Is(err, storage.NotFound) {
		return nil, errNoMessage("status")
	}
	if err != nil {
		return nil, APIError("status", err)
	}

	return e, nil
}

func errNoMessage(op string) error {
	return &weir.Error{Kind: weir.NotFound, Op: op,
		Message: "there is no message with this id, or it was removed after its retention"}
}

// LoadMessage reads a message with its accepted body, even if the message was edited later. It
// returns NotFound in the same cases as Status, and also if the content of the message was erased.
func (ms Messages) LoadMessage(ctx context.Context, id weir.ID) (weir.Message, error) {
	return ms.loadVersion(ctx, id, false)
}

func (ms Messages) loadVersion(ctx context.Context, id weir.ID, edited bool) (weir.Message, error) {
	e, err := ms.findMessage(ctx, id)
	if err != nil {
		return weir.Message{}, err
	}

	if edited && !e.isEdited {
		return weir.Message{},
			&weir.Error{Kind: weir.NotFound, Op: "load", Message: "the message was not edited"}
	}

	if e.IsErased() {
		return weir.Message{}, &weir.Error{Kind: weir.NotFound, Op: "load",
			Message: "the content of the message was erased"}
	}

	if !edited {
		e.useAccepted()
	}

	at := ms.store.ForEpoch(epochs.Epoch{Number: e.Message.ID.Epoch})
	err = at.LoadBody(ctx, e)
	if storage.Is(err, storage.NotFound) {
		return weir.Message{}, &weir.Error{Kind: weir.NotFound, Op: "load",
			Message: "the message was removed after its retention", Err: err}
	}

	if storage.IsObjectFault(err) {
		return weir.Message{}, &weir.Error{Kind: weir.Conflict, Op: "load", Err: err,
			Message: "storage does not return the body of this message: " + storage.Describe(err)}
	}

	if err != nil {
		return weir.Message{}, APIError("load", err)
	}

	return e.Message, nil
}

// useAccepted makes the entry refer to the accepted body, with its version and content type,
// instead of the edited one.
func (e *Entry) useAccepted() {
	e.isEdited = false
	m := &e.Message
	m.Version, m.ContentType, m.Edition = rows.Version.Of(e.row), rows.ContentType.Of(e.row), 0
	m.Size = int(rows.Size.Of(e.row))
}

// ReadStatus reads the status of a message in the store's epoch, by its sequence number.
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
