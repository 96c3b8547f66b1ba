package lane

import (
	"context"
	"strings"

	"weir/internal/lane/rows"
	"weir/internal/storage"
)

// A chain of steps may remember the CMS's id of a key's item, so that the next message of the key needs no look-up.
// The holder writes the id (c_ rows) in the commit of the outcome of the attempt that learned the id. So the next
// attempt of the key has the id, whichever process makes that attempt. An attempt whose outcome was not recorded
// leaves no remembered id. There is one row for each key and contract. The row is removed if the CMS no longer has
// the item, or on request. Only the holder removes the row, because it has the ids in memory, too.

// RequestForgetID asks the holder to forget the remembered id of a key and contract.
const RequestForgetID RequestKind = "forgetid"

// forgetIDKey returns the row key of a request to forget the id of a RememberedKey.
func forgetIDKey(rememberedKey string) string {
	return rows.RequestPrefix + string(RequestForgetID) + "_" + rememberedKey
}

// RememberedKey returns the hash of the key and contract that a RequestForgetID is about.
func (w Request) RememberedKey() string { return strings.TrimPrefix(w.key, forgetIDKey("")) }

// RememberedKey returns the hash of the key and the contract whose messages share a remembered id.
func (e *Entry) RememberedKey() string {
	return rememberedKeyOf(e.Message.Key, e.Message.Contract)
}

func rememberedKeyOf(key, contract string) string { return rows.Hash("remembered", key, contract) }

// ReadRemembered reads the remembered id of a RememberedKey; "" = there is none.
func (ds DeliveryState) ReadRemembered(ctx context.Context, lane int, key string) (string, error) {
	r, err := ds.store.Table.Get(ctx, ds.store.Partition(lane), rows.RememberedPrefix+key)
	if storage.Is(err, storage.NotFound) {
		return "", nil
	}
	return rows.RememberedID.Of(r.Values), err
}

// SaveRemembered records the CMS's id of the item of a message's key.
func (c *Change) SaveRemembered(e *Entry, id string) {
	c.ops = append(c.ops, storage.Op{Kind: storage.Upsert, Key: rows.RememberedPrefix + e.RememberedKey(),
		Values: rows.Values(rows.RememberedID.Is(id), rows.Key.Is(e.Message.Key),
			rows.Contract.Is(e.Message.Contract))})
}

// RemoveRemembered removes the remembered id of a RememberedKey, which must exist in storage.
func (c *Change) RemoveRemembered(key string) {
	c.ops = append(c.ops, storage.Op{Kind: storage.Delete, Key: rows.RememberedPrefix + key})
}

// FindRemembered reads the remembered id of a key and contract; "" = there is none. Its errors are for callers of the
// API.
func (ms Messages) FindRemembered(ctx context.Context, key, contract string) (string, error) {
	id, err := ms.store.DeliveryState().ReadRemembered(ctx, Of(key, ms.store.Lanes), rememberedKeyOf(key, contract))
	if err != nil {
		return "", APIError("remembered", err)
	}
	return id, nil
}

// ForgetRemembered asks the holder to forget the remembered id of a key and contract, and returns that id. The next
// message of the key and contract looks its item up in the CMS. NotFound: no id is remembered. Conflict: the number
// of lanes is being changed. Unavailable: the request may or may not be stored.
func (rs Requests) ForgetRemembered(ctx context.Context, key, contract string) (id string, err error) {
	row := forgetIDKey(rememberedKeyOf(key, contract))
	err = rs.requestForgetting(ctx, key, row, "id", func() (bool, error) {
		found, err := rs.store.Messages().FindRemembered(ctx, key, contract)
		if found != "" {
			id = found
		}
		return found != "", err
	})
	return id, err
}
