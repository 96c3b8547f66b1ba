package inbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"golang.org/x/sync/errgroup"

	"weir/internal/batch"
	"weir/internal/filing"
	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/weir"
	"weir/internal/wire"
)

const (
	// windowFiles and windowBytes limit the number and the bytes of the files of a window, because a run has the
	// messages of a whole window in memory. A window has at least one file.
	windowFiles, windowBytes = 32, 16 << 20
	// takenAtOnce is the largest number of files of a window that are read or filed at the same time.
	takenAtOnce = 8
)

// cutWindows cuts files into windows, in their order. There must be a file.
func cutWindows(files []storage.File) (windows [][]storage.File) {
	var bytes int64
	first := 0
	for i, f := range files {
		if i > first && (i-first == windowFiles || bytes+f.Size > windowBytes) {
			windows, first, bytes = append(windows, files[first:i]), i, 0
		}
		bytes += f.Size
	}
	return append(windows, files[first:])
}

// task is a file that a run takes.
type task struct {
	file    storage.File
	options options
	message weir.Message // the message, if the file is one
	isBatch bool
	refusal error // the reason why the file is neither a message nor a batch; nil = it is one of them
	failure error // the reason why the file could not be read or validated; nil = it could
}

// takeWindow reads the files of a window, and then files them. If takeWindow returns an error, the run ends. If an
// error concerns only one file, takeWindow logs the error, and a later run tries the file again.
func (c *Collector) takeWindow(ctx context.Context, window []storage.File) error {
	tasks := make([]task, len(window))
	var reading errgroup.Group
	reading.SetLimit(takenAtOnce)
	for i, f := range window {
		reading.Go(func() error { tasks[i] = c.readTaskSafely(ctx, f); return nil })
	}
	_ = reading.Wait()
	for i, t := range tasks {
		if t.failure != nil && endsRun(ctx, t.failure) {
			// The key of this file is unknown, so a later file could overtake it.
			return errors.Join(c.fileTasks(ctx, tasks[:i]), t.failure)
		}
	}
	return c.fileTasks(ctx, tasks)
}

// readTaskSafely turns a panic into the failure of the file. Otherwise the file would end one process after the
// other.
func (c *Collector) readTaskSafely(ctx context.Context, f storage.File) (t task) {
	defer func() {
		if p := recover(); p != nil {
			t = task{file: f, failure: panicError(p)}
		}
	}()
	return c.readTask(ctx, f)
}

func panicError(p any) error { return fmt.Errorf("panic: %v\n%s", p, debug.Stack()) }

