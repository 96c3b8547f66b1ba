package lane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// A replay must not overwrite a newer message of the key. So for each key with dead messages the
// holder stores the position of the last delivery in a row (l_), in the commit of that delivery.
// Retention removes the row when it is of no use any more (removeLastDeliveries).

// LastDelivery names the delivered message with the greatest position in its key's order.
type LastDelivery struct {
	OrderPos string // "" = no delivery is recorded
	ID       weir.ID
}

// ReadLastDelivery reads the last delivery of a key. It returns the zero value if no delivery is
// recorded.
func (ds DeliveryState) ReadLastDelivery(ctx context.Context, lane int,
	keyHash string) (LastDelivery, error) {
	r, err := ds.store.Table.Get(ctx, ds.store.Partition(lane), rows.LastDeliveryPrefix+keyHash)
	if storage.Is(err, storage.NotFound) {
		return LastDelivery{}, nil
	}
	return lastDeliveryFrom(weir.ID{Epoch: ds.store.Epoch, Lane: lane}, r.Values), err
}

// lastDeliveryFrom returns the last delivery in the values v of a row (l_). origin has the row's
// epoch and lane.
func lastDeliveryFrom(origin weir.ID, v map[string]any) LastDelivery {
	return LastDelivery{OrderPos: rows.OrderPos.Of(v), ID: idFrom(origin, v)}
}

// SaveLastDelivery records the entry's message as its key's last delivery.
func (c *Change) SaveLastDelivery(e *Entry) {
	id := e.Message.ID
	c.ops = append(c.ops, storage.Op{Kind: storage.Upsert, Key: rows.LastDeliveryPrefix + e.keyHash,
		Values: rows.Sparse(
			rows.OrderPos.Is(e.orderPos()), rows.Seq.Is(id.Seq), rows.Nonce.Is(id.Nonce),
			rows.Origin.Is(originText(&e.Message)))})
}

// replayBlockedBy returns the id of a later message of the key that was delivered. It returns "" if
// nothing blocks a replay: no later message was delivered, or the contract has onFailure: skip. l
// is the key's last delivery. The entry must have its whole row.
func (e *Entry) replayBlockedBy(l LastDelivery) string {
	switch blocker := rows.ReplayBlockedBy.Of(e.row); {
	case e.Message.Skip:
		return ""
	case blocker != "": // recorded in an earlier epoch, from which the message was copied
		return blocker
	case l.OrderPos > e.orderPos():
		return l.ID.String()
	}

	return ""
}

// ReplayObstacle returns the reason why a dead message must not be replayed, or "" if a replay is
// allowed. The entry must have its whole row, as ReadMessage returns it: rows of lists lack the
// obstacles of earlier epochs.
func (s *Store) ReplayObstacle(ctx context.Context, e *Entry) (string, error) {
	if e.isHeaderOnly {
		return "", errors.New("lane: the obstacles to a replay are not among the columns of lists")
	}

	l, err := s.DeliveryState().ReadLastDelivery(ctx, e.Message.ID.Lane, e.keyHash)
	if err != nil {
		return "", err
	}

	if later := e.replayBlockedBy(l); later != "" {
		return "a later message of its key was delivered: " + later, nil
	}

	return "", nil
}

// ReplayBlocks decides which dead messages of a closed lane must not be replayed. The decision is
// stored with the copy of each message in the next epoch: the copy has a new position, which cannot
// be compared with the old lane's deliveries.
type ReplayBlocks struct {
	store          *Store
	lane           int
	lastDeliveries map[string]LastDelivery // by the hash of the key
}

// ReadReplayBlocks reads the last deliveries of all keys of a closed lane.
func (ds DeliveryState) ReadReplayBlocks(ctx context.Context, lane int) (ReplayBlocks, error) {
	all := map[string]LastDelivery{}
	q := rows.WithPrefix(ds.store.Partition(lane), rows.LastDeliveryPrefix, nil)
	for r, err := range rows.Scan(ctx, ds.store.Table, q) {
		if err != nil {
			return ReplayBlocks{}, err
		}
		all[r.Key[len(rows.LastDeliveryPrefix):]] = lastDeliveryFrom(weir.ID{Epoch: ds.store.Epoch,
			Lane: lane}, r.Values)
	}

	return ReplayBlocks{ds.store, lane, all}, nil
}

// BlockedBy returns the value of the column rows.ReplayBlockedBy for the copy of a dead message.
// The value is the id of a later message of the key that was delivered, or "" if a replay is
// allowed. row is the dead message's row (m_) in the closed lane.
func (b ReplayBlocks) BlockedBy(row storage.Row) (string, error) {
	e, isWhole := b.store.entryFrom(b.lane, row)
	if !isWhole {
		return "", fmt.Errorf("lane: the key of row %q is damaged", row.Key)
	}
	return e.replayBlockedBy(b.lastDeliveries[e.keyHash]), nil
}

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

