package lane

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// An operator's pauses are markers of the lane. So the holder, and each process that looks for
// work, reads the pauses in the same query as the control rows. The transaction that changes a
// pause raises Head.RequestSeq, on condition that head has not changed since it was read. This has
// three effects:
//   - No pause is added to a sealed lane (see Head.IsSealed).
//   - Two concurrent writers cannot overwrite each other's pause.
//   - A process that looks at the lane sees that a pause has changed.
//
// A pause whose time is over is ignored. The next change of another pause removes the row of the
// ended pause.

// maxKeyPauses limits the number of paused keys in a lane, because each reader of the control rows
// reads all pauses.
const maxKeyPauses = 200

const (
	resumeKey = rows.RequestPrefix + string(RequestResume)
)

func (s *Store) pauseRowKey(key string) string {
	if key == "" {
		return rows.PauseKey
	}
	return rows.KeyPausePrefix + s.KeyHash(key)
}

func isPauseKey(row string) bool {
	return row == rows.PauseKey || strings.HasPrefix(row, rows.KeyPausePrefix)
}

func pauseFrom(lane int, r storage.Row) weir.Pause {
	v := r.Values
	return weir.Pause{Lane: lane, Key: rows.Key.Of(v), Reason: rows.Reason.Of(v),
		By: rows.PausedBy.Of(v), Since: rows.Since.Of(v), Until: rows.Until.Of(v)}
}

func pauseValues(p weir.Pause) map[string]any {
	return rows.Sparse(rows.Key.Is(p.Key), rows.Reason.Is(p.Reason), rows.PausedBy.Is(p.By),
		rows.Since.Is(p.Since), rows.Until.Is(p.Until))
}

// Pauses returns the operator's pauses that are in force. If the whole lane is paused, the lane's
// pause is the first.
func (c Control) Pauses(now time.Time) []weir.Pause {
	var pauses []weir.Pause
	for _, r := range c.markers {
		if !isPauseKey(r.Key) {
			continue
		}
		if p := pauseFrom(c.lane, r); p.Ends().After(now) {
			pauses = append(pauses, p)
		}
	}

	return pauses
}

// LanePause returns the operator's pause of the whole lane, if that pause is in force.
func (c Control) LanePause(now time.Time) (weir.Pause, bool) {
	if all := c.Pauses(now); len(all) > 0 && all[0].Key == "" {
		return all[0], true
	}
	return weir.Pause{}, false
}

// KeyPausesByHash returns the pauses of single keys that are in force, by the hash of the key
// (Store.KeyHash).
func (c Control) KeyPausesByHash(now time.Time) map[string]weir.Pause {
	pauses := map[string]weir.Pause{}
	for _, r := range c.markers {
		hash, isOfKey := strings.CutPrefix(r.Key, rows.KeyPausePrefix)
		if p := pauseFrom(c.lane, r); isOfKey && p.Ends().After(now) {
			pauses[hash] = p
		}
	}

	return pauses
}

// KeyPauses returns the pauses of single keys that are in force.
func (c Control) KeyPauses(now time.Time) []weir.Pause {
	return slices.DeleteFunc(c.Pauses(now), func(p weir.Pause) bool { return p.Key == "" })
}

// Pause begins a pause of a key or, if p.Key is empty, of a whole lane. It replaces an earlier
// pause of the same key or lane. After about a second the holder sends no paused message any more;
// an attempt in flight is not stopped. Pause returns an error of kind Conflict if the number of
// lanes is being changed, or if too many keys are paused.
func (ps Pauses) Pause(ctx context.Context, p weir.Pause) error {
	p.Since, p.Until = p.Since.UTC().Truncate(time.Microsecond),
		p.Until.UTC().Truncate(time.Microsecond)
	return ps.store.changeLane(ctx, p.Lane, func(c Control) ([]storage.Op, error) {
		row := ps.store.pauseRowKey(p.Key)
		others := slices.DeleteFunc(c.KeyPauses(ps.store.Now()), func(o weir.Pause) bool {
			return ps.store.pauseRowKey(o.Key) == row
		})

		switch {
		case c.Head.IsSealed:
			return nil, errConflict("pause",
				"the number of lanes is being changed: nothing can be paused until that is over")
		case p.Key != "" && len(others) >= maxKeyPauses:
			return nil, errConflict("pause", fmt.Sprintf(
				"%d keys of lane %d are paused, and no more can be: resume some, or pause the lane",
				len(others),
				p.Lane))
		}

		return append(c.expiredPauseOps(ps.store.Now(), row),
			storage.Op{Kind: storage.Upsert, Key: row, Values: pauseValues(p)}), nil
	})
}

