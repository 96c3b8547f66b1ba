package transfer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"weir/internal/clock"
	"weir/internal/lane"
	"weir/internal/lane/epochend"
	"weir/internal/lane/epochs"
	"weir/internal/lane/rows"
	"weir/internal/lease"
	"weir/internal/retry"
	"weir/internal/storage"
)

// BlobPort has all calls for blobs.
type BlobPort interface {
	storage.Blobs
	storage.BlobMarks
}

// Store is one of the two stores.
type Store struct {
	Name       string // for messages
	Table      storage.Table
	Partitions storage.Partitions
	Bodies     BlobPort
	Leases     storage.Leases
	Inbox      storage.Files
	// Accepted and Rejected are the archive of files.
	Accepted, Rejected storage.Files
	// Ensure makes the table and the containers of bodies and leases, and EnsureFiles those of
	// files.
	Ensure, EnsureFiles func(context.Context) error
}

// Mover moves everything from one store to another. All fields are required.
type Mover struct {
	From, To Store
	Lease    time.Duration // length of the leases, 15 to 60 s
	Now      func() time.Time
	Progress func(string) // gets each report for the user
	Log      *slog.Logger
}

// Errors of Run and Undo.
var (
	ErrEmptySource = errors.New("nothing is stored there")
	ErrNotEmpty    = errors.New(
		"it is not empty, and no half copy of this store: take an empty folder, or another " +
			"WEIR_PREFIX")
	ErrOtherCopy = errors.New(
		"everything is being copied to another store: finish that copy, or give it up with " +
			"--undo")
	ErrInUse = errors.New("a process still works on it: stop the app and all other processes, and run the same " +
		"command again")
	ErrChanged = errors.New("the source changed meanwhile: stop all processes that use it, and run the same command " +
		"again")
	ErrTooLate = errors.New("everything was copied, and the copy can no longer be given up: if it was " +
		"killed at its very end, run the same copy again, so that the other store can be used; the " +
		"way back is a copy of everything to an empty store")
)

const (
	// commandLease is the lease of the command weir lanes: neither runs beside the other.
	commandLease = "lanes"
	// pollInterval is the pause between two tries to get a lease.
	pollInterval = time.Second
	// patience is the time in which the lease of a killed process ends.
	patience = 75 * time.Second
)

// Run moves everything, or continues a move. It returns the numbers and hashes of the copy.
func (m Mover) Run(ctx context.Context) (r Report, err error) {
	err = m.withCommandLease(ctx, m.From, func(ctx context.Context) error {
		if err := m.prepareTarget(ctx); err != nil {
			return err
		}
		return m.withCommandLease(ctx, m.To, func(ctx context.Context) (err error) {
			r, err = m.move(ctx)
			return err
		})
	})

	return r, err
}

// prepareTarget makes the target's table and containers. It makes none for a source without
// messages.
func (m Mover) prepareTarget(ctx context.Context) error {
	if _, err := m.readSource(ctx); err != nil {
		return err
	}

	return m.retry(ctx, func() error { return m.To.Ensure(ctx) })
}

func (m Mover) readSource(ctx context.Context) (record epochs.Record, err error) {
	err = m.retry(ctx, func() (err error) {
		record, err = epochs.Read(ctx, m.From.Table)
		return err
	})

	switch {
	case errors.Is(err, storage.ErrGone), storage.Is(err, storage.NotFound):
		return record, fmt.Errorf("%s: %w", m.From.Name, ErrEmptySource)
	case err != nil:
		return record, err
	case record.Step == epochs.StepArrive:
		return record, fmt.Errorf("%s: %w", m.From.Name, lane.CheckNotMoved(record))
	case record.Step != epochs.StepNone && !record.Step.IsMove():
		return record, fmt.Errorf(
			"%s: the number of lanes is being changed: finish `weir lanes` first", m.From.Name)
	}

	return record, nil
}

// readTarget returns the target's record; the zero value if there is none.
func (m Mover) readTarget(ctx context.Context) (record epochs.Record, err error) {
	err = m.retry(ctx, func() (err error) {
		if record, err = epochs.Read(ctx, m.To.Table); storage.Is(err, storage.NotFound) {
			return nil
		}
		return err
	})

	return record, err
}

func (m Mover) move(ctx context.Context) (Report, error) {
	from, err := m.readSource(ctx)
	if err != nil {
		return Report{}, err
	}

	to, err := m.readTarget(ctx)
	if err != nil {
		return Report{}, err
	}

	isHalf := to.Step == epochs.StepArrive && to.Move == from.Move && from.Move != ""
	switch {
	case from.Step == epochs.StepLeft && !isHalf:
		return Report{}, fmt.Errorf("%s: %w", m.From.Name, lane.CheckNotMoved(from))
	case from.Step == epochs.StepLeave && !isHalf && to.Step == epochs.StepArrive:
		return Report{}, fmt.Errorf("%s: %w", m.To.Name, ErrNotEmpty)
	case from.Step == epochs.StepLeave && from.MovedTo != m.To.Name && !isHalf:
		return Report{}, fmt.Errorf("%s: %w (to %s)", m.From.Name, ErrOtherCopy, from.MovedTo)
	case to.ETag != "" && !isHalf:
		return Report{}, fmt.Errorf("%s: %w", m.To.Name, ErrNotEmpty)
	}

	if !isHalf {
		if from, err = m.begin(ctx, from); err != nil {
			return Report{}, err
		}
	}

	return m.copyAndOpen(ctx, from)
}

