package lane

import (
	"context"
	"strings"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// A version that is far too high, for example a time in milliseconds among times in seconds,
// supersedes all later messages of its key and contract. So an operator can ask the holder to
// forget the version. Only the holder removes the version's row (k_), because the holder has a copy
// of the row in memory.

// RequestForget asks the holder to forget the newest delivered version of a key and contract.
const RequestForget RequestKind = "forget"

func forgetKey(supersedeKey string) string {
	return rows.RequestPrefix + string(RequestForget) + "_" + supersedeKey
}

// SupersedeKey returns the hash of the key and contract whose version a RequestForget is about.
func (w Request) SupersedeKey() string { return strings.TrimPrefix(w.key, forgetKey("")) }

// FindLatestVersion reads the newest delivered version of a key and contract. It returns errors for
// callers of the API (see APIError).
func (ms Messages) FindLatestVersion(ctx context.Context, key,
	contract string) (LatestVersion, error) {
	l, err := ms.store.DeliveryState().readNewestVersion(ctx, ms.store.LaneOf(key), key, contract)
	if err != nil {
		return LatestVersion{}, APIError("version", err)
	}
	return l, nil
}

// ForgetVersion asks the holder to forget the newest delivered version of a key and contract, and
// returns that version. After that, the next message of the key and contract is delivered, whatever
// its version. Messages that are already superseded stay superseded. Errors:
//   - NotFound: no version is remembered.
//   - Unavailable: the number of lanes is being changed, or it is not known whether the request was
//     stored.
func (rs Requests) ForgetVersion(ctx context.Context, key, contract string) (LatestVersion, error) {
	var rowKeys []string
	for _, name := range rs.store.Contracts.listNames(contract) {
		rowKeys = append(rowKeys,
			forgetKey(supersedeKeyOf(&weir.Message{Key: key, Contract: name})))
	}

	var latest LatestVersion
	err := rs.requestForgetting(ctx, key, rowKeys, "version", func() (bool, error) {
		found, err := rs.store.Messages().FindLatestVersion(ctx, key, contract)
		if !found.IsZero() {
			latest = found
		}
		return !found.IsZero(), err
	})

	return latest, err
}

// requestForgetting stores requests to forget a version or an id that the lane remembers of a key.
// rowKeys has the row keys of the requests: one for the contract's present name, and one for each
// former name, under which the version or id can be stored. thing is the word for the error
// message. isKnown reports whether the version or id is still remembered.
func (rs Requests) requestForgetting(
	ctx context.Context, key string, rowKeys []string, thing string, isKnown func() (bool, error),
) error {
	isAsked := false
	return rs.store.changeLane(ctx, rs.store.LaneOf(key), func(c Control) ([]storage.Op, error) {
		known, err := isKnown()
		switch {
		case err != nil:
			return nil, err
		case !known && isAsked:
			// an earlier try has stored the request, and the holder has already granted it
			return nil, nil
		case !known:
			return nil, &weir.Error{Kind: weir.NotFound, Op: "forget",
				Message: "no " + thing + " of this key and contract is remembered"}
		case c.Head.IsSealed:
			return nil, SealedError("forget")
		}

		isAsked = true
		var ops []storage.Op
		for _, row := range rowKeys {
			ops = append(ops, storage.Op{Kind: storage.Upsert, Key: row, Values: map[string]any{}})
		}

		return ops, nil
	})
}

// ForgetVersion removes the row of a version, which must exist in storage.
func (c *Change) ForgetVersion(supersedeKey string) {
	c.ops = append(c.ops, storage.Op{Kind: storage.Delete, Key: rows.VersionPrefix + supersedeKey})
}
