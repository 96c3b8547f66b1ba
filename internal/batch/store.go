package batch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"weir/internal/storage"
	"weir/internal/weir"
	"weir/internal/wire"
)

// partition is the table partition of the batches' rows.
const partition = "batches"

// These prefixes begin the keys of rows that lead to a batch. Such a row has the column Batch: the
// id of the batch. The row of the work also has the column Upstream, if the batch's upstream is
// known. The batch's own row has the key <id> and the columns Text and Progress.
const (
	workPrefix = "!"  // followed by <id>: the work on the batch is not done
	keyPrefix  = "i_" // followed by the hash of an idempotency key
)

// progress has the fields of a batch that users do not see. A window is a run of consecutive parts
// that are appended between two saves of the batch's row.
type progress struct {
	ContentType string `json:"type"`
	Digest      string `json:"digest"` // SHA-256 of the document
	// row key for the batch's idempotency key; see keyRowOf
	KeyRow string `json:"keyRow,omitempty"`
	File   string `json:"file,omitempty"` // see Spec.File
	Next   int    `json:"next"`           // number of the first part of the next window
	// number of the first part of each window with messages
	Windows []int `json:"windows,omitempty"`
	// StuckSince is the time since when the work fails because of this batch, without any progress;
	// see judgeStuck.
	StuckSince time.Time `json:"stuckSince,omitzero"`
}

// row is a batch as stored.
type row struct {
	batch    wire.Batch
	progress progress
	etag     storage.ETag
}

func (r *row) values() (map[string]any, error) {
	b := r.batch
	b.Problems, b.Stages, b.Duplicate = nil, nil, false
	text, err := json.Marshal(b)
	if err != nil {
		return nil, err
	}

	hidden, err := json.Marshal(r.progress)

	return map[string]any{"Text": string(text), "Progress": string(hidden)}, err
}

func parseRow(from storage.Row) (r row, err error) {
	text, _ := from.Values["Text"].(string)
	hidden, _ := from.Values["Progress"].(string)
	r.etag = from.ETag
	if err = json.Unmarshal([]byte(text), &r.batch); err == nil {
		err = json.Unmarshal([]byte(hidden), &r.progress)
	}

	if err != nil {
		err = fmt.Errorf("batch: row %q: %w", from.Key, err)
	}

	return r, err
}

type store struct{ table storage.Table }

// create inserts the rows of a new batch. If an earlier batch has the idempotency key, create
// inserts nothing and returns the earlier batch. Otherwise known is nil.
func (s store) create(ctx context.Context, r row) (known *row, err error) {
	values, err := r.values()
	if err != nil {
		return nil, err
	}

	id := r.batch.ID
	work := map[string]any{"Batch": id}
	if r.batch.Upstream != "" {
		work["Upstream"] = r.batch.Upstream
	}

	ops := []storage.Op{{Kind: storage.Insert, Key: id, Values: values},
		{Kind: storage.Insert, Key: workPrefix + id, Values: work}}

	if r.progress.KeyRow != "" {
		ops = append(ops, storage.Op{Kind: storage.Insert, Key: r.progress.KeyRow,
			Values: map[string]any{"Batch": id}})
	}

	_, err = s.table.Transact(ctx, partition, ops)
	if !storage.Is(err, storage.Conflict) {
		return nil, err
	}

	switch _, readErr := s.read(ctx, id); {
	case readErr == nil:
		return nil, nil // an earlier try has inserted the rows, but storage's answer was lost
	case !storage.Is(readErr, storage.NotFound):
		// An earlier try may have inserted the rows. Then readByKey would return this batch, and
		// the caller would take this batch for an earlier one and remove its document.
		return nil, readErr

	case r.progress.KeyRow == "":
		return nil, err
	}

	known, err = s.readByKey(ctx, r.progress.KeyRow)

	// the earlier batch was rejected, and has just released its key
	if storage.Is(err, storage.NotFound) {
		return nil, &storage.Error{Op: "batch create", Kind: storage.Unavailable,
			Index: -1, Err: err}
	}

	return known, err
}

// readByKey reads the batch to which the row keyRow leads.
func (s store) readByKey(ctx context.Context, keyRow string) (*row, error) {
	found, err := s.table.Get(ctx, partition, keyRow)
	if err != nil {
		return nil, err
	}

	id, _ := found.Values["Batch"].(string)
	r, err := s.read(ctx, id)
	if err != nil {
		return nil, err
	}

	return &r, nil
}