// begin takes the source out of use, and claims the empty target.
func (m Mover) begin(ctx context.Context, from epochs.Record) (epochs.Record, error) {
	if err := m.checkEmpty(ctx); err != nil {
		return from, err
	}

	if err := m.checkInbox(ctx); err != nil {
		return from, err
	}

	id := rand.Text()
	from, err := epochs.Update(ctx, m.From.Table, func(r *epochs.Record) error {
		switch {
		case r.Step == epochs.StepLeave:
			return epochs.ErrNoChange
		case r.Step != epochs.StepNone || r.Origin != from.Origin:
			return ErrChanged
		}

		r.Step, r.Move, r.MovedTo = epochs.StepLeave, id, m.To.Name
		return nil
	})
	if err != nil {
		return from, err
	}

	err = m.retry(ctx, func() error {
		return epochs.Create(ctx, m.To.Table,
			epochs.Record{Step: epochs.StepArrive, Move: from.Move})
	})
	if err != nil {
		return from, err
	}

	to, err := m.readTarget(ctx)
	if err == nil && (to.Step != epochs.StepArrive || to.Move != from.Move) {
		err = fmt.Errorf("%s: %w", m.To.Name, ErrNotEmpty)
	}

	return from, err
}

// checkInbox refuses to move a store whose inbox has files that no process has taken.
func (m Mover) checkInbox(ctx context.Context) error {
	files, err := m.listFiles(ctx, m.From.Inbox)
	if err != nil || len(files) == 0 {
		return err
	}

	number := fmt.Sprintf("%d files, such as", len(files))
	switch len(files) {
	case 1:
		number = "the file"
	case maxListed:
		number = fmt.Sprintf("at least %d files, such as", maxListed)
	}

	err = fmt.Errorf("%s: the inbox has %s %s: let Weir take what is there first, or move it away",
		m.From.Name, number, files[0].Name)

	return err
}

// checkEmpty returns ErrNotEmpty if the target has a row, a blob or a file.
func (m Mover) checkEmpty(ctx context.Context) error {
	notEmpty := fmt.Errorf("%s: %w", m.To.Name, ErrNotEmpty)
	names, err := m.listPartitions(ctx, m.To)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		return notEmpty
	}

	for _, err := range m.scanBlobs(ctx, m.To.Bodies) {
		if err == nil {
			err = notEmpty
		}
		return err
	}

	for _, files := range []storage.Files{m.To.Accepted, m.To.Rejected} {
		found, err := m.listFiles(ctx, files)
		if err == nil && len(found) > 0 {
			err = notEmpty
		}

		if err != nil {
			return err
		}
	}

	return nil
}

func (m Mover) copyAndOpen(ctx context.Context, from epochs.Record) (r Report, err error) {
	if from.Step == epochs.StepLeave {
		if err := m.copyAll(ctx, from); err != nil {
			return r, err
		}
	}

	if r, err = m.compareAll(ctx, from); err != nil {
		return r, err
	}

	if err := m.removeGuards(ctx); err != nil {
		return r, err
	}

	from, err = epochs.Update(ctx, m.From.Table, func(record *epochs.Record) error {
		switch {
		case record.Move != from.Move || !record.Step.IsMove():
			return ErrChanged
		case record.Step == epochs.StepLeft:
			return epochs.ErrNoChange
		}

		record.Step = epochs.StepLeft
		return nil
	})
	if err != nil {
		return r, err
	}

	_, err = epochs.Update(ctx, m.To.Table, func(record *epochs.Record) error {
		if record.Step == epochs.StepNone && record.Origin == from.Origin {
			return epochs.ErrNoChange
		}
		if record.Move != from.Move {
			return ErrNotEmpty
		}

		opened := from
		opened.ETag, opened.Step, opened.Move, opened.MovedTo = record.ETag, epochs.StepNone, "", ""
		*record = opened

		return nil
	})

	return r, err
}

func (m Mover) copyAll(ctx context.Context, from epochs.Record) error {
	m.Progress("Closing the lanes of " + m.From.Name + ".")
	if err := m.closeLanes(ctx, from); err != nil {
		return err
	}

	m.Progress("Copying.")

	return (&comparison{Mover: m, open: from.Open, mayWrite: true}).run(ctx)
}

