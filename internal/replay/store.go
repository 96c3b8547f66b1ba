package replay

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"weir/internal/job"
	"weir/internal/lane"
	"weir/internal/lane/jobrow"
	"weir/internal/storage"
	"weir/internal/weir"
)

// finalPartition is the table partition with the rows of jobs that are over.
const finalPartition = "replays"

// maxListed is the largest number of finished jobs in a list. A list also has all running jobs.
const maxListed = 100

// jobStore reads and writes jobs. A running job is a row of lane 0. A job that is over has a final
// row in the partition "replays", and its row of lane 0 can still exist.
type jobStore struct{ store *lane.Store }

// readFinal reads the final row of a job. It returns false if the job has no final row.
func (b jobStore) readFinal(ctx context.Context, id string) (Job, bool, error) {
	r, err := b.store.Table.Get(ctx, finalPartition, id)
	if storage.Is(err, storage.NotFound) {
		return Job{}, false, nil
	}
	if err != nil {
		return Job{}, false, err
	}

	j, err := decodeFinal(r)

	return j, err == nil, err
}

func decodeFinal(r storage.Row) (j Job, err error) {
	text, _ := r.Values["Text"].(string)
	if err = json.Unmarshal([]byte(text), &j); err != nil {
		err = fmt.Errorf("replay: job %q: %w", r.Key, err)
	}
	return j, err
}

// getJob reads the final row of a job and then the row of lane 0. If the job ends between these two
// reads, both find nothing. So getJob then reads both rows a second time.
func (b jobStore) getJob(ctx context.Context, id string) (Job, error) {
	if !job.IsID(id, randomBytes) {
		return Job{}, errUnknown
	}

	for range 2 {
		if j, found, err := b.readFinal(ctx, id); found || err != nil {
			return j, apiError(err)
		}

		row, err := jobrow.Read(ctx, b.store, id)
		if err == nil {
			j, _, err := decodeJob(row)
			return j, err
		}

		if !storage.Is(err, storage.NotFound) {
			return Job{}, apiError(err)
		}
	}

	return Job{}, errUnknown
}

var errUnknown = &weir.Error{Kind: weir.NotFound, Op: "replays",
	Message: "there is no bulk replay of this name, or it was removed after thirty days"}

// listJobs returns all running jobs and the newest jobs that are over, newest first.
func (b jobStore) listJobs(ctx context.Context) ([]Job, error) {
	running, err := jobrow.ReadAll(ctx, b.store)
	if err != nil {
		return nil, apiError(err)
	}

	page, err := b.store.Table.Range(ctx,
		storage.Query{Partition: finalPartition, Limit: maxListed})
	if err != nil {
		return nil, apiError(err)
	}

	jobs := map[string]Job{}
	for _, n := range running {
		j, _, err := decodeJob(n)
		if err != nil {
			return nil, err
		}
		jobs[n.ID] = j
	}

	for _, r := range page.Rows {
		if jobs[r.Key], err = decodeFinal(r); err != nil {
			return nil, err
		}
	}

	out := make([]Job, 0, len(jobs))
	for _, j := range jobs {
		out = append(out, j)
	}

	slices.SortFunc(out, func(a, b Job) int { return cmp.Compare(a.ID, b.ID) })

	return out, nil
}

// finishJob writes the final row of a job, calls finished, and removes the row of lane 0. If the
// final row exists already, finishJob continues with the job of that row. The row of lane 0 is
// removed last: if finished fails or the process crashes, the next sweep finds that row, and
// finished is called again.
func (b jobStore) finishJob(ctx context.Context, j Job, finished func(Job) error) (Job, error) {
	text, err := json.Marshal(j)
	if err != nil {
		return Job{}, err
	}

	_, err = b.store.Table.Transact(ctx, finalPartition,
		[]storage.Op{{Kind: storage.Insert, Key: j.ID,
			Values: map[string]any{"Text": string(text)}}})

	switch {
	case storage.Is(err, storage.Conflict):
		var found bool
		if j, found, err = b.readFinal(ctx, j.ID); err != nil || !found {
			return j, err
		}

	case err != nil:
		return Job{}, err
	}

	if err := finished(j); err != nil {
		return j, err
	}

	return j, jobrow.Remove(ctx, b.store, j.ID)
}

// apiError turns a temporary error of storage into a weir.Error of kind Unavailable. It returns
// other errors unchanged.
func apiError(err error) error {
	switch storage.KindOf(err) {
	case storage.Throttled, storage.Unavailable, storage.Ambiguous:
		return &weir.Error{Kind: weir.Unavailable, Op: "replays",
			Message:    "storage cannot be reached at the moment; try again",
			RetryAfter: 5 * time.Second, Err: err}
	}
	return err
}
