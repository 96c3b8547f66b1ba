package recur

import (
	"context"
	"fmt"
	"time"

	"weir/internal/storage"
	"weir/internal/weir"
)

// partition is the table partition of the schedules' rows. No lane has a partition of this name.
const partition = "schedules"

// Store reads and writes schedules. Its methods may be called concurrently.
type Store struct {
	Table  storage.Table
	Bodies interface {
		storage.Blobs
		storage.BlobMarks
	}
	Now func() time.Time
}

// Get returns a schedule with its message. It returns NotFound if no schedule has the name.
func (s *Store) Get(ctx context.Context, name string) (Schedule, error) {
	schedule, err := s.find(ctx, name)
	if err == nil && schedule.unread != nil {
		return Schedule{}, schedule.unread
	}
	return schedule, err
}

// find is Get for callers that can do without the message. If storage does not return this message,
// while it may return others, the schedule has the reason in its field unread, and find returns no
// error.
func (s *Store) find(ctx context.Context, name string) (Schedule, error) {
	for {
		schedule, err := s.readRow(ctx, name)
		if err != nil {
			return Schedule{}, err
		}

		err = s.loadMessage(ctx, &schedule)
		if err == nil || !storage.IsObjectFault(err) {
			return schedule, err
		}

		if !storage.Is(err, storage.NotFound) {
			schedule.unread = unreadError(err)
			return schedule, nil
		}

		// The message is gone. If the row has changed meanwhile, a new definition has replaced the
		// message.
		again, readErr := s.readRow(ctx, name)
		if readErr != nil {
			return Schedule{}, readErr
		}

		if again.etag == schedule.etag {
			schedule.unread = unreadError(err)
			return schedule, nil
		}
	}
}

// unreadError returns the error of a schedule whose message storage does not return.
func unreadError(cause error) error {
	return &weir.Error{Kind: weir.Conflict, Op: "schedule: read message", Err: cause,
		Message: "storage does not return the message of the schedule: " + storage.Describe(cause)}
}

func (s *Store) readRow(ctx context.Context, name string) (Schedule, error) {
	row, err := s.Table.Get(ctx, partition, name)
	if storage.Is(err, storage.NotFound) {
		return Schedule{}, &weir.Error{Kind: weir.NotFound, Op: "schedule",
			Message: "there is no schedule of this name"}
	}

	if err != nil {
		return Schedule{}, apiError("schedule: read", err)
	}

	return parseRow(row), nil
}

// listColumns are all columns except inlineColumn, which has the message.
var listColumns = func() []string {
	columns := []string{blobColumn}
	for name := range (Schedule{}).toRow() {
		columns = append(columns, name)
	}
	return columns
}()

// List returns all schedules, in the order of their names, without their messages.
func (s *Store) List(ctx context.Context) ([]Schedule, error) {
	var out []Schedule
	for q := (storage.Query{Partition: partition, Columns: listColumns}); ; {
		page, err := s.Table.Range(ctx, q)
		if err != nil {
			return nil, apiError("schedule: list", err)
		}

		for _, row := range page.Rows {
			out = append(out, parseRow(row))
			q.After = row.Key
		}

		if !page.More {
			return out, nil
		}
	}
}

func (s *Store) writeRow(ctx context.Context, schedule *Schedule) error {
	op := storage.Op{Kind: storage.Insert, Key: schedule.Name, Values: schedule.toRow()}
	if schedule.etag != "" {
		op.Kind, op.IfMatch = storage.Replace, schedule.etag
	}
	return s.writeOne(ctx, schedule, op)
}

func (s *Store) writeState(ctx context.Context, schedule *Schedule) error {
	return s.writeOne(ctx, schedule,
		storage.Op{Kind: storage.Merge, Key: schedule.Name, IfMatch: schedule.etag,
			Values: schedule.State.toColumns()})
}

func (s *Store) deleteRow(ctx context.Context, schedule Schedule) error {
	return s.writeOne(ctx, &schedule,
		storage.Op{Kind: storage.Delete, Key: schedule.Name, IfMatch: schedule.etag})
}

func (s *Store) writeOne(ctx context.Context, schedule *Schedule, op storage.Op) error {
	etags, err := s.Table.Transact(ctx, partition, []storage.Op{op})
	if err != nil {
		return apiError("schedule: write", err)
	}
	schedule.etag = etags[0]
	return nil
}

// isChanged reports whether a write failed because another process has changed, deleted or inserted
// the row.
func isChanged(err error) bool {
	return storage.Is(err, storage.Precondition) || storage.Is(err, storage.NotFound) ||
		storage.Is(err, storage.Conflict)
}

// apiError converts an error of storage. A transient error becomes Unavailable.
func apiError(op string, err error) error {
	switch storage.KindOf(err) {
	case storage.Throttled, storage.Unavailable, storage.Ambiguous:
		return &weir.Error{Kind: weir.Unavailable, Op: op,
			Message:    "storage cannot be reached at the moment; try again",
			RetryAfter: 5 * time.Second, Err: err}
	}
	return fmt.Errorf("%s: %w", op, err)
}