func (s store) read(ctx context.Context, id string) (row, error) {
	found, err := s.table.Get(ctx, partition, id)
	if err != nil {
		return row{}, err
	}
	return parseRow(found)
}

// save replaces the row that r was read from. A Precondition or NotFound error means that another
// process has written or removed the row.
func (s store) save(ctx context.Context, r *row) error {
	values, err := r.values()
	if err != nil {
		return err
	}

	etags, err := s.table.Transact(ctx, partition,
		[]storage.Op{{Kind: storage.Replace, Key: r.batch.ID, IfMatch: r.etag, Values: values}})
	if err == nil {
		r.etag = etags[0]
	}

	return err
}

// endWork removes the row by which sweeps find an unfinished batch.
func (s store) endWork(ctx context.Context, id string) error {
	return s.removeRow(ctx, workPrefix+id)
}

// releaseKey removes the row of a batch's idempotency key. Repeated calls are harmless: if the row
// leads to a later batch by now, releaseKey leaves the row.
func (s store) releaseKey(ctx context.Context, r *row) error {
	key := r.progress.KeyRow
	if key == "" {
		return nil
	}

	found, err := s.table.Get(ctx, partition, key)
	if err == nil && found.Values["Batch"] == r.batch.ID {
		_, err = s.table.Transact(ctx, partition,
			[]storage.Op{{Kind: storage.Delete, Key: key, IfMatch: found.ETag}})
	}

	if storage.Is(err, storage.NotFound) || storage.Is(err, storage.Precondition) {
		return nil
	}

	return err
}

func (s store) removeRow(ctx context.Context, key string) error {
	_, err := s.table.Transact(ctx, partition, []storage.Op{{Kind: storage.Delete, Key: key}})
	if storage.Is(err, storage.NotFound) {
		return nil
	}
	return err
}

// unfinished is a batch whose work is not done.
type unfinished struct {
	id       string
	upstream string // empty = not known
}

// listWork returns the unfinished batches, newest first.
func (s store) listWork(ctx context.Context) (all []unfinished, err error) {
	q := storage.Query{Partition: partition, From: workPrefix, To: "0"}
	for {
		page, err := s.table.Range(ctx, q)
		if err != nil {
			return nil, err
		}

		for _, r := range page.Rows {
			upstream, _ := r.Values["Upstream"].(string)
			all = append(all, unfinished{strings.TrimPrefix(r.Key, workPrefix), upstream})
			q.From, q.After = "", r.Key
		}

		if !page.More {
			return all, nil
		}
	}
}

// listBatches returns at most limit batches, newest first.
func (s store) listBatches(ctx context.Context, limit int) ([]wire.Batch, error) {
	page, err := s.table.Range(ctx,
		storage.Query{Partition: partition, From: "0", To: keyPrefix, Limit: limit})
	if err != nil {
		return nil, err
	}

	batches := make([]wire.Batch, 0, len(page.Rows))
	for _, found := range page.Rows {
		r, err := parseRow(found)
		if err != nil {
			return nil, err
		}
		batches = append(batches, r.batch)
	}

	return batches, nil
}

// keyRowOf returns the row key for an idempotency key, or "" if idempotencyKey is empty. The hash
// includes the upstream, so that upstreams with equal idempotency keys do not disturb each other.
func keyRowOf(upstream, idempotencyKey string) string {
	if idempotencyKey == "" {
		return ""
	}

	if upstream != "" {
		idempotencyKey = upstream + "\x00" + idempotencyKey
	}

	sum := sha256.Sum256([]byte(idempotencyKey))
	return keyPrefix + hex.EncodeToString(sum[:16])
}

// apiError turns a storage error into the error that callers of the API get. It returns other
// errors unchanged.
func apiError(err error) error {
	switch storage.KindOf(err) {
	case storage.Throttled, storage.Unavailable, storage.Ambiguous:
		return &weir.Error{Kind: weir.Unavailable, Op: "batch",
			Message:    "storage cannot be reached at the moment; try again",
			RetryAfter: 5 * time.Second, Err: err}

	case storage.NotFound:
		return &weir.Error{Kind: weir.NotFound, Op: "batch",
			Message: "there is no batch of this id, or it was removed after thirty days", Err: err}
	}

	return err
}
