package inbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"

	"weir/internal/batch"
	"weir/internal/filing"
	"weir/internal/lane"
	"weir/internal/panics"
	"weir/internal/storage"
	"weir/internal/unpack"
	"weir/internal/weir"
	"weir/internal/wire"
)

const (
	// windowFiles and windowBytes limit the files of a window, and the sum of their bytes. A window
	// is a list of files whose messages are in memory at the same time. It has at least one file,
	// even if this file exceeds windowBytes.
	windowFiles, windowBytes = 32, 16 << 20
	// takenAtOnce limits how many files are read at the same time. It also limits how many groups
	// of files fileTasks handles at the same time.
	takenAtOnce = 8
)

// cutWindows cuts files into windows, and keeps their order. files must not be empty.
func (c *Collector) cutWindows(files []storage.File) (windows [][]storage.File) {
	var bytes int64
	first := 0
	for i, f := range files {
		if i > first && (i-first == windowFiles || bytes+c.weigh(f) > windowBytes) {
			windows, first, bytes = append(windows, files[first:i]), i, 0
		}
		bytes += c.weigh(f)
	}

	return append(windows, files[first:])
}

// task is a file that is being taken.
type task struct {
	file    storage.File
	options options
	message weir.Message // set if the file is a message
	isBatch bool
	isLeft  bool  // an earlier run took the file, and could not delete it
	refusal error // the reason why the file is rejected; nil = the file is not rejected
	failure error // the error that prevented reading or validating the file; nil = none
	// isUnreadable means that storage does not return the content of this file, while it may return
	// other files.
	isUnreadable bool
}

// takeWindow reads the files of a window, and then takes them as messages or batches. It returns an
// error only if the error ends the whole run over the inbox. It logs any other error, and a later
// run tries the file again.
func (c *Collector) takeWindow(ctx context.Context, window []storage.File) error {
	tasks := make([]task, len(window))
	var reading errgroup.Group
	reading.SetLimit(takenAtOnce)
	for i, f := range window {
		reading.Go(panics.Guard(func() error { tasks[i] = c.readTaskSafely(ctx, f); return nil }))
	}

	_ = reading.Wait()

	for i := range tasks {
		t := &tasks[i]
		if t.failure == nil || !endsRun(ctx, t.failure) && !storage.Is(t.failure, storage.Denied) {
			continue
		}

		if c.unread.countRun(ctx, t.file) >= maxUnreadRuns {
			t.isUnreadable = true
			continue
		}

		// The key of this file is unknown, and a later file could have the same key. So this run
		// takes no later file.
		return errors.Join(c.fileTasks(ctx, tasks[:i]),
			fmt.Errorf("%s: %w", shortName(t.file.Name), t.failure))
	}

	return c.fileTasks(ctx, tasks)
}

// readTaskSafely calls readTask, and turns a panic into a failure of the task. Without
// readTaskSafely, a file that causes a panic would end one process after another.
func (c *Collector) readTaskSafely(ctx context.Context, f storage.File) (t task) {
	err := panics.Catch(func() error { t = c.readTask(ctx, f); return nil })
	if err != nil {
		return task{file: f, failure: err}
	}
	return t
}

