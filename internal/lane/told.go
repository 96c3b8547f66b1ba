package lane

import (
	"context"
	"strings"
	"time"

	"weir/internal/storage"
)

// Told is the note that keeps what was told of the lane's own state, so that neither a
// restart nor another process tells it again.
type Told struct {
	ETag   storage.ETag // empty = there is no note
	Paused time.Time    // since when the lane has been seen paused; zero = it is not
	PausedTo,
	BehindTo []string // receivers that know of it
}

// Told is what was told of the lane.
func (c Control) Told() Told {
	r, ok := c.note(mailedKey)
	if !ok {
		return Told{}
	}
	v := values{r.Values}
	return Told{ETag: r.ETag, Paused: v.time("Paused"), PausedTo: strings.Fields(v.string("PausedTo")), BehindTo: strings.Fields(v.string("BehindTo"))}
}

// Tell writes the note, and puts mail into the outbox in the same transaction. It says
// whether it was this call that did; if not, somebody else has written the note since.
func (s *Store) Tell(ctx context.Context, lane int, t Told, mail []Mail) (bool, error) {
	v := sparse(map[string]any{"Paused": timeValue(t.Paused), "PausedTo": strings.Join(t.PausedTo, " "), "BehindTo": strings.Join(t.BehindTo, " ")})
	op := storage.Op{Kind: storage.Insert, Key: mailedKey, Values: v}
	if t.ETag != "" {
		op.Kind, op.IfMatch = storage.Replace, t.ETag
		if len(v) == 0 {
			op.Kind, op.Values = storage.Delete, nil
		}
	}
	ops := []storage.Op{op}
	if len(mail) > 0 {
		ops = append(ops, mailOps(mail...)...)
	}
	_, err := s.Table.Transact(ctx, s.partition(lane), ops)
	switch {
	case storage.Is(err, storage.Conflict), storage.Is(err, storage.Precondition), storage.Is(err, storage.NotFound):
		return false, nil
	}
	return err == nil, err
}

// Post puts mail into a lane's outbox that is about no message and nothing that the lane
// keeps in mind. The same mail put again while it is there changes nothing.
func (s *Store) Post(ctx context.Context, lane int, mail []Mail) error {
	_, err := s.Table.Transact(ctx, s.partition(lane), mailOps(mail...))
	return err
}

// NewMail is mail about something else than a message's end. event tells it apart from all
// others of its type in this lane; what is the same has the same.
func NewMail(kind, event string, at time.Time, to string, body []byte) Mail {
	at = at.UTC().Truncate(time.Microsecond)
	id := hash(kind, event)
	return Mail{Event: id, Type: kind, At: at, To: to, ID: "evt_" + id, Body: body, Next: at}
}