// Resume ends the operator's pause of a key or, if key is empty, of the whole lane. With an empty
// key, Resume also asks the holder to end the pause that Weir makes if the CMS fails (see
// CMSPause), and to open the lane's brakes. If there are no such pauses, Resume changes nothing.
func (ps Pauses) Resume(ctx context.Context, lane int, key string) error {
	return ps.store.changeLane(ctx, lane, func(c Control) ([]storage.Op, error) {
		var ops []storage.Op
		row := ps.store.pauseRowKey(key)
		for _, n := range c.markers {
			if n.Key == row {
				ops = append(ops, storage.Op{Kind: storage.Delete, Key: row})
			}
		}

		if key == "" && (c.Tail.PausedUntil.After(ps.store.Now().Add(-ClockSkew)) ||
			len(c.Tail.Brakes) > 0) {
			ops = append(ops, storage.Op{Kind: storage.Upsert, Key: resumeKey,
				Values: map[string]any{}})
		}

		if len(ops) == 0 {
			return nil, nil
		}

		return append(ops, c.expiredPauseOps(ps.store.Now(), row)...), nil
	})
}

// expiredPauseOps returns operations that remove ended pauses, but only as many as fit into the
// caller's transaction. The argument "but" is the key of a row that the caller itself changes;
// expiredPauseOps leaves out this row.
func (c Control) expiredPauseOps(now time.Time, but string) []storage.Op {
	now = now.Add(-ClockSkew) // for a holder with a slow clock, the pause is still in force
	var ops []storage.Op
	for _, r := range c.markers {
		if isPauseKey(r.Key) && r.Key != but && !pauseFrom(c.lane, r).Ends().After(now) &&
			len(ops) < maxBatchOps/2 {
			ops = append(ops, storage.Op{Kind: storage.Delete, Key: r.Key})
		}
	}

	return ops
}

// changeLane reads the lane's control rows, and passes them to the function "ask", which returns
// the operations of a change. changeLane executes the operations in one transaction, which also
// raises Head.RequestSeq. It repeats all this if head has changed meanwhile, or if storage has not
// answered. If "ask" returns no operations, changeLane changes nothing.
func (s *Store) changeLane(ctx context.Context, lane int,
	ask func(Control) ([]storage.Op, error)) error {
	ctx, cancel := context.WithTimeout(ctx, requestPatience)
	defer cancel()
	err := rows.Update(ctx, func() (bool, error) {
		c, err := s.ReadControl(ctx, lane)
		if err != nil {
			return judgeRequest(err)
		}

		ops, err := ask(c)
		if err != nil || len(ops) == 0 {
			return true, err
		}

		head := c.Head.UpdateOp(rows.RequestSeq.Is(c.Head.RequestSeq + 1))
		_, err = s.Table.Transact(ctx, s.Partition(lane), append([]storage.Op{head}, ops...))

		return judgeRequest(err)
	}, s.PauseAfterConflict)

	return explainUndone(err)
}

// ReadPauses reads all lanes, and returns the operator's pauses that are in force.
func (ps Pauses) ReadPauses(ctx context.Context) ([]weir.Pause, error) {
	byLane := make([][]weir.Pause, ps.store.Lanes)
	err := ForEach(ps.store.Lanes, func(lane int) error {
		c, err := ps.store.ReadControl(ctx, lane)
		byLane[lane] = c.Pauses(ps.store.Now())
		return err
	})
	if err != nil {
		return nil, APIError("pauses", err)
	}

	return slices.Concat(byLane...), nil
}

// Claim asks the holder of a lane to hand the lane over to the process that wrote the claim. A
// holder without an invocation does so, because the platform can end such a process at any time. A
// claim is stored in a marker, which the holder reads with the control rows.
type Claim struct {
	By    string    // random name of the process
	Until time.Time // end of the claim
}

// longestClaim is the longest time for which a claim can count. A claim with a later end is
// ignored: the clock of its process is wrong, and the claim would block the lane for too long.
const longestClaim = time.Minute

// PutClaim stores a claim to a lane. It replaces the present claim, even that of another process.
func (s *Store) PutClaim(ctx context.Context, lane int, c Claim) error {
	_, err := s.Table.Transact(ctx, s.Partition(lane),
		[]storage.Op{{Kind: storage.Upsert, Key: rows.ClaimKey,
			Values: rows.Values(rows.Claimant.Is(c.By),
				rows.Until.Is(c.Until.UTC().Truncate(time.Microsecond)))}})
	return err
}

// Claim returns the last claim to the lane, and reports whether the claim counts. A claim counts if
// its end is in the future, but less than longestClaim away.
func (c Control) Claim(now time.Time) (Claim, bool) {
	r, found := c.Marker(rows.ClaimKey)
	if !found {
		return Claim{}, false
	}

	v := r.Values
	claim := Claim{By: rows.Claimant.Of(v), Until: rows.Until.Of(v)}
	return claim, claim.Until.After(now) && claim.Until.Before(now.Add(longestClaim))
}
