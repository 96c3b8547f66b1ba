package recur

import (
	"context"
	"fmt"
	"time"

	"weir/internal/storage"
	"weir/internal/weir"
)

// partition is where schedules are kept, beside the lanes.
const partition = "schedules"

// Store keeps schedules. Its methods may be called concurrently.
type Store struct {
	Table  storage.Table
	Bodies interface {
		storage.Blobs
		storage.BlobMarks
	}
	Now func() time.Time
}

// Get reads a schedule with its message; NotFound when there is none of this name.
func (s *Store) Get(ctx context.Context, name string) (Schedule, error) {
	for {
		schedule, err := s.get(ctx, name)
		if err != nil {
			return Schedule{}, err
		}
		err = s.loadText(ctx, &schedule)
		if err == nil || !storage.Is(err, storage.NotFound) {
			return schedule, err
		}
		// The text went away because another definition took its place.
		again, readErr := s.get(ctx, name)
		if readErr != nil {
			return Schedule{}, readErr
		}
		if again.etag == schedule.etag {
			return Schedule{}, err
		}
	}
}

func (s *Store) get(ctx context.Context, name string) (Schedule, error) {
	row, err := s.Table.Get(ctx, partition, name)
	if storage.Is(err, storage.NotFound) {
		return Schedule{}, &weir.Error{Kind: weir.NotFound, Op: "schedule", Message: "there is no schedule of this name"}
	}
	if err != nil {
		return Schedule{}, unavailable("schedule: read", err)
	}
	return fromRow(row), nil
}

// listed are the columns of a list: all but the text.
var listed = func() []string {
	columns := []string{blobColumn}
	for name := range (Schedule{}).row() {
		columns = append(columns, name)
	}
	return columns
}()

// List reads all schedules, in the order of their names, without their messages.
func (s *Store) List(ctx context.Context) ([]Schedule, error) {
	var out []Schedule
	for q := (storage.Query{Partition: partition, Columns: listed}); ; {
		page, err := s.Table.Range(ctx, q)
		if err != nil {
			return nil, unavailable("schedule: list", err)
		}
		for _, row := range page.Rows {
			out = append(out, fromRow(row))
			q.After = row.Key
		}
		if !page.More {
			return out, nil
		}
	}
}

// write stores a schedule in place of the one that was read; etag empty = there was none.
func (s *Store) write(ctx context.Context, schedule *Schedule) error {
	op := storage.Op{Kind: storage.Insert, Key: schedule.Name, Values: schedule.row()}
	if schedule.etag != "" {
		op.Kind, op.IfMatch = storage.Replace, schedule.etag
	}
	return s.transact(ctx, schedule, op)
}

// move stores a schedule's state.
func (s *Store) move(ctx context.Context, schedule *Schedule) error {
	return s.transact(ctx, schedule, storage.Op{Kind: storage.Merge, Key: schedule.Name, IfMatch: schedule.etag, Values: schedule.State.columns()})
}

func (s *Store) remove(ctx context.Context, schedule Schedule) error {
	return s.transact(ctx, &schedule, storage.Op{Kind: storage.Delete, Key: schedule.Name, IfMatch: schedule.etag})
}

func (s *Store) transact(ctx context.Context, schedule *Schedule, op storage.Op) error {
	etags, err := s.Table.Transact(ctx, partition, []storage.Op{op})
	if err != nil {
		return unavailable("schedule: write", err)
	}
	schedule.etag = etags[0]
	return nil
}

// changed says that the row is not the one that was read: read it again.
func changed(err error) bool {
	return storage.Is(err, storage.Precondition) || storage.Is(err, storage.NotFound) || storage.Is(err, storage.Conflict)
}

// unavailable is what a caller of the API sees of a storage error.
func unavailable(op string, err error) error {
	switch storage.KindOf(err) {
	case storage.Throttled, storage.Unavailable, storage.Ambiguous:
		return &weir.Error{Kind: weir.Unavailable, Op: op, Message: "storage cannot be reached at the moment; try again", RetryAfter: 5 * time.Second, Err: err}
	}
	return fmt.Errorf("%s: %w", op, err)
}