// readTask finds out whether a file is a message or a batch. It reads and validates a message.
func (c *Collector) readTask(ctx context.Context, f storage.File) task {
	t := task{file: f}
	if f.Size == 0 {
		t.refusal = &weir.Error{Kind: weir.Malformed, Op: "inbox", Message: "the file is empty"}
		return t
	}
	if t.options, t.refusal = readOptions(f); t.refusal != nil {
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
				Message: fmt.Sprintf("the file has %d bytes and may have %d", f.Size, c.MaxBody)}
		}
		return t
	}
	body, err := c.Inbox.Read(ctx, f.Name, f.ETag, 0, f.Size)
	if err != nil {
		t.failure = err
		return t
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

// isUnknownRoot reports whether an error means that no contract accepts the root element of a document. Such a
// document may be a batch with parts.
func isUnknownRoot(err error) bool {
	var refused *weir.Error
	return errors.As(err, &refused) && refused.Kind == weir.Invalid && len(refused.Problems) == 1 &&
		refused.Problems[0].Rule == "contract"
}

// fileTasks files tasks of a window. It files the tasks of one key one after the other. If fileTasks returns an error,
// the run ends.
func (c *Collector) fileTasks(ctx context.Context, tasks []task) error {
	var groups [][]*task // each group has the tasks of one key in order, or one task without a key
	byKey := map[string]int{}
	for i := range tasks {
		t := &tasks[i]
		isMessage := !t.isBatch && t.refusal == nil && t.failure == nil
		if at, known := byKey[t.message.Key]; isMessage && known {
			groups[at] = append(groups[at], t)
			continue
		}
		if isMessage {
			byKey[t.message.Key] = len(groups)
		}
		groups = append(groups, []*task{t})
	}
	var working errgroup.Group
	working.SetLimit(takenAtOnce)
	for _, group := range groups {
		working.Go(func() error {
			for _, t := range group {
				if err := c.fileTask(ctx, t); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return working.Wait()
}

// fileTask does what moveSafely does, but returns an error only if the error ends the run. After any other error the
// file stays in the inbox.
func (c *Collector) fileTask(ctx context.Context, t *task) error {
	err := c.moveSafely(ctx, t)
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
		c.Logger.Error("inbox: file left in the inbox", "subject", shortName(t.file.Name), "err", err)
	}
	return nil
}

// moveSafely files one task, and moves its file out of the inbox. It returns the task's failure if the file could not
// be read. It turns a panic into an error.
func (c *Collector) moveSafely(ctx context.Context, t *task) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicError(p)
		}
	}()
	switch {
	case t.failure != nil:
		return t.failure
	case t.refusal != nil:
		return c.rejectAnySize(ctx, t.file, t.refusal)
	case t.isBatch:
		return c.fileBatch(ctx, t)
	}
	return c.fileMessage(ctx, t)
}

// fileMessage files a message, and moves its file to the accepted files. If the message is refused, fileMessage rejects
// the file. If the upstream rests, fileMessage returns errResting.
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
		if c.rests.beginRest(t.message.Upstream, err, c.Now()) {
			c.Logger.Info("inbox: limit reached, files left in the inbox", "subject", t.message.Upstream, "err", err)
		}
		return errResting
	case err != nil:
		return err
	}
	if !filed.Stage.Final() {
		c.Wake(filed.Message.ID.Lane)
	}
	id := filed.Message.Public().String()
	err = writePauses.Do(ctx, func() error {
		return c.archiveFile(ctx, c.Accepted, messageName(id, t.file), t.file, bytes.NewReader(body))
	})
	if err != nil {
		return err
	}
	if err := c.removeTaken(ctx, t.file); err != nil {
		return err
	}
	c.Logger.Debug("inbox: accepted", "subject", shortName(t.file.Name), "message_id", id, "lane",
		filed.Message.ID.Lane, "seq", filed.Message.ID.Seq, "stage", string(filed.Stage))
	return nil
}

// fileBatch copies the file of a batch to the accepted files, and then accepts the batch. If the batch is
// rejected later, FinishBatch finds the copy there.
func (c *Collector) fileBatch(ctx context.Context, t *task) error {
	f := t.file
	if f.Size > batch.MaxBytes {
		return c.rejectLarge(ctx, f)
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
	accepted, err := c.Batches.Accept(ctx, s, c.newReader(ctx, c.Inbox, f))
	if filing.IsRefusal(err) || isChanged(err) {
		if failed := c.Accepted.Delete(ctx, s.File, ""); failed != nil && !storage.Is(failed, storage.NotFound) {
			return failed
		}
	}
	if filing.IsRefusal(err) {
		return c.rejectFile(ctx, f, err)
	}
	if err != nil {
		return err
	}
	// An earlier run has stored a batch that is rejected already. FinishBatch may have run for that batch before this
	// copy was written.
	if accepted.State == wire.BatchRejected {
		if err := c.moveToRejected(ctx, s.File); err != nil {
			return err
		}
	}
	if err := c.removeTaken(ctx, f); err != nil {
		return err
	}
	c.Logger.Info("inbox: batch accepted", "subject", shortName(f.Name), "detail", accepted.ID)
	return nil
}

// rejectAnySize does what rejectFile does, but calls rejectLarge for a file that is too large to be copied.
func (c *Collector) rejectAnySize(ctx context.Context, f storage.File, reason error) error {
	if f.Size > batch.MaxBytes {
		return c.rejectLarge(ctx, f)
	}
	return c.rejectFile(ctx, f, reason)
}

// rejectLarge writes the problems file of a file that is too large to be copied, unless the problems file exists
// already. It leaves the file in the inbox.
func (c *Collector) rejectLarge(ctx context.Context, f storage.File) error {
	found, err := findExact(ctx, c.Rejected, archiveName(f)+problemsSuffix)
	if err != nil || found != nil {
		return err
	}
	refusal := &weir.Error{Kind: weir.TooLarge, Op: "inbox", Message: fmt.Sprintf(
		"the file has %d bytes, and a batch may have %d; remove it from the inbox", f.Size,
		batch.MaxBytes)}
	err = c.writeProblems(ctx, c.Rejected, archiveName(f), c.describeRefusal(f, refusal))
	if err == nil {
		c.Refused(refusal)
		c.Logger.Warn("inbox: too large, left in the inbox", "subject", shortName(f.Name))
	}
	return err
}
