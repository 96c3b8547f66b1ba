package lane

import (
	"context"
	"strings"

	"weir/internal/lane/rows"
	"weir/internal/storage"
)

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
