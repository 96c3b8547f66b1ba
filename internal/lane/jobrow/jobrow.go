// Package jobrow reads and writes the rows of bulk replays (jobs) in progress. Package replay runs
// the jobs and defines the contents of a row.
//
// Each row is a marker of lane 0. So each process that reads the control rows of lane 0 sees all
// jobs in progress, also those of a process that has died.
//
// One transaction inserts a new row and writes head, on the condition that head's ETag has not
// changed. No column of head changes. The condition prevents two failures:
//   - Two jobs created at the same time could exceed MaxInProgress.
//   - A job could be created after head was sealed for a change of the number of lanes.
package jobrow

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"weir/internal/lane"
	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// Row is a bulk replay in progress.
type Row struct {
	ID         string
	ETag       storage.ETag
	Text       string // JSON of the job as users see it
	Checkpoint string // JSON of the job's progress, from which a process can resume the job
}

// jobLane is the lane that has the rows of all jobs.
const jobLane = 0

// MaxInProgress is the largest number of bulk replays in progress.
const MaxInProgress = 10

const (
	// createPatience limits the time for which Create tries again after a failure of storage or a
	// conflict with another write of head.
	createPatience = 5 * time.Second
	// retryAfter is the RetryAfter of Create's error if it is not known whether a job was created.
	retryAfter = 10 * time.Second
)

func rowKey(id string) string { return rows.ReplayJobPrefix + id }

func partitionOf(s *lane.Store) string { return s.Partition(jobLane) }

func (r Row) values() map[string]any {
	return rows.Values(rows.JobText.Is(r.Text), rows.JobCheckpoint.Is(r.Checkpoint))
}

func rowFrom(r storage.Row) Row {
	v := r.Values
	return Row{ID: strings.TrimPrefix(r.Key, rows.ReplayJobPrefix), ETag: r.ETag,
		Text: rows.JobText.Of(v), Checkpoint: rows.JobCheckpoint.Of(v)}
}

// InProgress returns the bulk replays in progress, from the control rows of lane 0. It returns nil
// for other lanes.
func InProgress(c lane.Control) []Row {
	var jobs []Row
	for _, r := range c.Markers(rows.ReplayJobPrefix) {
		jobs = append(jobs, rowFrom(r))
	}
	return jobs
}

// ReadAll reads the bulk replays in progress.
func ReadAll(ctx context.Context, s *lane.Store) ([]Row, error) {
	c, err := s.ReadControl(ctx, jobLane)
	return InProgress(c), err
}

// Read reads one bulk replay. If the bulk replay is not in progress, Read returns an error of kind
// NotFound.
func Read(ctx context.Context, s *lane.Store, id string) (Row, error) {
	r, err := s.Table.Get(ctx, partitionOf(s), rowKey(id))
	if err != nil {
		return Row{}, err
	}
	return rowFrom(r), nil
}

// Create inserts the row of a new job, and returns the row as stored. It returns an error of one of
// these kinds:
//   - Conflict, if MaxInProgress jobs are in progress
//   - Unavailable, if the number of lanes is being changed, or if it is not known whether the job
//     was created
func Create(ctx context.Context, s *lane.Store, job Row) (created Row, err error) {
	ctx, cancel := context.WithTimeout(ctx, createPatience)
	defer cancel()
	err = rows.Update(ctx, func() (bool, error) {
		var refused *weir.Error
		created, err = insertRow(ctx, s, job)
		switch {
		case rows.IsUncertain(err), storage.Is(err, storage.Conflict):
			return false, err
		case err != nil && !errors.As(err, &refused):
			err = lane.APIError("replays", err)
		}

		return true, err
	}, s.PauseAfterConflict)
	if errors.Is(err, rows.ErrUndone) {
		return Row{}, &weir.Error{Kind: weir.Unavailable, Op: "replays",
			Message: "storage cannot be reached at the moment, or the lane is too busy; " +
				"the replay may have begun: look at the list",
			RetryAfter: retryAfter, Err: err}
	}

	return created, err
}

// insertRow inserts the row of a job, or returns the row that an earlier try has inserted.
func insertRow(ctx context.Context, s *lane.Store, job Row) (Row, error) {
	c, err := s.ReadControl(ctx, jobLane)
	if err != nil {
		return Row{}, err
	}

	jobs := InProgress(c)
	if i := slices.IndexFunc(jobs, func(known Row) bool { return known.ID == job.ID }); i >= 0 {
		return jobs[i], nil
	}

	switch {
	case c.Head.IsSealed:
		return Row{}, lane.SealedError("replays")
	case len(jobs) >= MaxInProgress:
		return Row{}, &weir.Error{Kind: weir.Conflict, Op: "replays",
			Message: "too many bulk replays are under way: wait for one, or cancel one"}
	}

	etags, err := s.Table.Transact(ctx, partitionOf(s), []storage.Op{
		c.Head.UpdateOp(rows.RequestSeq.Is(c.Head.RequestSeq)),
		{Kind: storage.Insert, Key: rowKey(job.ID), Values: job.values()},
	})
	if err != nil {
		return Row{}, err
	}

	job.ETag = etags[1]

	return job, nil
}

// Save replaces a job's row if its ETag is still job.ETag, and returns the new ETag. An error of
// kind Precondition means that another process has changed the row. An error of kind NotFound means
// that the job is over.
func Save(ctx context.Context, s *lane.Store, job Row) (storage.ETag, error) {
	etags, err := s.Table.Transact(ctx, partitionOf(s),
		[]storage.Op{{Kind: storage.Replace, Key: rowKey(job.ID), IfMatch: job.ETag,
			Values: job.values()}})
	if err != nil {
		return "", err
	}
	return etags[0], nil
}

// Remove removes a job's row, if it exists.
func Remove(ctx context.Context, s *lane.Store, id string) error {
	_, err := s.Table.Transact(ctx, partitionOf(s),
		[]storage.Op{{Kind: storage.Delete, Key: rowKey(id)}})
	if storage.Is(err, storage.NotFound) {
		return nil
	}
	return err
}
