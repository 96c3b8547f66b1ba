package drain

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
)

// The rows of a key's queue can contradict each other if a row is damaged or gone: a block without a held message, or a
// held message without a row of its own. Then the holder does not know which message of the key is next. So it sends
// none of them, changes none of their rows, and looks again each damagedRetry: only the key waits. The lane's error
// names the row, and an operator can put it back.

// damagedRetry is the time between two looks at a queue whose rows contradict each other.
const damagedRetry = time.Minute

// errNoRow is the error of a held message whose row is gone.
func errNoRow(seq int64) error {
	return &storage.Error{Op: "read held message", Kind: storage.NotFound, Index: -1,
		Code: fmt.Sprintf("message %d is held and has no row", seq)}
}

// isQueueDamaged reports whether a read of a queue failed because its rows contradict each other.
func isQueueDamaged(err error) bool {
	return storage.Is(err, storage.NotFound) || errors.Is(err, lane.ErrDamagedQueue)
}

// setAside makes a block wait whose rows contradict each other.
func (s *selector) setAside(k *keyState, err error) {
	k.setAside(s.now().Add(damagedRetry))
	s.store.Damages.Report(lane.DamagedRow{Partition: s.store.Partition(s.lane), Key: lane.BlockRow(k.ID), Err: err})

	ch := &lane.Change{}
	text, at := "the queue of a key cannot be read, and the key waits: "+storage.Describe(err), storedTime(s.now())
	ch.UpdateTail(func(t *lane.Tail) { t.LastError, t.LastErrorAt = text, at })
	s.journal.record(ch, false)
}

// readFirstOf reads the first held message of a block from storage.
func (s *selector) readFirstOf(ctx context.Context, k *keyState) (lane.HeldMessage, *lane.Entry, error) {
	held, err := s.store.DeliveryState().ReadHeld(ctx, s.lane, k.ID, 1)
	if err != nil {
		return lane.HeldMessage{}, nil, err
	}
	e, err := s.readHeldMessage(ctx, held[0].Seq)
	return held[0], e, err
}

func (s *selector) readHeldMessage(ctx context.Context, seq int64) (*lane.Entry, error) {
	e, err := s.store.ReadMessage(ctx, s.lane, seq)
	if storage.Is(err, storage.NotFound) {
		return nil, errNoRow(seq)
	}
	return e, err
}
