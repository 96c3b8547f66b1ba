package lane

import (
	"context"

	"weir/internal/storage"
	"weir/internal/weir"
)

// Load reads a message with its body. NotFound as with Status.
func (s *Store) Load(ctx context.Context, id weir.ID) (weir.Message, error) {
	st, err := s.Status(ctx, id)
	if err != nil {
		return weir.Message{}, err
	}
	e, err := s.ReadMessage(ctx, st.Message.ID.Lane, st.Message.ID.Seq)
	if err == nil {
		err = s.LoadBody(ctx, e)
	}
	if storage.Is(err, storage.NotFound) {
		return weir.Message{}, &weir.Error{Kind: weir.NotFound, Op: "load", Message: "the message was removed after its retention", Err: err}
	}
	if err != nil {
		return weir.Message{}, unavailable("load", err)
	}
	return e.Message, nil
}