// readTask finds out whether a file is a message or a batch. If the file is a message, readTask
// reads and validates it.
func (c *Collector) readTask(ctx context.Context, f storage.File) task {
	t := task{file: f}
	if t.isLeft = c.isLeft(f); t.isLeft {
		return t
	}

	if c.RefusesOthers && c.upstreamOf(f) == "" {
		t.refusal = &weir.Error{Kind: weir.Forbidden, Op: "inbox",
			Message: "the file lies in no folder of an upstream, and others: refuse is set"}
		return t
	}

	if f.Size == 0 {
		t.refusal = &weir.Error{Kind: weir.Malformed, Op: "inbox", Message: "the file is empty"}
		return t
	}

	if t.options, t.refusal = readOptions(f); t.refusal != nil {
		return t
	}

	isGzip, wrong := weir.ReadContentEncoding(f.ContentEncoding)
	if t.refusal = wrong; t.refusal != nil {
		return t
	}

	if t.options.isBatch() {
		t.isBatch = true
		return t
	}

	if f.Size > c.MaxBody {
		t.isBatch = c.CanSplit
		if !c.CanSplit {
			t.refusal = &weir.Error{Kind: weir.TooLarge, Op: "inbox",
				Message: fmt.Sprintf("the file has %d bytes and may have %d (maxBody in weir.yaml)",
					f.Size, c.MaxBody)}
		}
		return t
	}

	body, err := c.Inbox.Read(ctx, f.Name, f.ETag, 0, f.Size)
	if err != nil {
		t.failure, t.isUnreadable = err, storage.Is(err, storage.Unreadable)
		return t
	}

	if isGzip {
		body, err = unpack.All(body, c.MaxBody)
		if t.isBatch = weir.KindOf(err) == weir.TooLarge && c.CanSplit; t.isBatch {
			return t
		}

		if t.refusal = err; err != nil {
			return t
		}
	}

	s, err := t.options.newSubmission(c.Filer, f, body)
	s.Options.Upstream = c.upstreamOf(f)
	if err == nil {
		t.message, err = c.Filer.Validate(ctx, s)
	}

	switch {
	case err == nil:
	case c.CanSplit && isUnknownRoot(err):
		t.isBatch = true
	case filing.IsRefusal(err):
		t.refusal = err
	default:
		t.failure = err
	}

	return t
}

// weigh returns an upper bound for the bytes of a file in memory. The content of a small file that
// is compressed can be as large as a body.
func (c *Collector) weigh(f storage.File) int64 {
	if f.ContentEncoding != "" {
		return max(f.Size, c.MaxBody)
	}
	return f.Size
}

// newContent returns the unpacked content of a file. The archive keeps the file as it came.
func (c *Collector) newContent(ctx context.Context, f storage.File) io.Reader {
	stored := c.newReader(ctx, c.Inbox, f)
	if isGzip, _ := weir.ReadContentEncoding(f.ContentEncoding); isGzip { // readTask has checked it
		return unpack.NewReader(stored, batch.MaxBytes)
	}
	return stored
}

// isUnknownRoot reports whether an error means that no contract accepts the root element of a
// document. Such a document can be a batch.
func isUnknownRoot(err error) bool {
	var refused *weir.Error
	return errors.As(err, &refused) && refused.Kind == weir.Invalid && len(refused.Problems) == 1 &&
		refused.Problems[0].Rule == "contract"
}

// fileTasks calls fileTask for the tasks of a window. It handles tasks with the same key one after
// the other, in their order. It returns an error only if the error ends the run.
func (c *Collector) fileTasks(ctx context.Context, tasks []task) error {
	var groups [][]*task // each group has the tasks of one key in order, or one task without a key
	byKey := map[string]int{}
	for i := range tasks {
		t := &tasks[i]
		isMessage := !t.isBatch && !t.isLeft && t.refusal == nil && t.failure == nil
		key := c.Filer.OrderOf(&t.message)
		if at, known := byKey[key]; isMessage && known {
			groups[at] = append(groups[at], t)
			continue
		}

		if isMessage {
			byKey[key] = len(groups)
		}

		groups = append(groups, []*task{t})
	}

	var working errgroup.Group
	working.SetLimit(takenAtOnce)

	for _, group := range groups {
		working.Go(panics.Guard(func() error {
			for _, t := range group {
				if err := c.fileTask(ctx, t); err != nil {
					return err
				}
			}
			return nil
		}))
	}

	return working.Wait()
}

