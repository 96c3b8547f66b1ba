package lane

import (
	"context"
	"time"

	"weir/internal/storage"
	"weir/internal/weir"
)

// LatestVersion is the delivery that counts for superseding: the newest version of a key and
// contract that was delivered. Its row is never removed, so that what is older stays out
// for good; the zero Latest stands for none.
type LatestVersion struct {
	Version string
	ID      weir.ID
}

// SupersedeKey names the messages that supersede each other: of one key and one contract.
func (e *Entry) SupersedeKey() string { return latestHash(&e.Message) }

// ReadLatestVersion reads what was last delivered under a LatestKey.
func (s *Store) ReadLatestVersion(ctx context.Context, lane int, latestKey string) (LatestVersion, error) {
	r, err := s.Table.Get(ctx, s.partition(lane), prefixLatest+latestKey)
	if storage.Is(err, storage.NotFound) {
		return LatestVersion{}, nil
	}
	v := values{r.Values}
	l := LatestVersion{Version: v.string("Version"), ID: weir.ID{Epoch: s.Epoch, Lane: lane, Seq: v.int("Seq"), Nonce: v.string("Nonce")}}
	if id := originFrom(v.string("Origin")); !id.IsZero() {
		l.ID = id
	}
	return l, err
}

// originFrom reads a column that names a message of another epoch.
func originFrom(text string) weir.ID {
	id, err := weir.ParseID(text)
	if err != nil {
		return weir.ID{}
	}
	return id
}

// origin is what the column holds; nil where it is not needed.
func origin(m *weir.Message) any {
	if m.Origin.IsZero() {
		return nil
	}
	return m.Origin.String()
}

// SaveLatestVersion writes that a message is the latest of its LatestKey.
func (c *Change) SaveLatestVersion(e *Entry) LatestVersion {
	id := e.Message.ID
	v := sparse(map[string]any{"Version": e.Message.Version, "Seq": id.Seq, "Nonce": id.Nonce, "Key": e.Message.Key, "Contract": e.Message.Contract,
		"Origin": origin(&e.Message)})
	c.ops = append(c.ops, storage.Op{Kind: storage.Upsert, Key: prefixLatest + e.SupersedeKey(), Values: v})
	return LatestVersion{Version: e.Message.Version, ID: e.Message.Public()}
}

// Supersede makes a message final that need not be delivered any more.
func (c *Change) Supersede(seq int64, callback string, by LatestVersion, at time.Time) {
	c.UpdateTail(func(t *Tail) { t.Counts.add(weir.Superseded) })
	c.final = append(c.final, seq)
	c.callBack(seq, callback, weir.Superseded, at)
	c.ops = append(c.ops, storage.Op{Kind: storage.Merge, Key: messageKey(seq), Values: map[string]any{
		"Stage": string(weir.Superseded), "SupersededBy": by.ID.String(), "FinishedAt": at, "Held": false, "NextAttemptAt": never}})
}
