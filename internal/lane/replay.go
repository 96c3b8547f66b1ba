package lane

import (
	"context"
	"maps"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// A replay begins with a request. The holder then makes the dead message wait again, at its old
// position in its key's order. The message keeps its history, but attempts before the replay do not
// count for the limit of attempts.

// ReplayOptions are the options of a replay.
type ReplayOptions struct {
	// replay even if a later message of the key was delivered: the replay overwrites that message
	Force bool
	// another body; nil = the last edited body, or the accepted body if there was no edit
	Edit *Edit
}

// Edit is a body to send instead of the accepted body. Storage keeps the accepted body.
type Edit struct {
	Body        []byte
	ContentType string
	Version     string
	Note        string            // the operator's reason
	Shown       map[string]string // see weir.Message.Shown
}

// Replay asks the lane's holder to replay a dead message. The holder does that later, so the
// returned Status can be the state before the replay. If an equivalent request waits already,
// Replay adds none.
//
// Conflict has these reasons:
//   - The message is not dead, its content was erased, or a request to discard it waits.
//   - o has an Edit, and a request to replay the message waits already.
//   - o has no Force, and a later message of the key was delivered.
//
// NotFound: there is no such message, or retention has removed it or is removing it. Unavailable:
// the number of lanes is being changed, or it is not known whether the request was stored.
func (rs Requests) Replay(ctx context.Context, id weir.ID, o ReplayOptions) (weir.Status, error) {
	ask := replayCall{Store: rs.store, ReplayOptions: o, nonce: nonceOf(ctx)}
	err := rs.changeMessage(ctx, id,
		func(e *Entry) ([]storage.Op, error) { return ask.requestOps(ctx, e) })
	return ask.status, err
}

// replayCall requests one replay, for Replay or for ReplayMany.
type replayCall struct {
	*Store
	ReplayOptions
	nonce  string
	edit   map[string]any // columns of the Edit; nil until the edited body is stored
	status weir.Status
}

// requestOps returns the operations that store the request, or none if there is nothing to do. e is
// the message as it is stored. One operation writes the nonce into the message's row, for two
// reasons:
//   - If the answer is lost, a repeat recognizes its own request. The repeat can come from the
//     host, after the process of the first call has ended.
//   - Retention finds that the row has changed, and does not remove the message.
func (a *replayCall) requestOps(ctx context.Context, e *Entry) ([]storage.Op, error) {
	a.status = e.status
	if rows.ReplayNonce.Of(e.row) == a.nonce {
		return nil, nil // an earlier try has stored the request, and the answer was lost
	}

	if e.Stage != weir.Dead {
		return nil, errConflict("replay",
			"only a dead message can be replayed, and this one is "+string(e.Stage))
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
		return nil, errConflict("replay",
			"a replay of the message is waiting: it can be edited when that is over")
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
		{Kind: storage.Merge, Key: rows.MessageKey(e.Seq()), IfMatch: e.rowETag(),
			Values: rows.Values(
				rows.ReplayNonce.Is(a.nonce),
				rows.ReplayAskedAt.Is(a.Now().UTC().Truncate(time.Microsecond)),
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

// isPending reports whether an equivalent request to replay the message waits for the holder. With
// Force and without Edit, only a forced request counts as equivalent. In all other cases each
// request to replay the message counts.
func (a *replayCall) isPending(ctx context.Context, e *Entry) (bool, error) {
	first := requestKey(RequestReplay, e.Seq())
	if a.Force && a.Edit == nil {
		first = forcedReplayKey(e.Seq())
	}

	page, err := a.Table.Range(ctx,
		storage.Query{Partition: a.Partition(e.Message.ID.Lane), From: first,
			To: rows.PrefixEnd(first), Limit: 1, Columns: rows.Names(rows.Seq)})
	return len(page.Rows) > 0, err
}

// checkAllowed returns a Conflict if a later message of the key was delivered. A forced request is
// always allowed. The holder makes the same check before it grants the request.
func (a *replayCall) checkAllowed(ctx context.Context, e *Entry) error {
	if a.Force {
		return nil
	}

	reason, err := a.ReplayObstacle(ctx, e)
	if err != nil {
		return APIError("replay", err)
	}

	if reason != "" {
		return errConflict("replay",
			reason+". Use force to replay it anyway; that would overwrite the later one")
	}

	return nil
}

// storeEdit stores the edited body. If an earlier call has stored it, storeEdit does nothing. If
// the request is not stored after all, no row refers to the blob of the body, and
// RemoveForgottenBodies removes the blob.
func (a *replayCall) storeEdit(ctx context.Context, e *Entry) error {
	if a.Edit == nil || a.edit != nil {
		return nil
	}

	v, err := storeBody(ctx, a.Bodies, a.Edit.Body,
		blobName(a.Now(), a.Partition(e.Message.ID.Lane), editedName(a.nonce, e.Seq())), editedBody)
	if err != nil {
		return APIError("replay", err)
	}

	if !rows.Has(v, editedBody.blob) {
		rows.Put(v, editedBody.blob.Is("")) // clears the blob name of an earlier edit
	}

	rows.Put(v, rows.EditedType.Is(a.Edit.ContentType), rows.EditedVersion.Is(a.Edit.Version),
		rows.EditedSize.Is(int64(len(a.Edit.Body))), rows.EditNote.Is(a.Edit.Note),
		rows.EditedShown.Is(packShown(a.Edit.Shown)))
	a.edit = v

	return nil
}

// editColumns are the columns of an edit: the holder copies them from a granted request to the
// message's row.
var editColumns = rows.Names(editedBody.inline, editedBody.blob, rows.EditedType,
	rows.EditedVersion, rows.EditedSize, rows.EditNote, rows.EditedShown)

func editFrom(v map[string]any) map[string]any {
	edit := map[string]any{}
	for _, name := range editColumns {
		if value, ok := v[name]; ok {
			edit[name] = value
		}
	}
	return edit
}

// HasEdit reports whether a request for a replay has an edited body.
func (w Request) HasEdit() bool { return len(w.edit) > 0 }

// AttemptsSinceReplay returns the number of counted attempts after the last replay. If the message
// was never replayed, it returns the number of all counted attempts.
func (e *Entry) AttemptsSinceReplay() int { return e.AttemptCount - e.attemptsBefore }

// Replay makes a dead message wait again, in its block and at its old position. w is the request.
func (c *Change) Replay(e *Entry, w Request, at time.Time) {
	e.Stage, e.IsHeld = weir.Queued, true
	e.Message.Replays++
	v := rows.Values(rows.Stage.Is(string(e.Stage)), rows.IsHeld.Is(true),
		rows.AttemptsBeforeReplay.Is(int64(e.AttemptCount)),
		rows.Replays.Is(int64(e.Message.Replays)),
		rows.FinishedAt.Is(time.Time{}), rows.NextAttemptAt.Is(time.Time{}),
		rows.ReplayRefused.Is(""))

	if w.HasEdit() {
		maps.Copy(v, w.edit)
		rows.Put(v, rows.EditedAt.Is(at), rows.Edition.Is(int64(e.Message.Edition+1)))
		e.Message.Version = rows.EditedVersion.Of(w.edit)
	}

	c.UpdateTail(func(t *Tail) { t.Counts.Dead-- })
	c.ops = append(c.ops,
		storage.Op{Kind: storage.Delete, Key: rows.DeadKey(e.Seq())},
		storage.Op{Kind: storage.Upsert, Key: rows.HeldKey(e.BlockID(), e.orderPos()),
			Values: e.AsHeld().heldValues()},
		storage.Op{Kind: storage.Merge, Key: rows.MessageKey(e.Seq()), Values: v})
}

// RefuseReplay records the reason why the holder has refused a replay.
func (c *Change) RefuseReplay(e *Entry, reason string) {
	c.ops = append(c.ops, storage.Op{Kind: storage.Merge, Key: rows.MessageKey(e.Seq()),
		Values: rows.Values(rows.ReplayRefused.Is(reason))})
}

// LoadEditedMessage reads an edited message with its edited body. It returns NotFound in the same
// cases as LoadMessage, and also if the message was never edited.
func (ms Messages) LoadEditedMessage(ctx context.Context, id weir.ID) (weir.Message, error) {
	return ms.loadVersion(ctx, id, true)
}