// fileTask calls moveSafely, and returns an error only if the error ends the run. After any other
// error the file stays in the inbox.
func (c *Collector) fileTask(ctx context.Context, t *task) error {
	err := c.moveSafely(ctx, t)
	if storage.Is(err, storage.Unreadable) {
		err = c.reportUnreadable(ctx, t.file, err) // a batch is read only when it is copied
	}

	if err == nil {
		return nil
	}

	if errors.Is(err, errResting) {
		c.rests.leaveFile(t.file)
		return nil
	}

	if endsRun(ctx, err) {
		if t.isBatch {
			c.postponeBatch(t.file)
		}
		return err
	}

	if !isChanged(err) {
		c.Logger.Error("inbox: file left in the inbox", "subject", shortName(t.file.Name),
			"err", err)
	}

	return nil
}

// moveSafely takes a file as a message or as a batch, or rejects the file. If the task has a
// failure, moveSafely returns the failure. It turns a panic into an error.
func (c *Collector) moveSafely(ctx context.Context, t *task) error {
	return panics.Catch(func() error { return c.moveTask(ctx, t) })
}

func (c *Collector) moveTask(ctx context.Context, t *task) error {
	switch {
	case t.isUnreadable:
		return c.reportUnreadable(ctx, t.file, t.failure)
	case t.failure != nil:
		return t.failure
	case t.isLeft:
		return c.removeLeft(ctx, t.file)
	case t.refusal != nil:
		return c.rejectAnySize(ctx, t.file, t.refusal)
	case t.isBatch:
		return c.fileBatch(ctx, t)
	}

	return c.fileMessage(ctx, t)
}

// fileMessage appends the message of a file, and moves the file to the accepted files. If the
// message is refused, fileMessage rejects the file. If the upstream has used up a limit,
// fileMessage returns errResting.
func (c *Collector) fileMessage(ctx context.Context, t *task) error {
	if c.rests.isResting(t.message.Upstream) {
		return errResting
	}

	var filed lane.Receipt
	body := t.message.Body
	err := writePauses.Do(ctx, func() (err error) {
		filed, err = c.Filer.FileValid(ctx, t.message, keyOf(t.file))
		return err
	})

	switch {
	case filing.IsRefusal(err):
		return c.rejectAnySize(ctx, t.file, err)
	case weir.KindOf(err) == weir.Limited:
		return c.restUpstream(t.message.Upstream, err)
	case err != nil:
		return err
	}

	if !filed.Stage.Final() {
		c.Wake(filed.Message.ID.Lane)
	}

	id := filed.Message.Public().String()
	if err := c.archiveMessage(ctx, filed, t.file, body); err != nil {
		return err
	}

	c.Logger.Debug("inbox: accepted", "subject", shortName(t.file.Name), "message_id", id, "lane",
		filed.Message.ID.Lane, "seq", filed.Message.ID.Seq, "stage", string(filed.Stage))

	return c.removeTaken(ctx, t.file)
}

// archiveMessage copies the file of a message to the accepted files, except if the message was
// erased: an earlier run can have appended the message and ended before it made the copy. An
// erasure removes the copy after it has erased the message. So if the erasure comes between the
// first check and the copy, the second check finds it; and if it comes after the second check, the
// erasure finds the copy.
func (c *Collector) archiveMessage(ctx context.Context, filed lane.Receipt, f storage.File,
	body []byte) error {
	id := filed.Message.Public()
	if filed.Duplicate {
		if isErased, err := c.isErased(ctx, id); err != nil || isErased {
			return err
		}
	}

	err := writePauses.Do(ctx, func() error {
		return c.archiveFile(ctx, c.Accepted, messageName(filed.Message, f), f,
			bytes.NewReader(body))
	})
	if err != nil {
		return err
	}

	isErased, err := c.isErased(ctx, id)
	if err == nil && isErased {
		err = c.EraseMessage(ctx, id.String(), filed.Message.AcceptedAt)
	}

	return err
}

// isErased reports whether a message was erased.
func (c *Collector) isErased(ctx context.Context, id weir.ID) (bool, error) {
	st, err := c.Messages.Status(ctx, id)
	if weir.KindOf(err) == weir.NotFound {
		return false, nil // retention has removed the message
	}
	return err == nil && !st.ErasedAt.IsZero(), err
}