// A chain of steps can learn the CMS's id of a key's item. Weir remembers the id, so that the next
// message of the key needs no look-up. The holder writes the id into a row, in the commit with the
// outcome of the attempt that learned the id. So an attempt without a recorded outcome leaves no
// remembered id.
//
// There is one row for each key and contract. The holder removes the row if the CMS no longer has
// the item, or on request. No other process removes the row, because the holder also has the ids in
// memory.

// RequestForgetID asks the holder to forget the remembered id of a key and contract.
const RequestForgetID RequestKind = "forgetid"

func forgetIDKey(rememberedKey string) string {
	return rows.RequestPrefix + string(RequestForgetID) + "_" + rememberedKey
}

// RememberedKey returns the hash of the key and contract whose id the holder must forget. The
// request must be of the kind RequestForgetID.
func (w Request) RememberedKey() string { return strings.TrimPrefix(w.key, forgetIDKey("")) }

// RememberedKey returns the hash of the message's key and contract. Messages with the same hash
// share a remembered id.
func (e *Entry) RememberedKey() string {
	return rememberedKeyOf(e.Message.Key, e.Message.Contract)
}

func rememberedKeyOf(key, contract string) string { return rows.Hash("remembered", key, contract) }

// ReadRemembered reads a remembered id; "" = no id is remembered. key is a result of
// Entry.RememberedKey.
func (ds DeliveryState) ReadRemembered(ctx context.Context, lane int, key string) (string, error) {
	r, err := ds.store.Table.Get(ctx, ds.store.Partition(lane), rows.RememberedPrefix+key)
	if storage.Is(err, storage.NotFound) {
		return "", nil
	}
	return rows.RememberedID.Of(r.Values), err
}

// Remembered is a remembered id, and the row that has it. The zero value means that no id is
// remembered.
type Remembered struct {
	ID string // the CMS's id of the item
	// as Entry.RememberedKey returns it, for the name of the contract under which the id is stored
	key string
}

// ReadRememberedFor reads the remembered id of a message's key and contract, under the present and
// the former names of the contract.
func (ds DeliveryState) ReadRememberedFor(ctx context.Context, lane int,
	e *Entry) (Remembered, error) {
	return ds.findRemembered(ctx, lane, e.Message.Key, e.Message.Contract)
}

func (ds DeliveryState) findRemembered(ctx context.Context, lane int, key,
	contract string) (Remembered, error) {
	for _, name := range ds.store.Contracts.listNames(contract) {
		row := rememberedKeyOf(key, name)
		if id, err := ds.ReadRemembered(ctx, lane, row); id != "" || err != nil {
			return Remembered{id, row}, err
		}
	}
	return Remembered{}, nil
}

// SaveRemembered records id as the remembered id of the message's key and contract, and returns it.
// It removes the former id if that is stored under a former name of the contract.
func (c *Change) SaveRemembered(e *Entry, id string, former Remembered) Remembered {
	if former.ID != "" && former.key != e.RememberedKey() {
		c.RemoveRemembered(former.key)
	}

	c.ops = append(c.ops, storage.Op{Kind: storage.Upsert,
		Key: rows.RememberedPrefix + e.RememberedKey(),
		Values: rows.Values(rows.RememberedID.Is(id), rows.Key.Is(e.Message.Key),
			rows.Contract.Is(e.Message.Contract))})

	return Remembered{id, e.RememberedKey()}
}

// ForgetRemembered removes the row of a remembered id. The row must exist in storage.
func (c *Change) ForgetRemembered(r Remembered) { c.RemoveRemembered(r.key) }

// RemoveRemembered removes the row of a remembered id. The row must exist in storage. key is a
// result of Entry.RememberedKey.
func (c *Change) RemoveRemembered(key string) {
	c.ops = append(c.ops, storage.Op{Kind: storage.Delete, Key: rows.RememberedPrefix + key})
}

// FindRemembered reads the remembered id of a key and contract; "" = no id is remembered. It
// returns errors for callers of the API (see APIError).
func (ms Messages) FindRemembered(ctx context.Context, key, contract string) (string, error) {
	found, err := ms.store.DeliveryState().findRemembered(ctx, ms.store.LaneOf(key), key, contract)
	if err != nil {
		return "", APIError("remembered", err)
	}
	return found.ID, nil
}

// ForgetRemembered asks the holder to forget the remembered id of a key and contract, and returns
// that id. After the holder has forgotten the id, the next message of the key and contract looks
// for its item in the CMS. Errors:
//   - NotFound: no id is remembered.
//   - Unavailable: the number of lanes is being changed, or it is not known whether the request was
//     stored.
func (rs Requests) ForgetRemembered(ctx context.Context, key, contract string) (id string,
	err error) {
	var rowKeys []string
	for _, name := range rs.store.Contracts.listNames(contract) {
		rowKeys = append(rowKeys, forgetIDKey(rememberedKeyOf(key, name)))
	}

	err = rs.requestForgetting(ctx, key, rowKeys, "id", func() (bool, error) {
		found, err := rs.store.Messages().FindRemembered(ctx, key, contract)
		if found != "" {
			id = found
		}
		return found != "", err
	})

	return id, err
}
