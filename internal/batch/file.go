package batch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/internal/filing"
	"weir/internal/job"
	"weir/internal/lane"
	"weir/internal/weir"
	"weir/internal/wire"
)

const (
	// A window is full when it has windowParts parts, or when the bodies of its valid parts have at
	// least windowBytes bytes.
	windowParts, windowBytes = 200, 4 << 20
	// appendsAtOnce is the number of parts that are appended at the same time, by all open batches
	// together. A transaction of a lane has room for 49 messages with idempotency keys.
	// appendsAtOnce is smaller, so that a transaction usually has room for posts, too.
	appendsAtOnce = 40
	// appendTimeout limits the time of appending appendsAtOnce parts.
	appendTimeout = 15 * time.Second
)

type checkedPart struct {
	part    part
	message weir.Message
	id      string // public id of the part's message; empty before the append
	refusal error  // why the part can never be appended; nil = not refused
}

// window is a run of consecutive parts that are appended between two saves of the batch's row.
type window struct {
	first int           // number of the first part
	next  int           // number of the first part of the next window
	parts []checkedPart // the valid parts
	bytes int           // size of the valid parts' bodies
}

func (w *window) isFull() bool { return w.next-w.first >= windowParts || w.bytes >= windowBytes }

// fileParts appends the parts from the saved position on, and then saves the batch in the state
// "filed". If the batch is cancelled meanwhile, fileParts stops after the window that it has begun.
func (w *work) fileParts(ctx context.Context) (err error) {
	if w.problems, err = w.loadProblems(ctx, w.batch.ID); err != nil {
		return err
	}

	parts, err := openParts(ctx, w)
	for err == nil && !w.isCancelled() {
		var next *window
		if next, err = w.readWindow(ctx, parts); err != nil || next.next == next.first {
			break
		}

		if err := w.fileWindow(ctx, next); err != nil {
			return err
		}

		if w.shift.mustLeave() {
			return job.ErrAgain
		}
	}

	if refused := refusalOf(err); refused != nil {
		// The check of the batch did not get this error. Since the check the settings have changed,
		// or the stored document was removed from outside.
		w.batch.Reason, err = truncateText(refused.Message), nil
	}

	if err != nil || w.isCancelled() {
		return err
	}

	w.setFiled()

	return w.saveProgress(ctx)
}

// setFiled ends the filing. Parts that are not messages by now are invalid.
func (w *work) setFiled() {
	w.batch.Invalid = w.batch.Parts - w.batch.Filed
	w.batch.State, w.batch.FinishedAt = wire.BatchFiled, w.Now().UTC().Truncate(time.Microsecond)
}

// readWindow reads the next window, and adds the problems of its invalid parts. If no part is left,
// the window's fields first and next are equal.
func (w *work) readWindow(ctx context.Context, parts *partReader) (*window, error) {
	out := &window{first: w.progress.Next, next: w.progress.Next}
	for !out.isFull() {
		p, err := parts.next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		if p.number < out.first {
			continue // the part belongs to an earlier window
		}

		out.next = p.number + 1
		m, refused := weir.Message{}, p.err
		if refused == nil {
			m, refused = w.Filer.Validate(ctx, p.newSubmission(w.batch.Upstream))
		}

		switch {
		case refused == nil:
			m.Batch, m.BatchPart = w.batch.ID, p.number
			out.parts = append(out.parts, checkedPart{part: p, message: m})
			out.bytes += len(p.body)

		case weir.KindOf(refused) == weir.Unavailable:
			return nil, refused
		default:
			w.addLateProblem(p, refused)
		}
	}

	return out, nil
}

// addLateProblem adds the problem of a part that became invalid after the check. For example, the
// contracts have changed, or a post has used the part's idempotency key. If the check found the
// part invalid, the problem is already known.
func (w *work) addLateProblem(p part, err error) {
	for _, known := range w.problems {
		if known.Part == p.number {
			return
		}
	}

	var refused *weir.Error
	if len(w.problems) >= maxProblems || !errors.As(err, &refused) {
		return
	}

	w.problems, w.isUnsaved = append(w.problems, describeProblem(p, refused)), true
}

// fileWindow appends the parts of a window, stores the message ids and the problems, and saves the
// number of the next window's first part.
func (w *work) fileWindow(ctx context.Context, one *window) error {
	// the appends wait for storage, and share Runner.appends with those of other batches
	w.shift.end()
	if err := w.appendParts(ctx, one.parts); err != nil {
		return err
	}

	if err := w.shift.begin(ctx); err != nil {
		return err
	}

	var ids strings.Builder
	filed := 0
	for _, p := range one.parts {
		if p.refusal != nil {
			w.addLateProblem(p.part, p.refusal)
			continue
		}
		fmt.Fprintf(&ids, "%d %s\n", p.part.number, p.id)
		filed++
	}

	if filed > 0 {
		if err := w.Blobs.Put(ctx, idsName(w.batch.ID, one.first), []byte(ids.String())); err !=
			nil {
			return err
		}
		w.progress.Windows = append(w.progress.Windows, one.first)
	}

	if w.isUnsaved {
		if err := w.saveProblems(ctx); err != nil {
			return err
		}
	}

	w.progress.Next = one.next
	w.batch.Filed += filed
	w.batch.Invalid = max(w.batch.Invalid, one.next-1-w.batch.Filed)

	return w.saveProgress(ctx)
}

func idsName(id string, first int) string { return blobPrefix(id) + "ids/" + strconv.Itoa(first) }

// appendParts appends the parts of a window. The parts of a lane keep their order, and so do those
// of a key. After an error the call can be repeated: a part that was appended already gets no
// second message, because of its idempotency key.
func (w *work) appendParts(ctx context.Context, parts []checkedPart) error {
	for some := range slices.Chunk(parts, appendsAtOnce) {
		if err := w.appendSome(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

// appendSome appends at most appendsAtOnce parts.
func (w *work) appendSome(ctx context.Context, parts []checkedPart) (err error) {
	if err := w.appends.Acquire(ctx, int64(len(parts))); err != nil {
		return err
	}
	defer w.appends.Release(int64(len(parts)))
	limited, cancel := context.WithTimeout(ctx, appendTimeout)
	defer cancel()
	drafts := make([]lane.Draft, len(parts))
	for i, p := range parts {
		drafts[i] = lane.Draft{Message: p.message,
			IdempotencyKey: partKey(w.batch.ID, p.part.number)}
	}

	receipts, errs := w.Log.AppendInOrder(limited, drafts)
	lanes := map[int]bool{}
	for i := range parts {
		switch {
		case errs[i] == nil:
			parts[i].id = receipts[i].Message.Public().String()
			if !receipts[i].Stage.Final() {
				lanes[receipts[i].Message.ID.Lane] = true
			}

		case filing.IsRefusal(errs[i]):
			parts[i].refusal = errs[i]
		case err == nil:
			err = errs[i]
		}
	}

	for number := range lanes {
		w.Wake(number)
	}

	return err
}
