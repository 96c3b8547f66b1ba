package lane

import (
	"context"
	"fmt"
	"strings"
	"time"

	"weir/internal/storage"
	"weir/internal/weir"
)

// Retention removes what is final and old, a few pages at a time. It walks the log from
// its own place; what is old and not to be removed yet (dead ones, waiting ones) is
// passed over, and a new walk starts each day to look at those again.
type Retention struct {
	Store *Store
	Keep  time.Duration // for delivered, cancelled, superseded: after they became so
	Dead  time.Duration // for dead ones
	Pages int           // at most in one Run

	next *Store // where the lane's epoch is over: the one that followed
}

const (
	retentionPage = 100
	// rewalk is the time after which a walk that has reached the young starts anew.
	rewalk = 24 * time.Hour
	// forgottenAfter is how old a blob without mark must be before it is looked up.
	forgottenAfter = 24 * time.Hour
)

// Run does one lane's share. It gives back the moment before which there is nothing more
// to do; zero = call again soon.
func (r *Retention) Run(ctx context.Context, lane int) (time.Time, error) {
	walk, err := r.load(ctx, lane)
	if err != nil {
		return time.Time{}, err
	}
	control, err := r.Store.Control(ctx, lane)
	if err != nil {
		return time.Time{}, err
	}
	if control.Tail.Closed && r.next == nil {
		return r.Store.Now().Add(time.Minute), nil // it is being copied; soon Earlier sees to it
	}
	start := walk
	var next time.Time
	for range r.Pages {
		if next, err = r.page(ctx, lane, &walk, control.Tail.Cursor); err != nil || !next.IsZero() {
			break
		}
	}
	if err == nil && !next.IsZero() && walk.startedAt.Add(rewalk).Before(r.Store.Now()) {
		walk = walkState{etag: walk.etag, startedAt: r.Store.Now()}
	}
	if walk == start {
		return next, err
	}
	if saveErr := r.save(ctx, lane, walk); err == nil {
		err = saveErr
	}
	return next, err
}

// walkState is the row !swept.
type walkState struct {
	etag      storage.ETag
	seq       int64 // looked at up to here
	startedAt time.Time
}

func (r *Retention) load(ctx context.Context, lane int) (walkState, error) {
	row, err := r.Store.Table.Get(ctx, r.Store.partition(lane), sweptKey)
	if storage.Is(err, storage.NotFound) {
		return walkState{startedAt: r.Store.Now()}, nil
	}
	v := values{row.Values}
	return walkState{etag: row.ETag, seq: v.int("Seq"), startedAt: v.time("StartedAt")}, err
}

// save keeps the place. Two sweeps at once do no harm: either's place is a true one.
func (r *Retention) save(ctx context.Context, lane int, w walkState) error {
	_, err := r.Store.Table.Transact(ctx, r.Store.partition(lane), []storage.Op{{Kind: storage.Upsert, Key: sweptKey,
		Values: map[string]any{"Seq": w.seq, "StartedAt": timeValue(w.startedAt)}}})
	return err
}

// page looks at one page behind the walk's place. It returns a moment when it has come
// to what is too young.
func (r *Retention) page(ctx context.Context, lane int, w *walkState, cursor int64) (time.Time, error) {
	now := r.Store.Now()
	page, err := r.Store.Table.Range(ctx, storage.Query{
		Partition: r.Store.partition(lane), After: messageKey(w.seq), To: messageKey(cursor), Limit: retentionPage,
		Columns: []string{"Stage", "Held", "AcceptedAt", "FinishedAt", "ReplayAskedAt", "Idem", "Blob", "EditedBlob", "From", "Key"},
	})
	if err != nil {
		return time.Time{}, err
	}
	packed, err := r.packed(ctx, lane, page.Rows)
	if err != nil {
		return time.Time{}, err
	}
	for _, row := range page.Rows {
		v := values{row.Values}
		if young := v.time("AcceptedAt").Add(min(r.Keep, r.Dead)); young.After(now) {
			return young, nil
		}
		seq, err := seqOfMessageKey(row.Key)
		if err != nil {
			return time.Time{}, err
		}
		also := packed.fill(seq, v)
		over, err := r.over(ctx, lane, seq, v, now)
		if err != nil {
			return time.Time{}, err
		}
		if over {
			if err := r.remove(ctx, lane, row, v, also); err != nil {
				return time.Time{}, err
			}
		}
		w.seq = seq
	}
	if !page.More {
		return now.Add(min(r.Keep, r.Dead, time.Hour)), nil
	}
	return time.Time{}, nil
}

// over says whether a message is final and its retention has passed. One that has a copy
// in a later epoch is kept as long as that, since its id leads there.
func (r *Retention) over(ctx context.Context, lane int, seq int64, v values, now time.Time) (bool, error) {
	stage, keep := weir.Stage(v.string("Stage")), r.Keep
	if r.next != nil && moves(stage) {
		id := weir.ID{Epoch: r.Store.Epoch, Lane: lane, Seq: seq}
		_, err := r.next.Table.Get(ctx, r.next.partition(Of(v.string("Key"), r.next.Lanes)), prefixFrom+from(id))
		if storage.Is(err, storage.NotFound) {
			return true, nil
		}
		return false, err
	}
	finished := v.time("FinishedAt")
	if stage == weir.Dead {
		// A replay that waits for the holder must find its message: the time begins anew.
		keep, finished = r.Dead, later(finished, v.time("ReplayAskedAt"))
	}
	return stage.Final() && !finished.Add(keep).After(now), nil
}

// packedFirsts are the d_ rows of a page.
type packedFirsts []firsts

