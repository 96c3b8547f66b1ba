package lane

import (
	"context"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// LatestVersion is the newest delivered version of a key and contract; it decides about superseding. Its row stays
// until the version is forgotten on request, or the lane is deleted. The zero value means that there is none.
type LatestVersion struct {
	Version string
	ID      weir.ID // id of the delivered message
	Warning string  // why the version is suspicious, from weir.Version.DescribeJump; empty = it is not suspicious
}

// IsZero reports whether no version is remembered.
func (l LatestVersion) IsZero() bool { return l.ID.Seq == 0 }

// SupersedeKey returns the hash of the key and the contract. Messages with the same hash supersede each
// other.
func (e *Entry) SupersedeKey() string { return supersedeKeyOf(&e.Message) }

// ReadLatestVersion reads the newest delivered version of a SupersedeKey.
func (ds DeliveryState) ReadLatestVersion(ctx context.Context, lane int, latestKey string) (LatestVersion, error) {
	r, err := ds.store.Table.Get(ctx, ds.store.Partition(lane), rows.VersionPrefix+latestKey)
	if storage.Is(err, storage.NotFound) {
		return LatestVersion{}, nil
	}
	return latestVersionFrom(weir.ID{Epoch: ds.store.Epoch, Lane: lane}, r.Values), err
}

// latestVersionFrom returns the version in a k_ row. origin has the epoch and lane of the row.
func latestVersionFrom(origin weir.ID, v map[string]any) LatestVersion {
	return LatestVersion{Version: rows.Version.Of(v), Warning: rows.VersionWarning.Of(v), ID: idFrom(origin, v)}
}

// idFrom returns the id of the message that a row names: the id of its first epoch if the message was copied, or else
// the id in the epoch and lane of origin.
func idFrom(origin weir.ID, v map[string]any) weir.ID {
	if id := originFrom(rows.Origin.Of(v)); !id.IsZero() {
		return id
	}
	origin.Seq, origin.Nonce = rows.Seq.Of(v), rows.Nonce.Of(v)
	return origin
}

// originFrom returns the id in the column Origin; zero = the message was accepted in the epoch of the row.
func originFrom(text string) weir.ID {
	id, err := weir.ParseID(text)
	if err != nil {
		return weir.ID{}
	}
	return id
}

// originText returns the value of the column Origin; "" = the message was accepted in the epoch of the row.
func originText(m *weir.Message) string {
	if m.Origin.IsZero() {
		return ""
	}
	return m.Origin.String()
}

// SaveLatestVersion records the version of a message as the newest delivered version of its SupersedeKey. A warning is
// kept in several rows: in the row of the version, in the row of the message, and in the row of each message that the
// version supersedes. SaveLatestVersion must be called before Finish.
func (c *Change) SaveLatestVersion(e *Entry, warning string) LatestVersion {
	id := e.Message.ID
	e.status.VersionWarning = warning
	v := rows.Sparse(rows.Version.Is(e.Message.Version), rows.Seq.Is(id.Seq), rows.Nonce.Is(id.Nonce),
		rows.Key.Is(e.Message.Key), rows.Contract.Is(e.Message.Contract), rows.VersionWarning.Is(warning),
		rows.Origin.Is(originText(&e.Message)))
	c.ops = append(c.ops, storage.Op{Kind: storage.Upsert, Key: rows.VersionPrefix + e.SupersedeKey(), Values: v})
	return LatestVersion{Version: e.Message.Version, ID: e.Message.Public(), Warning: warning}
}

// Supersede makes a message final that a newer delivered version supersedes.
func (c *Change) Supersede(seq int64, callback string, by LatestVersion, at time.Time) {
	c.UpdateTail(func(t *Tail) { t.Counts.countStage(weir.Superseded) })
	c.final = append(c.final, seq)
	c.addCallback(seq, callback, weir.Superseded, at)
	v := rows.Values(
		rows.Stage.Is(string(weir.Superseded)), rows.SupersededBy.Is(by.ID.String()), rows.FinishedAt.Is(at),
		rows.IsHeld.Is(false), rows.NextAttemptAt.Is(time.Time{}))
	if by.Warning != "" {
		rows.Put(v, rows.VersionWarning.Is(by.Warning))
	}
	c.ops = append(c.ops, storage.Op{Kind: storage.Merge, Key: rows.MessageKey(seq), Values: v})
}
