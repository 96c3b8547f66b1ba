package lane

import (
	"context"
	"slices"
	"strings"
	"time"

	"weir/internal/clock"
	"weir/internal/lane/epochs"
	"weir/internal/lane/outbox"
	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// Erasure removes the content of a final message on demand: the bodies, the answers of the CMS,
// operators' notes, the callback address and the trace. A SHA-256 replaces the ordering key. The
// message's row keeps the stage, times and numbers, so the lane's counters stay correct. A repeated
// post with the same idempotency key still finds the message.
//
// Only final messages are erased, so no holder needs the erased content. The transaction is
// conditional on the ETags of the message's row and of head. A request to replay the message writes
// the message's row, and a change of the number of lanes writes head. So neither a replay nor a
// copy can begin between the check and the erasure.

// Erase erases the content of a message in all epochs that have a row of the message. It also
// removes the message's unsent events, and erases the ordering key in the rows of the key's
// delivered version and remembered id. After an error, a repeated call does the rest. Errors:
//   - Conflict: the message is not final, or a request to replay it waits for the holder.
//   - NotFound: there is no such message, or retention has removed it.
//   - Unavailable: a part of the erasure can be missing; call Erase again.
func (rs Requests) Erase(ctx context.Context, id weir.ID) (weir.Status, error) {
	copies, err := rs.store.Messages().readCopies(ctx, id)
	if storage.Is(err, storage.NotFound) {
		return weir.Status{}, errNoMessage("erase")
	}
	if err != nil {
		return weir.Status{}, APIError("erase", err)
	}

	r := &eraser{store: rs.store, copies: copies, present: copies[len(copies)-1]}
	if err := rs.store.rowsOf(r.present.Message.ID).fillFromPacked(ctx, r.present); err != nil {
		return weir.Status{}, APIError("erase", err)
	}

	if err := r.checkErasable(ctx, r.present); err != nil {
		return weir.Status{}, err
	}

	if err := r.eraseCopies(ctx); err != nil {
		if weir.KindOf(err) != weir.Internal {
			return weir.Status{}, err
		}
		return weir.Status{}, APIError("erase", err)
	}

	return rs.store.Messages().Status(ctx, id)
}

// eraser is one call of Erase.
type eraser struct {
	store   *Store
	copies  []*Entry // the message's row of each epoch that has one; oldest epoch first
	present *Entry   // the last entry of copies: the message's present state
}

// eraseCopies erases the message in all epochs. It erases the newest row last, because a repeated
// Erase needs the ordering key in that row.
func (r *eraser) eraseCopies(ctx context.Context) error {
	if !r.present.IsErased() {
		if err := r.eraseKeyRows(ctx); err != nil {
			return err
		}
	}

	for _, e := range r.copies {
		box := outbox.Outbox{Table: r.store.Table, Partition: r.store.rowsOf(e.Message.ID).name}
		if err := box.RemoveEventsOf(ctx, e.Seq()); err != nil {
			return err
		}
	}

	for _, e := range r.copies {
		if err := r.eraseRow(ctx, e.Message.ID, e == r.present); err != nil {
			return err
		}
	}

	// blobs are removed last, because several copies can name the same blob
	for _, e := range r.copies {
		for _, in := range []bodyColumns{acceptedBody, editedBody} {
			if err := r.store.RemoveBody(ctx, in.blob.Of(e.row)); err != nil {
				return err
			}
		}
	}

	return nil
}

// IsErased reports whether the content of the message was erased.
func (e *Entry) IsErased() bool { return !e.status.ErasedAt.IsZero() }

func (r *eraser) checkErasable(ctx context.Context, e *Entry) error {
	if e.IsErased() {
		return nil
	}

	if !e.Stage.Final() {
		return errConflict("erase",
			"the message is "+string(e.Stage)+": cancel it first, or wait until it is final")
	}

	isAsked, err := r.store.rowsOf(e.Message.ID).hasPrefix(ctx, requestKey(RequestReplay, e.Seq()))
	if err != nil {
		return APIError("erase", err)
	}

	if isAsked {
		return errConflict("erase",
			"a replay of the message is waiting: erase it when that is over")
	}

	// The holder writes the reason of a discard into the message's row. So a discard must not wait
	// during the erasure.
	isDiscardAsked, err := r.store.rowsOf(e.Message.ID).isDiscardPending(ctx, e)
	if err != nil {
		return APIError("erase", err)
	}

	if isDiscardAsked {
		return errConflict("erase",
			"a discard of the message is waiting: erase it when that is over")
	}

	return nil
}

// eraseRow erases the message's row in the epoch of id, and the rows of that epoch that repeat the
// message's key or content. isPresent is true if the row is the message's present state.
func (r *eraser) eraseRow(ctx context.Context, id weir.ID, isPresent bool) error {
	ctx, cancel := context.WithTimeout(ctx, requestPatience)
	defer cancel()
	at := r.store.rowsOf(id)
	err := rows.Update(ctx, func() (bool, error) {
		row, err := at.table.Get(ctx, at.name, rows.MessageKey(id.Seq))
		if storage.Is(err, storage.NotFound) {
			return true, nil // retention has removed the message
		}
		if err != nil {
			return judgeRequest(err)
		}

		e, packed, err := r.readWithPacked(ctx, id, row)
		if err != nil {
			return judgeRequest(err)
		}
		if e.IsErased() {
			return true, nil
		}

		if isPresent {
			if err := r.checkErasable(ctx, e); err != nil {
				return true, err
			}
		}

		ops, err := r.eraseOps(ctx, at, row, e, packed)
		if err == nil && isPresent && id.Epoch == r.store.Epoch {
			ops, err = r.prependHead(ctx, e, ops)
		}

		if err == nil {
			_, err = at.table.Transact(ctx, at.name, ops)
		}

		if weir.KindOf(err) != weir.Internal {
			return true, err
		}

		return judgeRequest(err)
	}, r.store.PauseAfterConflict)

	return explainUndone(err)
}

// readWithPacked returns the entry of a message's row. It also returns the packed row (d_) that has
// the message's delivery, or nil if there is no such row. A packed row has the deliveries of many
// messages.
func (r *eraser) readWithPacked(ctx context.Context, id weir.ID, row storage.Row) (*Entry,
	*packedRow, error) {
	// the key is not damaged
	e, _ := r.store.ForEpoch(epochs.Epoch{Number: id.Epoch}).entryFrom(id.Lane, row)
	if e.Stage != weir.Queued || e.IsHeld {
		return e, nil, nil
	}

	found, err := r.store.rowsOf(id).readPackedRows(ctx, id.Seq, id.Seq)
	if err != nil || len(found) == 0 {
		return e, nil, err
	}
	if !found[0].hasDelivery(id.Seq) {
		return e, nil, nil
	}

	found[0].fillEntry(e)

	return e, &found[0], nil
}

// RequestErase asks the holder to erase the error texts in tail. Such a request is about the lane,
// not about a message.
const RequestErase RequestKind = "erase"

const eraseKey = rows.RequestPrefix + string(RequestErase)

// prependHead puts an operation on head before ops. So the transaction fails if head changes
// meanwhile, for example because a change of the number of lanes begins. If tail repeats an error
// of the message, prependHead also adds a RequestErase, because only the holder writes tail.
func (r *eraser) prependHead(ctx context.Context, e *Entry,
	ops []storage.Op) ([]storage.Op, error) {
	c, err := r.store.ReadControl(ctx, e.Message.ID.Lane)
	if err != nil {
		return nil, err
	}
	if c.Head.IsSealed {
		return nil, SealedError("erase")
	}

	requestSeq := c.Head.RequestSeq
	if e.hasErrorText(c.Tail.LastError) || e.hasErrorText(c.Tail.PauseReason) {
		requestSeq++
		ops = append(ops, storage.Op{Kind: storage.Upsert, Key: eraseKey, Values: map[string]any{}})
	}

	return append([]storage.Op{c.Head.UpdateOp(rows.RequestSeq.Is(requestSeq))}, ops...), nil
}

// hasErrorText reports whether an error of the message begins with text. It returns false if text
// is empty.
func (e *Entry) hasErrorText(text string) bool {
	if text == "" {
		return false
	}

	for _, a := range e.Attempts {
		if strings.HasPrefix(a.Reason, text) {
			return true
		}
	}

	return strings.HasPrefix(e.status.LastError, text)
}

// EraseErrors erases the error texts in tail.
func (c *Change) EraseErrors() {
	c.UpdateTail(func(t *Tail) {
		if t.LastError != "" {
			t.LastError = erasedReason
		}

		if t.PauseReason != "" {
			t.PauseReason = erasedReason
		}

		t.Brakes = slices.Clone(t.Brakes)
		for i := range t.Brakes {
			t.Brakes[i].Reason = erasedReason
		}
	})
}

// eraseOps returns the operations that erase a message's row, and the rows that repeat the
// message's key or content.
func (r *eraser) eraseOps(ctx context.Context, at partition, row storage.Row, e *Entry,
	packed *packedRow) ([]storage.Op, error) {
	v, err := e.erasedValues(r.store.Now().UTC().Truncate(time.Microsecond))
	if err != nil {
		return nil, err
	}

	ops := []storage.Op{{Kind: storage.Replace, Key: row.Key, IfMatch: row.ETag, Values: v}}
	if packed != nil {
		op, err := packed.withoutOp(e.Seq())
		if err != nil {
			return nil, err
		}
		ops = append(ops, op)
	}

	related := []storage.Op{{Key: rows.DeadKey(e.Seq()),
		Values: rows.Values(rows.Key.Is(rows.Key.Of(v)), rows.Reason.Is(erasedReason))}}
	if key := rows.IdempotencyRow.Of(row.Values); key != "" {
		related = append(related, storage.Op{Key: key, Values: rows.Values(rows.BodyHash.Is(""))})
	}

	for _, op := range related {
		found, err := at.table.Get(ctx, at.name, op.Key)
		switch {
		case storage.Is(err, storage.NotFound):
		case err != nil:
			return nil, err
		default:
			ops = append(ops, storage.Op{Kind: storage.Merge, Key: op.Key, IfMatch: found.ETag,
				Values: op.Values})
		}
	}

	return ops, nil
}

// erasedReason replaces the erased text of an error, or of the refusal of a replay.
const erasedReason = "erased"

// erasedValues returns the columns that the row of an erased message keeps. All other columns are
// removed, also columns that only later versions of this program know. The blobs' names stay,
// because retention and a repeated Erase need the names.
func (e *Entry) erasedValues(at time.Time) (map[string]any, error) {
	attempts := make([]weir.Attempt, len(e.Attempts))
	for i, a := range e.Attempts {
		attempts[i] = weir.Attempt{Number: a.Number, At: a.At, Duration: a.Duration,
			Outcome: a.Outcome, Status: a.Status, Fence: a.Fence}
	}

	packed, err := packAttempts(attempts)
	if err != nil {
		return nil, err
	}

	m, st, old := &e.Message, &e.status, e.row
	v := rows.Sparse(rows.Nonce.Is(m.ID.Nonce), rows.Origin.Is(rows.Origin.Of(old)),
		rows.CopiedFrom.Is(rows.CopiedFrom.Of(old)), rows.Contract.Is(m.Contract),
		rows.Version.Is(m.Version), rows.Supersede.Is(m.Supersede), rows.Skip.Is(m.Skip),
		rows.ContentType.Is(m.ContentType), rows.DueAt.Is(m.DueAt),
		rows.AcceptedAt.Is(m.AcceptedAt),
		rows.Upstream.Is(m.Upstream), rows.Size.Is(int64(m.Size)),
		acceptedBody.blob.Is(acceptedBody.blob.Of(old)),
		editedBody.blob.Is(editedBody.blob.Of(old)),
		rows.IdempotencyRow.Is(rows.IdempotencyRow.Of(old)),
		rows.MovedIdempotencyRow.Is(rows.MovedIdempotencyRow.Of(old)),
		rows.AttemptCount.Is(int64(e.AttemptCount)), rows.CMSStatus.Is(int64(st.CMSStatus)),
		rows.SupersededBy.Is(st.SupersededBy), rows.OrderPos.Is(e.releasedPos),
		rows.Replays.Is(int64(st.Message.Replays)),
		rows.VersionWarning.Is(st.VersionWarning), rows.DiscardAskedAt.Is(st.DiscardAskedAt),
		rows.DiedAt.Is(st.DiedAt),
		rows.Batch.Is(m.Batch), rows.BatchPart.Is(int64(m.BatchPart)))

	rows.Put(v, erasedKeyCells(m.Key)...)
	rows.Put(v, rows.Stage.Is(string(e.Stage)), rows.Attempts.Is(packed),
		rows.FinishedAt.Is(clock.Later(st.FinishedAt, m.AcceptedAt)), rows.ErasedAt.Is(at))
	if e.Stage == weir.Dead {
		rows.Put(v, rows.LastError.Is(erasedReason))
	}

	if rows.ReplayRefused.Of(old) != "" {
		// An empty text would mean that the replay was not refused, and a bulk replay would wait
		// for ever.
		rows.Put(v, rows.ReplayRefused.Is(erasedReason))
	}

	return v, nil
}

// withoutOp returns the operation that removes one message's delivery from the packed row. If the
// row is damaged, the operation removes all that cannot be read, and leaves the range: it shows
// that the other messages were delivered.
func (f *packedRow) withoutOp(seq int64) (storage.Op, error) {
	if f.isDamaged {
		return storage.Op{Kind: storage.Replace, Key: rows.PackedKey(f.highSeq), IfMatch: f.etag,
			Values: rows.Values(rows.FirstSeq.Is(f.lowSeq))}, nil
	}

	var rest []packedDelivery
	for _, one := range f.bySeq {
		if one.Seq != seq {
			rest = append(rest, one)
		}
	}

	key := rows.PackedKey(f.highSeq)
	if len(rest) == 0 {
		return storage.Op{Kind: storage.Delete, Key: key, IfMatch: f.etag}, nil
	}

	data, err := packDeliveryList(rest)

	return storage.Op{Kind: storage.Replace, Key: key, IfMatch: f.etag,
		Values: rows.Values(rows.FirstSeq.Is(f.lowSeq), rows.PackedMessages.Is(data))}, err
}

// eraseKeyRows erases the message's ordering key in two rows of each epoch, if the epoch has them:
//   - the row of the key's remembered id;
//   - the row of the key's newest delivered version, if the row names the message.
//
// If a holder writes such a row later, the row has the key again.
func (r *eraser) eraseKeyRows(ctx context.Context) error {
	e := r.present
	public := e.Message.Public()
	for _, s := range r.store.storesSince(public.Epoch) {
		id := weir.ID{Epoch: s.Epoch, Lane: s.LaneOf(e.Message.Key)}
		namesMessage := func(v map[string]any) bool { return latestVersionFrom(id, v).ID == public }
		hasKey := func(v map[string]any) bool { return rows.Key.Of(v) == e.Message.Key }
		for _, name := range s.Contracts.listNames(e.Message.Contract) {
			version := supersedeKeyOf(&weir.Message{Key: e.Message.Key, Contract: name})
			if err := r.eraseKey(ctx, s.rowsOf(id), rows.VersionPrefix+version, namesMessage); err != nil {
				return err
			}

			remembered := rememberedKeyOf(e.Message.Key, name)
			if err := r.eraseKey(ctx, s.rowsOf(id), rows.RememberedPrefix+remembered, hasKey); err != nil {
				return err
			}
		}
	}

	return nil
}

// eraseKey erases the ordering key in a row, if the row exists and isWanted accepts the row's
// values.
func (r *eraser) eraseKey(ctx context.Context, at partition, key string,
	isWanted func(map[string]any) bool) error {
	ctx, cancel := context.WithTimeout(ctx, requestPatience)
	defer cancel()
	err := rows.Update(ctx, func() (bool, error) {
		row, err := at.table.Get(ctx, at.name, key)
		if storage.Is(err, storage.NotFound) {
			return true, nil
		}
		if err != nil {
			return judgeRequest(err)
		}
		if !isWanted(row.Values) || !rows.ErasedAt.Of(row.Values).IsZero() {
			return true, nil
		}

		erased := append(erasedKeyCells(rows.Key.Of(row.Values)),
			rows.ErasedAt.Is(r.store.Now().UTC().Truncate(time.Microsecond)))
		_, err = at.table.Transact(ctx, at.name,
			[]storage.Op{{Kind: storage.Merge, Key: key, IfMatch: row.ETag,
				Values: rows.Values(erased...)}})

		return judgeRequest(err)
	}, r.store.PauseAfterConflict)

	return explainUndone(err)
}
