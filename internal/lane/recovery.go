package lane

import (
	"context"
	"strings"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
)

// Recovery is a delivery by a lane that had paused for the CMS. It shows to other lanes that their
// pauses of the same cause are over.
type Recovery struct {
	Contract string    // contract of the delivered message
	At       time.Time // time at which the attempt began that delivered the message
}

// The causes of pauses for the CMS (CMSPause.PauseCause).
const (
	// CauseAway means that the CMS was away. A delivery of any contract shows that it is back.
	CauseAway     = "away"
	refusedPrefix = "refused "
)

// CauseRefused returns the cause of a pause in which the CMS refuses messages of a contract. Only a
// delivery of that contract shows that the CMS takes messages again.
func CauseRefused(contract string) string { return refusedPrefix + contract }

// Ends reports whether the recovery ends the pause in tail: the causes match, and the attempt that
// was delivered began after the lane's last failure.
func (r Recovery) Ends(t Tail) bool {
	contract, isRefused := strings.CutPrefix(t.PauseCause, refusedPrefix)
	isSame := t.PauseCause == CauseAway || isRefused && contract == r.Contract
	return isSame && !t.PausedUntil.IsZero() && r.At.After(t.LastErrorAt)
}

// SaveRecovery stores a recovery for other processes, in place of an earlier one.
func (s *Store) SaveRecovery(ctx context.Context, r Recovery) error {
	_, err := s.Table.Transact(ctx, rows.MetaPartition,
		[]storage.Op{{Kind: storage.Upsert, Key: rows.RecoveredKey,
			Values: rows.Values(rows.Contract.Is(r.Contract), rows.RecoveredAt.Is(r.At))}})
	return err
}

// ReadRecovery reads the last recovery that a process has stored. It returns the zero Recovery if
// there is none, or if its time lies ahead because the clock of that process was wrong.
func (s *Store) ReadRecovery(ctx context.Context) (Recovery, error) {
	row, err := s.Table.Get(ctx, rows.MetaPartition, rows.RecoveredKey)
	if storage.Is(err, storage.NotFound) {
		return Recovery{}, nil
	}
	if err != nil {
		return Recovery{}, err
	}

	r := Recovery{Contract: rows.Contract.Of(row.Values), At: rows.RecoveredAt.Of(row.Values)}
	if r.At.After(s.Now().Add(2 * ClockSkew)) {
		return Recovery{}, nil
	}

	return r, nil
}
