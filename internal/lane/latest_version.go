package lane

import (
	"cmp"
	"context"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// LatestVersion is the newest delivered version of a key and contract. Messages with older versions
// are superseded. The row of the version stays until the holder forgets the version on request, or
// until the whole lane is deleted. The zero value means that no version is remembered.
type LatestVersion struct {
	Version string
	ID      weir.ID // id of the delivered message
	// why the version is suspicious (see weir.Version.DescribeJump); empty = not suspicious
	Warning string
}

// IsZero reports whether no version is remembered.
func (l LatestVersion) IsZero() bool { return l.ID.Seq == 0 }

// ReadLatestVersionFor reads the newest delivered version of a message's key and contract, under
// the present and the former names of the contract. It returns the zero value if none is
// remembered.
func (ds DeliveryState) ReadLatestVersionFor(ctx context.Context, lane int,
	e *Entry) (LatestVersion, error) {
	return ds.readNewestVersion(ctx, lane, e.Message.Key, e.Message.Contract)
}

func (ds DeliveryState) readNewestVersion(ctx context.Context, lane int, key,
	contract string) (LatestVersion, error) {
	var newest LatestVersion
	for _, name := range ds.store.Contracts.listNames(contract) {
		l, err := ds.ReadLatestVersion(ctx, lane,
			supersedeKeyOf(&weir.Message{Key: key, Contract: name}))
		if err != nil {
			return LatestVersion{}, err
		}

		if newest.IsZero() || isNewer(l.Version, newest.Version) {
			newest = l
		}
	}

	return newest, nil
}

// isNewer reports whether version a is newer than b. A text that is no version counts as the oldest
// version.
func isNewer(a, b string) bool {
	parsed, err := weir.ParseVersion(a)
	if err != nil {
		return false
	}
	other, err := weir.ParseVersion(b)
	return err != nil || parsed.Newer(other)
}

// SupersedeKey returns the hash of the message's key and contract. A message supersedes only
// messages with the same hash.
func (e *Entry) SupersedeKey() string { return supersedeKeyOf(&e.Message) }

// ReadLatestVersion reads the newest delivered version, or returns the zero value if none is
// remembered. latestKey is an Entry.SupersedeKey.
func (ds DeliveryState) ReadLatestVersion(ctx context.Context, lane int,
	latestKey string) (LatestVersion, error) {
	r, err := ds.store.Table.Get(ctx, ds.store.Partition(lane), rows.VersionPrefix+latestKey)
	if storage.Is(err, storage.NotFound) {
		return LatestVersion{}, nil
	}
	return latestVersionFrom(weir.ID{Epoch: ds.store.Epoch, Lane: lane}, r.Values), err
}

// latestVersionFrom returns the version in a row. v has the row's values, and origin has the row's
// epoch and lane.
func latestVersionFrom(origin weir.ID, v map[string]any) LatestVersion {
	return LatestVersion{Version: rows.Version.Of(v), Warning: rows.VersionWarning.Of(v),
		ID: idFrom(origin, v)}
}

// idFrom returns the id of the message that a row names: the id in the epoch that accepted the
// message. v has the row's values, and origin has the row's epoch and lane.
func idFrom(origin weir.ID, v map[string]any) weir.ID {
	if id := originFrom(rows.Origin.Of(v)); !id.IsZero() {
		return id
	}
	origin.Seq, origin.Nonce = rows.Seq.Of(v), rows.Nonce.Of(v)
	return origin
}

// originFrom returns the id in the column Origin; zero = the row's own epoch accepted the message.
func originFrom(text string) weir.ID {
	id, err := weir.ParseID(text)
	if err != nil {
		return weir.ID{}
	}
	return id
}

// originText returns the value of the column Origin; "" = the row's own epoch accepted the message.
func originText(m *weir.Message) string {
	if m.Origin.IsZero() {
		return ""
	}
	return m.Origin.String()
}

// SaveLatestVersion records the message's version as the newest delivered version of the message's
// key and contract. It must be called before Finish, because Finish writes the warning into the
// message's row.
func (c *Change) SaveLatestVersion(e *Entry, warning string) LatestVersion {
	id := e.Message.ID
	e.status.VersionWarning = warning
	v := rows.Sparse(rows.Version.Is(e.Message.Version), rows.Seq.Is(id.Seq),
		rows.Nonce.Is(id.Nonce),
		rows.Key.Is(e.Message.Key), rows.Contract.Is(e.Message.Contract),
		rows.VersionWarning.Is(warning),
		rows.Origin.Is(originText(&e.Message)))

	c.ops = append(c.ops, storage.Op{Kind: storage.Upsert,
		Key: rows.VersionPrefix + e.SupersedeKey(), Values: v})

	return LatestVersion{Version: e.Message.Version, ID: e.Message.Public(), Warning: warning}
}

// Supersede makes a message superseded. by is the newer version that was delivered. The message
// gets a warning if that version is suspicious by itself, or compared with the version of the
// message.
func (c *Change) Supersede(old HeldMessage, by LatestVersion, at time.Time) {
	c.UpdateTail(func(t *Tail) { t.Counts.countStage(weir.Superseded) })
	c.final = append(c.final, old.Seq)
	c.addCallback(old.Seq, old.Callback, weir.Superseded, at)
	warning := cmp.Or(by.Warning, weir.DescribeFraction(old.Version, by.Version))
	v := rows.Values(
		rows.Stage.Is(string(weir.Superseded)), rows.SupersededBy.Is(by.ID.String()),
		rows.FinishedAt.Is(at),
		rows.IsHeld.Is(false), rows.NextAttemptAt.Is(time.Time{}))

	if warning != "" {
		rows.Put(v, rows.VersionWarning.Is(warning))
	}

	c.ops = append(c.ops, storage.Op{Kind: storage.Merge, Key: rows.MessageKey(old.Seq), Values: v})
}