// fileBatch copies the file of a batch to the accepted files, and then accepts the batch. The copy
// must come first: FinishBatch moves the copy if the batch is rejected later.
func (c *Collector) fileBatch(ctx context.Context, t *task) error {
	f := t.file
	if f.Size > batch.MaxBytes {
		return c.rejectLarge(ctx, f)
	}
	if c.rests.isResting(c.upstreamOf(f)) {
		return errResting
	}

	s, err := t.options.newSpec(f)
	s.Upstream = c.upstreamOf(f)
	if err != nil {
		return c.rejectFile(ctx, f, err)
	}

	err = writePauses.Do(ctx, func() error {
		return c.archiveFile(ctx, c.Accepted, s.File, f, c.newReader(ctx, c.Inbox, f))
	})
	if err != nil {
		return err
	}

	accepted, err := c.Batches.Accept(ctx, s, c.newContent(ctx, f))
	isLimited := weir.KindOf(err) == weir.Limited
	if filing.IsRefusal(err) || isChanged(err) || isLimited {
		if failed := c.Accepted.Delete(ctx, s.File, ""); failed != nil &&
			!storage.Is(failed, storage.NotFound) {
			return failed
		}
	}

	if filing.IsRefusal(err) {
		return c.rejectFile(ctx, f, err)
	}
	if isLimited {
		return c.restUpstream(s.Upstream, err)
	}
	if err != nil {
		return err
	}

	// If the batch is already rejected, an earlier run accepted it. Perhaps FinishBatch ran before
	// this run wrote the copy. So this run moves the copy to the rejected files.
	if accepted.State == wire.BatchRejected {
		if err := c.moveToRejected(ctx, s.File); err != nil {
			return err
		}
	}

	c.Logger.Info("inbox: batch accepted", "subject", shortName(f.Name), "detail", accepted.ID)

	return c.removeTaken(ctx, f)
}

func (c *Collector) rejectAnySize(ctx context.Context, f storage.File, reason error) error {
	if f.Size > batch.MaxBytes {
		return c.rejectLarge(ctx, f)
	}
	return c.rejectFile(ctx, f, reason)
}

// rejectLarge rejects a file that is too large to be copied.
func (c *Collector) rejectLarge(ctx context.Context, f storage.File) error {
	return c.rejectInPlace(ctx, f,
		&weir.Error{Kind: weir.TooLarge, Op: "inbox", Message: fmt.Sprintf(
			"the file has %d bytes, and a batch may have %d; remove it from the inbox", f.Size,
			batch.MaxBytes)})
}

// reportUnreadable rejects a file whose content storage does not return. The cause is the error of
// the read.
func (c *Collector) reportUnreadable(ctx context.Context, f storage.File, cause error) error {
	return c.rejectInPlace(ctx, f,
		&weir.Error{Kind: weir.Invalid, Op: "inbox", Err: cause, Message: fmt.Sprintf(
			"storage does not return the content of the file (%s); it stays in the inbox, and is taken once it can be read",
			storage.Describe(cause))})
}

// rejectInPlace rejects a file that cannot be copied to the rejected files. The file stays in the
// inbox, so each run finds it again. rejectInPlace writes the problems file only if there is none
// yet.
func (c *Collector) rejectInPlace(ctx context.Context, f storage.File, refusal *weir.Error) error {
	found, err := findExact(ctx, c.Rejected, archiveName(f)+problemsSuffix)
	if err != nil || found != nil {
		return err
	}

	err = c.writeProblems(ctx, c.Rejected, archiveName(f), c.describeRefusal(f, refusal))
	if err == nil {
		c.Refused(refusal)
		c.Logger.Warn("inbox: refused, left in the inbox", "subject", shortName(f.Name), "reason",
			refusal.Message)
	}

	return err
}
