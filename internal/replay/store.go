package replay

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/weir"
)

// partition is where jobs are kept that are over, beside the lanes.
const partition = "replays"

const (
	// kept is how long a job is kept after its start.
	kept = 30 * 24 * time.Hour
	// listed is how many jobs that are over a list tells of.
	listed = 100
)

// books keep jobs: those under way as notes of a lane, those over in rows of their own. A
// job that has such a row is over, whatever its note says.
type books struct{ store *lane.Store }

// over reads a job that is over; false when there is none of this name.
func (b books) over(ctx context.Context, id string) (Job, bool, error) {
	r, err := b.store.Table.Get(ctx, partition, id)
	if storage.Is(err, storage.NotFound) {
		return Job{}, false, nil
	}
	if err != nil {
		return Job{}, false, err
	}
	j, err := overFrom(r)
	return j, err == nil, err
}

func overFrom(r storage.Row) (j Job, err error) {
	text, _ := r.Values["Text"].(string)
	if err = json.Unmarshal([]byte(text), &j); err != nil {
		err = fmt.Errorf("replay: job %q: %w", r.Key, err)
	}
	return j, err
}

// get reads a job. It may be over between the two looks, so the second is followed by a
// third.
func (b books) get(ctx context.Context, id string) (Job, error) {
	if !ids.MatchString(id) {
		return Job{}, errUnknown
	}
	for range 2 {
		if j, found, err := b.over(ctx, id); found || err != nil {
			return j, unavailable(err)
		}
		note, err := b.store.Job(ctx, id)
		if err == nil {
			j, _, err := fromRow(note)
			return j, err
		}
		if !storage.Is(err, storage.NotFound) {
			return Job{}, unavailable(err)
		}
	}
	return Job{}, errUnknown
}

var errUnknown = &weir.Error{Kind: weir.NotFound, Op: "replays", Message: "there is no bulk replay of this name, or it was removed after thirty days"}

// list reads the newest jobs, newest first.
func (b books) list(ctx context.Context) ([]Job, error) {
	notes, err := b.store.Jobs(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	page, err := b.store.Table.Range(ctx, storage.Query{Partition: partition, Limit: listed})
	if err != nil {
		return nil, unavailable(err)
	}
	jobs := map[string]Job{}
	for _, n := range notes {
		j, _, err := fromRow(n)
		if err != nil {
			return nil, err
		}
		jobs[n.ID] = j
	}
	for _, r := range page.Rows {
		if jobs[r.Key], err = overFrom(r); err != nil {
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

// finish writes that a job is over, and gives it back as it then stands: somebody may have
// been faster. finished is told before the note goes, so that a crash, or an error of it,
// repeats that rather than leaves it out.
func (b books) finish(ctx context.Context, j Job, finished func(Job) error) (Job, error) {
	text, err := json.Marshal(j)
	if err != nil {
		return Job{}, err
	}
	_, err = b.store.Table.Transact(ctx, partition, []storage.Op{{Kind: storage.Insert, Key: j.ID, Values: map[string]any{"Text": string(text)}}})
	switch {
	case storage.Is(err, storage.Conflict):
		var found bool
		if j, found, err = b.over(ctx, j.ID); err != nil || !found {
			return j, err
		}
	case err != nil:
		return Job{}, err
	}
	if err := finished(j); err != nil {
		return j, err
	}
	if err := b.store.RemoveJob(ctx, j.ID); err != nil {
		return j, err
	}
	return j, b.prune(ctx)
}

// prune removes jobs that were kept long enough, some at a time.
func (b books) prune(ctx context.Context) error {
	page, err := b.store.Table.Range(ctx, storage.Query{Partition: partition, From: idsUntil(b.store.Now().Add(-kept)), Limit: storage.MaxOps, Columns: []string{"Old"}})
	if err != nil || len(page.Rows) == 0 {
		return err
	}
	ops := make([]storage.Op, len(page.Rows))
	for i, r := range page.Rows {
		ops[i] = storage.Op{Kind: storage.Delete, Key: r.Key}
	}
	_, err = b.store.Table.Transact(ctx, partition, ops)
	if storage.Is(err, storage.NotFound) {
		return nil // another was faster
	}
	return err
}

// unavailable is what a caller of the API sees of a storage error.
func unavailable(err error) error {
	switch storage.KindOf(err) {
	case storage.Throttled, storage.Unavailable, storage.Ambiguous:
		return &weir.Error{Kind: weir.Unavailable, Op: "replays", Message: "storage cannot be reached at the moment; try again", RetryAfter: 5 * time.Second, Err: err}
	}
	return err
}