// compareAll reads everything in both stores, and returns ErrChanged if there is a difference.
func (m Mover) compareAll(ctx context.Context, from epochs.Record) (Report, error) {
	m.Progress("Comparing.")
	c := &comparison{Mover: m, open: from.Open}
	if err := c.run(ctx); err != nil {
		return Report{}, err
	}

	if c.differences > 0 {
		return Report{}, fmt.Errorf("%d differences: %w", c.differences, ErrChanged)
	}

	return c.report()
}

func (m Mover) lanesOf(record epochs.Record) epochend.Lanes {
	store := &lane.Store{Table: m.From.Table, Bodies: m.From.Bodies, Now: m.Now}
	store.UseEpochRecord(record)

	return epochend.Lanes{Store: store}
}

// closeLanes seals and closes all lanes of the source.
func (m Mover) closeLanes(ctx context.Context, record epochs.Record) error {
	lanes := m.lanesOf(record)

	return lane.ForEach(record.Open.Lanes, func(number int) error {
		err := m.retry(ctx, func() error { return lanes.Seal(ctx, number) })
		if err == nil {
			err = m.withLease(ctx, m.From, lanes.Store.LeaseName(number),
				func(ctx context.Context) error {
					return m.retry(ctx,
						func() error { return lanes.CloseAsIs(ctx, number, rand.Text()) })
				})
		}

		if err != nil {
			return fmt.Errorf("lane %d: %w", number, err)
		}

		return nil
	})
}

// Undo gives up a move that is not complete: the source can be used again. The half copy stays, and
// is never opened.
func (m Mover) Undo(ctx context.Context) error {
	return m.withCommandLease(ctx, m.From, func(ctx context.Context) error {
		record, err := m.readSource(ctx)
		switch {
		case err != nil:
			return err
		case record.Step == epochs.StepNone:
			m.Progress("No copy is under way.")
			return nil
		case record.Step == epochs.StepLeft:
			return fmt.Errorf("%s: %w", m.From.Name, ErrTooLate)
		}

		if err := m.reopenLanes(ctx, record); err != nil {
			return err
		}

		_, err = epochs.Update(ctx, m.From.Table, func(r *epochs.Record) error {
			switch {
			case r.Step == epochs.StepNone:
				return epochs.ErrNoChange
			case r.Move != record.Move || r.Step != epochs.StepLeave:
				return ErrChanged
			}

			r.Step, r.Move, r.MovedTo = epochs.StepNone, "", ""
			return nil
		})
		if err == nil {
			m.Progress(fmt.Sprintf("%s can be used again. Remove the half copy, %s.", m.From.Name,
				record.MovedTo))
		}

		return err
	})
}

func (m Mover) reopenLanes(ctx context.Context, record epochs.Record) error {
	lanes := m.lanesOf(record)

	return lane.ForEach(record.Open.Lanes, func(number int) error {
		err := m.withLease(ctx, m.From, lanes.Store.LeaseName(number),
			func(ctx context.Context) error {
				return m.retry(ctx, func() error { return lanes.Reopen(ctx, number, rand.Text()) })
			})
		if err == nil {
			err = m.retry(ctx, func() error { return lanes.Unseal(ctx, number) })
		}

		if err != nil {
			return fmt.Errorf("lane %d: %w", number, err)
		}

		return nil
	})
}

// withCommandLease calls do while this command has the lease that commands share.
func (m Mover) withCommandLease(ctx context.Context, s Store,
	do func(context.Context) error) error {
	return m.withLease(ctx, s, commandLease, do)
}

// withLease calls do with a lease of a store. The context of do ends with the lease.
func (m Mover) withLease(ctx context.Context, s Store, name string,
	do func(context.Context) error) error {
	cfg := lease.Config{Leases: s.Leases, Length: m.Lease, Now: m.Now, Log: m.Log}
	until, hasReported := m.Now().Add(patience), false
	for {
		err := lease.Do(ctx, cfg, name, do)
		switch {
		case !errors.Is(err, lease.ErrBusy):
			return err
		case m.Now().After(until):
			return fmt.Errorf("%s: %w (lease %s)", s.Name, ErrInUse, name)
		case !hasReported:
			m.Progress(fmt.Sprintf("%s: another process has the lease %s, or was killed a moment ago: waiting for it.",
				s.Name, name))
			hasReported = true
		}

		if !clock.Sleep(ctx, pollInterval) {
			return context.Cause(ctx)
		}
	}
}

// The pauses between two tries of a call that failed. The last try is about a minute after the
// first.
const (
	firstPause = 200 * time.Millisecond
	longPause  = 5 * time.Second
	tries      = 16
)

// retry repeats a call while storage does not answer, for about a minute. A call whose result is
// unknown must do no harm when it is repeated.
func (m Mover) retry(ctx context.Context, f func() error) error {
	return retry.Policy{First: firstPause, Max: longPause, Tries: tries,
		IsTransient: func(err error) bool {
			return rows.IsUncertain(err) &&
				!errors.Is(err, storage.ErrGone)
		},
	}.Do(ctx, f)
}
