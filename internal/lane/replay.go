package lane

import (
	"context"
	"maps"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// A dead message is replayed by a request: the holder makes the message wait again, at its old position in the order
// of its key. The message keeps its history. The limit of attempts counts only attempts after the replay.

// ReplayOptions are the options of a replay.
type ReplayOptions struct {
	Force bool  // replay the message even if a later message of the key was delivered: the replay overwrites that
	Edit  *Edit // another body; nil = the present body: the last edited one, or else the accepted one
}

// Edit is a body to send instead of the accepted one. The accepted body is kept.
type Edit struct {
	Body        []byte
	ContentType string
	Version     string
	Note        string            // the operator's reason
	Shown       map[string]string // as weir.Message.Shown
}

// Replay requests the delivery of a dead message. The lane's holder carries the request out, so the returned Status
// may be the state before. If an equivalent request waits already, Replay adds none. Conflict has these reasons:
//   - The message is not dead, its content was erased, or a request to discard it waits.
//   - o has an Edit, and a request to replay the message waits already.
//   - o has no Force, and a later message of the key was delivered or may have been.
//
// NotFound: as for Messages.Status, or retention is removing the message. Unavailable: the request may or may not be
// stored.
func (rs Requests) Replay(ctx context.Context, id weir.ID, o ReplayOptions) (weir.Status, error) {
	ask := replayCall{Store: rs.store, ReplayOptions: o, nonce: newNonce()}
	err := rs.changeMessage(ctx, id, func(e *Entry) ([]storage.Op, error) { return ask.requestOps(ctx, e) })
	return ask.status, err
}

// replayCall is one call of Replay.
type replayCall struct {
	*Store
	ReplayOptions
	nonce  string
	edit   map[string]any // columns of the Edit; nil until the edited body is stored
	status weir.Status

	historyFence *int64 // the value of Tail.HistoryFence; nil = tail was not read yet
}

// requestOps returns the operations of the request for a message as it is stored. They also write the message's
// row. So a repeat recognizes its own request if the answer was lost, and retention finds a changed row and does not
// remove the message.
func (a *replayCall) requestOps(ctx context.Context, e *Entry) ([]storage.Op, error) {
	a.status = e.status
	if rows.ReplayNonce.Of(e.row) == a.nonce {
		return nil, nil // an earlier try has stored the request, and its answer was lost
	}
	if e.Stage != weir.Dead {
		return nil, errConflict("replay", "only a dead message can be replayed, and this one is "+string(e.Stage))
	}
	if e.IsErased() {
		return nil, errConflict("replay", "the content of the message was erased")
	}
	if rows.IsBeingRemoved.Of(e.row) {
		return nil, &weir.Error{Kind: weir.NotFound, Op: "replay",
			Message: "the message is being removed after its retention"}
	}
	if isDiscarding, err := a.rowsOfLane(e.Message.ID.Lane).isDiscardPending(ctx, e); err != nil {
		return nil, APIError("replay", err)
	} else if isDiscarding {
		return nil, errConflict("replay", "a request to discard the message is waiting")
	}
	waits, err := a.isPending(ctx, e)
	switch {
	case err != nil:
		return nil, APIError("replay", err)
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
	values := rows.Values(rows.Seq.Is(e.Seq()), rows.Force.Is(a.Force))
	maps.Copy(values, a.edit)
	return []storage.Op{
		{Kind: storage.Merge, Key: rows.MessageKey(e.Seq()), IfMatch: e.rowETag(), Values: rows.Values(
			rows.ReplayNonce.Is(a.nonce), rows.ReplayAskedAt.Is(a.Now().UTC().Truncate(time.Microsecond)),
			rows.ReplayForced.Is(a.Force), rows.ReplayRefused.Is(""))},
		{Kind: storage.Insert, Key: a.requestRowKey(e), Values: values},
	}, nil
}

func (a *replayCall) requestRowKey(e *Entry) string {
	if a.Force {
		return forcedReplayKey(e.Seq())
	}
	return requestKey(RequestReplay, e.Seq())
}

// isPending reports whether an equivalent request to replay the message waits for the holder. A forced request covers
// an unforced one. For a request with an edit every waiting replay of the message counts.
func (a *replayCall) isPending(ctx context.Context, e *Entry) (bool, error) {
	first := requestKey(RequestReplay, e.Seq())
	if a.Force && a.Edit == nil {
		first = forcedReplayKey(e.Seq())
	}
	page, err := a.Table.Range(ctx, storage.Query{Partition: a.Partition(e.Message.ID.Lane), From: first,
		To: rows.PrefixEnd(first), Limit: 1, Columns: rows.Names(rows.Seq)})
	return len(page.Rows) > 0, err
}

// checkAllowed returns a Conflict if a later message of the key was delivered or may have been. A forced request is
// always allowed. The holder checks that again.
func (a *replayCall) checkAllowed(ctx context.Context, e *Entry) error {
	if a.Force {
		return nil
	}
	if a.historyFence == nil {
		c, err := a.ReadControl(ctx, e.Message.ID.Lane)
		if err != nil {
			return APIError("replay", err)
		}
		a.historyFence = &c.Tail.HistoryFence
	}
	reason, err := a.ReplayObstacle(ctx, e, *a.historyFence)
	if err != nil {
		return APIError("replay", err)
	}
	if reason != "" {
		return errConflict("replay", reason+". Use force to replay it anyway; that would overwrite the later one")
	}
	return nil
}

// storeEdit stores the edited body once. No mark says that its blob is in use, so the search for forgotten bodies
// looks for a row that refers to it.
func (a *replayCall) storeEdit(ctx context.Context, e *Entry) error {
	if a.Edit == nil || a.edit != nil {
		return nil
	}
	v, err := storeBody(ctx, a.Bodies, a.Edit.Body, blobName(a.Now(), a.Partition(e.Message.ID.Lane),
		editedName(a.nonce, e.Seq())), editedBody)
	if err != nil {
		return APIError("replay", err)
	}
	if !rows.Has(v, editedBody.blob) {
		rows.Put(v, editedBody.blob.Is("")) // clears the name of the blob of an earlier edit
	}
	rows.Put(v, rows.EditedType.Is(a.Edit.ContentType), rows.EditedVersion.Is(a.Edit.Version),
		rows.EditedSize.Is(int64(len(a.Edit.Body))), rows.EditNote.Is(a.Edit.Note),
		rows.EditedShown.Is(packShown(a.Edit.Shown)))
	a.edit = v
	return nil
}

// editColumns are the columns that a granted request copies to the row of its message.
var editColumns = rows.Names(editedBody.inline, editedBody.blob, rows.EditedType, rows.EditedVersion, rows.EditedSize,
	rows.EditNote, rows.EditedShown)

func editFrom(v map[string]any) map[string]any {
	edit := map[string]any{}
	for _, name := range editColumns {
		if value, ok := v[name]; ok {
			edit[name] = value
		}
	}
	return edit
}

// HasEdit reports whether the request, a replay, has another body.
func (w Request) HasEdit() bool { return len(w.edit) > 0 }

// IsReplayed reports whether the message was ever replayed.
func (e *Entry) IsReplayed() bool { return e.Message.Replays > 0 }

// AttemptsSinceReplay returns the number of counted attempts since acceptance or the last replay.
func (e *Entry) AttemptsSinceReplay() int { return e.AttemptCount - e.attemptsBefore }

// Replay makes a dead message wait again, in its block and at its old position. If it is not known whether a later
// message was delivered, Replay records that, in case the message dies again. historyFence is Tail.HistoryFence.
func (c *Change) Replay(e *Entry, w Request, at time.Time, historyFence int64) {
	e.Stage, e.IsHeld = weir.Queued, true
	e.Message.Replays++
	v := rows.Values(rows.Stage.Is(string(e.Stage)), rows.IsHeld.Is(true),
		rows.AttemptsBeforeReplay.Is(int64(e.AttemptCount)), rows.Replays.Is(int64(e.Message.Replays)),
		rows.FinishedAt.Is(time.Time{}), rows.NextAttemptAt.Is(time.Time{}), rows.ReplayRefused.Is(""))
	if w.HasEdit() {
		maps.Copy(v, w.edit)
		rows.Put(v, rows.EditedAt.Is(at), rows.Edition.Is(int64(e.Message.Edition+1)))
		e.Message.Version = rows.EditedVersion.Of(w.edit)
	}
	if e.isHistoryUnknown(historyFence) && rows.ReplayBlockedBy.Of(e.row) == "" {
		rows.Put(v, rows.ReplayBlockedBy.Is(unknownHistory))
	}
	c.UpdateTail(func(t *Tail) { t.Counts.Dead-- })
	c.ops = append(c.ops,
		storage.Op{Kind: storage.Delete, Key: rows.DeadKey(e.Seq())},
		storage.Op{Kind: storage.Upsert, Key: rows.HeldKey(e.BlockID(), e.orderPos()),
			Values: heldFrom(e).heldValues()},
		storage.Op{Kind: storage.Merge, Key: rows.MessageKey(e.Seq()), Values: v})
}

// RefuseReplay records the reason for which the holder has refused a replay.
func (c *Change) RefuseReplay(e *Entry, reason string) {
	c.ops = append(c.ops, storage.Op{Kind: storage.Merge, Key: rows.MessageKey(e.Seq()),
		Values: rows.Values(rows.ReplayRefused.Is(reason))})
}

// LoadEditedMessage reads an edited message with its edited body. NotFound: as for LoadMessage, or the message was
// never edited.
func (ms Messages) LoadEditedMessage(ctx context.Context, id weir.ID) (weir.Message, error) {
	return ms.loadVersion(ctx, id, true)
}
