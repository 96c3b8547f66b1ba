package lane

import (
	"context"
	"maps"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// A dead message is replayed by a request: the holder puts it back among the waiting messages, at its old
// position in the order of its key. It keeps its history; its attempts are counted anew.

// ReplayOptions say how a dead message is replayed.
type ReplayOptions struct {
	Force bool  // though a later message of its key was delivered
	Edit  *Edit // another body; nil = the one that was sent last
}

// Edit is a body to send in place of the accepted one, which is kept.
type Edit struct {
	Body        []byte
	ContentType string
	Version     string
	Note        string // what it is for
}

// Replay asks for a dead message to be delivered after all. The lane's holder does it: the
// Status says where the message stands at the moment. A replay that waits already is the
// same one. Conflict: the message is not dead, or a later one of its key was delivered.
// Unavailable: it may or may not have been asked.
func (s *Store) Replay(ctx context.Context, id weir.ID, o ReplayOptions) (weir.Status, error) {
	ask := replayCall{Store: s, ReplayOptions: o, nonce: newNonce()}
	err := s.changeMessage(ctx, id, func(e *Entry) ([]storage.Op, error) { return ask.requestOps(ctx, e) })
	return ask.status, err
}

// replayCall is one call of Replay.
type replayCall struct {
	*Store
	ReplayOptions
	nonce  string
	edit   map[string]any // once its body is stored
	status weir.Status
}

// requestOps make the request, for a message as it stands. The message's row is written with it: it
// tells this request when the answer got lost, and keeps retention away.
func (a *replayCall) requestOps(ctx context.Context, e *Entry) ([]storage.Op, error) {
	a.status = e.status
	if rows.ReplayNonce.Of(e.row) == a.nonce {
		return nil, nil // it was us, and the answer got lost
	}
	if e.Stage != weir.Dead {
		return nil, errConflict("replay", "only a dead message can be replayed, and this one is "+string(e.Stage))
	}
	if rows.IsBeingRemoved.Of(e.row) {
		return nil, &weir.Error{Kind: weir.NotFound, Op: "replay",
			Message: "the message is being removed after its retention"}
	}
	waits, err := a.isPending(ctx, e)
	switch {
	case err != nil:
		return nil, errUnavailable("replay", err)
	case waits && a.Edit != nil:
		return nil, errConflict("replay", "a replay of the message is waiting: it can be edited when that is over")
	case waits:
		return nil, nil
	}
	if err := a.checkAllowed(ctx, e); err != nil {
		return nil, err
	}
	if err := a.storeEdit(ctx, e); err != nil {
		return nil, err
	}
	wish := rows.Values(rows.Seq.Is(e.Seq()), rows.Force.Is(a.Force))
	maps.Copy(wish, a.edit)
	return []storage.Op{
		{Kind: storage.Merge, Key: rows.MessageKey(e.Seq()), IfMatch: e.rowETag(), Values: rows.Values(
			rows.ReplayNonce.Is(a.nonce), rows.ReplayAskedAt.Is(a.Now().UTC().Truncate(time.Microsecond)), rows.ReplayForced.Is(a.Force), rows.ReplayRefused.Is(""))},
		{Kind: storage.Insert, Key: a.requestRowKey(e), Values: wish},
	}, nil
}

func (a *replayCall) requestRowKey(e *Entry) string {
	if a.Force {
		return forcedReplayKey(e.Seq())
	}
	return requestKey(RequestReplay, e.Seq())
}

// isPending reports whether an equivalent replay request is already queued. A forced request covers an
// unforced one. An edit conflicts with any queued replay of the message.
func (a *replayCall) isPending(ctx context.Context, e *Entry) (bool, error) {
	first := requestKey(RequestReplay, e.Seq())
	if a.Force && a.Edit == nil {
		first = forcedReplayKey(e.Seq())
	}
	page, err := a.Table.Range(ctx, storage.Query{Partition: a.partitionOf(e.Message.ID.Lane), From: first,
		To: rows.PrefixEnd(first), Limit: 1, Columns: rows.Names(rows.Seq)})
	return len(page.Rows) > 0, err
}

// checkAllowed returns an error if a later message of the key was delivered. The holder checks it again.
func (a *replayCall) checkAllowed(ctx context.Context, e *Entry) error {
	if a.Force {
		return nil
	}
	c, err := a.ReadControl(ctx, e.Message.ID.Lane)
	if err != nil {
		return errUnavailable("replay", err)
	}
	reason, err := a.ReplayObstacle(ctx, e, c.Tail.HistoryFence)
	if err != nil {
		return errUnavailable("replay", err)
	}
	if reason != "" {
		return errConflict("replay", reason+". It can be replayed by force")
	}
	return nil
}

// storeEdit stores the edited body. A blob stays unmarked: the look for forgotten ones finds
// out whether its request was granted.
func (a *replayCall) storeEdit(ctx context.Context, e *Entry) error {
	if a.Edit == nil || a.edit != nil {
		return nil
	}
	v, err := a.storeBody(ctx, a.Edit.Body, blobName(a.Now(), a.partitionOf(e.Message.ID.Lane),
		editedName(a.nonce, e.Seq())), editedBody)
	if err != nil {
		return errUnavailable("replay", err)
	}
	if !rows.Has(v, editedBody.blob) {
		rows.Put(v, editedBody.blob.Is("")) // of an earlier edit
	}
	rows.Put(v, rows.EditedType.Is(a.Edit.ContentType), rows.EditedVersion.Is(a.Edit.Version),
		rows.EditedSize.Is(int64(len(a.Edit.Body))), rows.EditNote.Is(a.Edit.Note))
	a.edit = v
	return nil
}

// editColumns are the columns that a request hands over to its message.
var editColumns = rows.Names(editedBody.inline, editedBody.blob, rows.EditedType, rows.EditedVersion, rows.EditedSize,
	rows.EditNote)

func editFrom(v map[string]any) map[string]any {
	edit := map[string]any{}
	for _, name := range editColumns {
		if value, ok := v[name]; ok {
			edit[name] = value
		}
	}
	return edit
}

// HasEdit reports whether the request has another body.
func (w Request) HasEdit() bool { return len(w.edit) > 0 }

// EditedBlob is the large body that an edit gave to the message; "" = none.
func (e *Entry) EditedBlob() string { return editedBody.blob.Of(e.row) }

// IsReplayed reports whether the message was ever replayed.
func (e *Entry) IsReplayed() bool { return e.status.Replays > 0 }

// AttemptsSinceReplay is the number of attempts that count since it was filed, or replayed last.
func (e *Entry) AttemptsSinceReplay() int { return e.AttemptCount - e.attemptsBefore }

// Replay takes a dead message back among those held in its own block, at its old place.
// What is not known of later deliveries stays so, should it die again. watched is tail's.
func (c *Change) Replay(e *Entry, w Request, at time.Time, watched int64) {
	e.Stage, e.IsHeld = weir.Queued, true
	e.status.Replays++
	v := rows.Values(rows.Stage.Is(string(e.Stage)), rows.IsHeld.Is(true),
		rows.AttemptsBeforeReplay.Is(int64(e.AttemptCount)), rows.Replays.Is(int64(e.status.Replays)),
		rows.FinishedAt.Is(time.Time{}), rows.NextAttemptAt.Is(time.Time{}), rows.ReplayRefused.Is(""))
	if w.HasEdit() {
		maps.Copy(v, w.edit)
		rows.Put(v, rows.EditedAt.Is(at), rows.Edition.Is(int64(e.Message.Edition+1)))
		e.Message.Version = rows.EditedVersion.Of(w.edit)
	}
	if e.isHistoryUnknown(watched) && rows.ReplayBlockedBy.Of(e.row) == "" {
		rows.Put(v, rows.ReplayBlockedBy.Is(unknownHistory))
	}
	c.UpdateTail(func(t *Tail) { t.Counts.Dead-- })
	c.ops = append(c.ops,
		storage.Op{Kind: storage.Delete, Key: rows.DeadKey(e.Seq())},
		storage.Op{Kind: storage.Upsert, Key: rows.HeldKey(e.BlockID(), e.orderPos()),
			Values: heldFrom(e).heldValues()},
		storage.Op{Kind: storage.Merge, Key: rows.MessageKey(e.Seq()), Values: v})
}

// RefuseReplay writes why a message stays dead.
func (c *Change) RefuseReplay(e *Entry, reason string) {
	c.ops = append(c.ops, storage.Op{Kind: storage.Merge, Key: rows.MessageKey(e.Seq()),
		Values: rows.Values(rows.ReplayRefused.Is(reason))})
}

// LoadEditedMessage reads an edited message with its edited body. NotFound: as with Status, or it
// was never edited.
func (s *Store) LoadEditedMessage(ctx context.Context, id weir.ID) (weir.Message, error) {
	return s.loadVersion(ctx, id, true)
}