// packed reads the d_ rows of a page, where a message of it may stand in one.
func (r *Retention) packed(ctx context.Context, lane int, rows []storage.Row) (packedFirsts, error) {
	low, high := int64(0), int64(0)
	for _, row := range rows {
		if v := (values{row.Values}); v.string("Stage") == string(weir.Queued) && !v.bool("Held") {
			seq, err := seqOfMessageKey(row.Key)
			if err != nil {
				return nil, err
			}
			if low == 0 {
				low = seq
			}
			high = seq
		}
	}
	if low == 0 {
		return nil, nil
	}
	return r.Store.readFirsts(ctx, lane, low, high)
}

// fill gives a row the stage that its d_ row knows. It names that row when the message is
// its last, so that both are removed together.
func (p packedFirsts) fill(seq int64, v values) (also string) {
	for _, f := range p {
		one, ok := f.bySeq[seq]
		if !ok {
			continue
		}
		v.m["Stage"], v.m["FinishedAt"] = string(weir.Delivered), one.FinishedAt
		if seq == f.high {
			return firstsKey(seq)
		}
	}
	return ""
}

// remove takes away a message's rows in one transaction, its blobs before them: a blob
// whose row is gone would be found by nobody. A dead one says so in its row first, so that
// no replay is asked for whose body is gone. also is one more row to remove; empty = none.
func (r *Retention) remove(ctx context.Context, lane int, row storage.Row, v values, also string) error {
	if weir.Stage(v.string("Stage")) == weir.Dead && v.string(acceptedBody.blob)+v.string(editedBody.blob) != "" {
		etags, err := r.Store.Table.Transact(ctx, r.Store.partition(lane), []storage.Op{
			{Kind: storage.Merge, Key: row.Key, IfMatch: row.ETag, Values: map[string]any{"Removing": true}}})
		if storage.Is(err, storage.NotFound) || storage.Is(err, storage.Precondition) {
			return nil // as below
		}
		if err != nil {
			return err
		}
		row.ETag = etags[0]
	}
	for _, in := range []bodyColumns{acceptedBody, editedBody} {
		if err := r.Store.RemoveBody(ctx, v.string(in.blob)); err != nil {
			return err
		}
	}
	ops := []storage.Op{{Kind: storage.Delete, Key: row.Key, IfMatch: row.ETag}}
	if also != "" {
		ops = append(ops, storage.Op{Kind: storage.Delete, Key: also})
	}
	if idem := v.string("Idem"); idem != "" {
		ops = append(ops, storage.Op{Kind: storage.Delete, Key: idem})
	}
	if old := v.string("From"); old != "" {
		ops = append(ops, storage.Op{Kind: storage.Delete, Key: prefixFrom + old})
	}
	if weir.Stage(v.string("Stage")) == weir.Dead {
		ops = append(ops, storage.Op{Kind: storage.Delete, Key: prefixDead + strings.TrimPrefix(row.Key, prefixMessage)})
	}
	_, err := r.Store.Table.Transact(ctx, r.Store.partition(lane), ops)
	if storage.Is(err, storage.NotFound) || storage.Is(err, storage.Precondition) {
		return nil // another sweep was here, or somebody changed it: the next walk sees
	}
	return err
}

// Forgotten removes the bodies of the day before yesterday that no message refers to:
// their append never came to be. One whose mark is missing is looked up in its lane
// first, for an append can have succeeded without a mark.
func (r *Retention) Forgotten(ctx context.Context) error {
	day := r.Store.Now().UTC().Add(-forgottenAfter).AddDate(0, 0, -1).Format("2006-01-02") + "/"
	unmarked := map[string][]string{}
	for last := ""; ; {
		infos, err := r.Store.Bodies.List(ctx, day, last)
		if err != nil {
			return err
		}
		if len(infos) == 0 {
			break
		}
		for _, info := range infos {
			if parts := strings.Split(info.Name, "/"); !info.Marked && len(parts) == 3 {
				unmarked[parts[1]] = append(unmarked[parts[1]], info.Name)
			}
			last = info.Name
		}
	}
	for partition, names := range unmarked {
		if err := r.removeForgotten(ctx, partition, names); err != nil {
			return fmt.Errorf("lane %s: %w", partition, err)
		}
	}
	return nil
}

func (r *Retention) removeForgotten(ctx context.Context, partition string, names []string) error {
	used, err := r.blobsOf(ctx, partition)
	if err != nil {
		return err
	}
	for _, name := range names {
		if used[name] {
			err = r.Store.Bodies.Mark(ctx, name)
		} else {
			err = r.Store.Bodies.Delete(ctx, name)
		}
		if err != nil && !storage.Is(err, storage.NotFound) {
			return err
		}
	}
	return nil
}

// blobsOf reads which blobs the messages of a partition refer to, and the wishes that wait
// to edit one. Wishes first: where one is granted meanwhile, the message has the blob.
func (r *Retention) blobsOf(ctx context.Context, partition string) (map[string]bool, error) {
	used := map[string]bool{}
	for _, prefix := range []string{prefixWish, prefixMessage} {
		if err := r.addBlobs(ctx, partition, prefix, used); err != nil {
			return nil, err
		}
	}
	return used, nil
}

func (r *Retention) addBlobs(ctx context.Context, partition, prefix string, used map[string]bool) error {
	q := storage.Query{Partition: partition, From: prefix, To: after(prefix), Columns: []string{acceptedBody.blob, editedBody.blob}}
	for {
		page, err := r.Store.Table.Range(ctx, q)
		if err != nil {
			return err
		}
		for _, row := range page.Rows {
			for _, in := range []bodyColumns{acceptedBody, editedBody} {
				if blob := (values{row.Values}).string(in.blob); blob != "" {
					used[blob] = true
				}
			}
			q.From, q.After = "", row.Key
		}
		if !page.More {
			return nil
		}
	}
}
