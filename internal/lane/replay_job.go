package lane

import (
	"context"
	"errors"
	"slices"
	"strings"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// ReplayJob is a bulk replay in progress. Its row is a marker of lane 0, so each process that reads that lane
// sees the jobs of a process that has died. Package replay defines its contents.
type ReplayJob struct {
	ID         string
	ETag       storage.ETag
	Text       string // shown to users
	Checkpoint string // the progress that its runner saves
}

// jobLane is the lane with the rows of bulk replays.
const jobLane = 0

// MaxReplayJobs limits the bulk replays in progress.
const MaxReplayJobs = 10

func jobKey(id string) string { return rows.ReplayJobPrefix + id }

func (j ReplayJob) jobValues() map[string]any {
	return rows.Values(rows.JobText.Is(j.Text), rows.JobCheckpoint.Is(j.Checkpoint))
}

func jobFrom(r storage.Row) ReplayJob {
	v := r.Values
	return ReplayJob{ID: strings.TrimPrefix(r.Key, rows.ReplayJobPrefix), ETag: r.ETag, Text: rows.JobText.Of(v),
		Checkpoint: rows.JobCheckpoint.Of(v)}
}

// ReplayJobs returns the bulk replays in progress. Only lane 0 has any.
func (c Control) ReplayJobs() []ReplayJob {
	var jobs []ReplayJob
	for _, r := range c.markers {
		if strings.HasPrefix(r.Key, rows.ReplayJobPrefix) {
			jobs = append(jobs, jobFrom(r))
		}
	}
	return jobs
}

// ReadReplayJobs reads the bulk replays in progress.
func (s *Store) ReadReplayJobs(ctx context.Context) ([]ReplayJob, error) {
	c, err := s.ReadControl(ctx, jobLane)
	return c.ReplayJobs(), err
}

// ReadReplayJob reads one bulk replay; NotFound if it is not in progress.
func (s *Store) ReadReplayJob(ctx context.Context, id string) (ReplayJob, error) {
	r, err := s.Table.Get(ctx, s.partitionOf(jobLane), jobKey(id))
	if err != nil {
		return ReplayJob{}, err
	}
	return jobFrom(r), nil
}

// CreateReplayJob inserts the row of a new job, and returns it as stored. Conflict: too many jobs are in
// progress. The transaction has a condition on head: of two concurrent jobs one is created after the other, and
// none after head is sealed.
func (s *Store) CreateReplayJob(ctx context.Context, j ReplayJob) (created ReplayJob, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestPatience)
	defer cancel()
	err = rows.Update(ctx, func() (bool, error) {
		var refused *weir.Error
		created, err = s.insertReplayJob(ctx, j)
		switch {
		case isUncertain(err), storage.Is(err, storage.Conflict):
			return false, err
		case err != nil && !errors.As(err, &refused):
			err = errUnavailable("replays", err)
		}
		return true, err
	}, s.pauseAfterConflict)
	if errors.Is(err, rows.ErrUndone) {
		return ReplayJob{}, &weir.Error{Kind: weir.Unavailable, Op: "replays",
			Message: "storage cannot be reached at the moment, or the lane is too busy; " +
				"the replay may have begun: look at the list",
			RetryAfter: sealedRetry, Err: err}
	}
	return created, err
}

// insertReplayJob inserts the row of a job, or returns the row that an earlier try has inserted.
func (s *Store) insertReplayJob(ctx context.Context, j ReplayJob) (ReplayJob, error) {
	c, err := s.ReadControl(ctx, jobLane)
	if err != nil {
		return ReplayJob{}, err
	}
	jobs := c.ReplayJobs()
	if i := slices.IndexFunc(jobs, func(known ReplayJob) bool { return known.ID == j.ID }); i >= 0 {
		return jobs[i], nil
	}
	switch {
	case c.Head.IsSealed:
		return ReplayJob{}, errSealed("replays")
	case len(jobs) >= MaxReplayJobs:
		return ReplayJob{}, errConflict("replays", "too many bulk replays are under way: wait for one, or cancel one")
	}
	etags, err := s.Table.Transact(ctx, s.partitionOf(jobLane), []storage.Op{
		headOp(c.Head, rows.Values(rows.RequestSeq.Is(c.Head.RequestSeq))),
		{Kind: storage.Insert, Key: jobKey(j.ID), Values: j.jobValues()},
	})
	if err != nil {
		return ReplayJob{}, err
	}
	j.ETag = etags[1]
	return j, nil
}

// SaveReplayJob replaces the row that a job was read from, and returns its new ETag. Precondition or NotFound:
// another process has changed or ended the job.
func (s *Store) SaveReplayJob(ctx context.Context, j ReplayJob) (storage.ETag, error) {
	etags, err := s.Table.Transact(ctx, s.partitionOf(jobLane),
		[]storage.Op{{Kind: storage.Replace, Key: jobKey(j.ID), IfMatch: j.ETag, Values: j.jobValues()}})
	if err != nil {
		return "", err
	}
	return etags[0], nil
}

// RemoveReplayJob removes a job's row, if it exists.
func (s *Store) RemoveReplayJob(ctx context.Context, id string) error {
	_, err := s.Table.Transact(ctx, s.partitionOf(jobLane), []storage.Op{{Kind: storage.Delete, Key: jobKey(id)}})
	if storage.Is(err, storage.NotFound) {
		return nil
	}
	return err
}
