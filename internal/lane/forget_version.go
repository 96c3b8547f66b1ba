package lane

import (
	"context"
	"strings"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// A wrong version (in milliseconds, say, if all others are in seconds) supersedes all later messages of its key and
// contract. A request to forget the version is about that key and contract, and not about a message. Only the holder
// removes the row of the version, because it decides by what it remembers of these rows.

// RequestForget asks the holder to forget the newest delivered version of a key and contract.
const RequestForget RequestKind = "forget"

// forgetKey returns the row key of a request to forget the version of a SupersedeKey.
func forgetKey(supersedeKey string) string {
	return rows.RequestPrefix + string(RequestForget) + "_" + supersedeKey
}

// SupersedeKey returns the hash of the key and contract that a RequestForget is about.
func (w Request) SupersedeKey() string { return strings.TrimPrefix(w.key, forgetKey("")) }

// FindLatestVersion reads the newest delivered version of a key and contract. Its errors are for callers of the API.
func (ms Messages) FindLatestVersion(ctx context.Context, key, contract string) (LatestVersion, error) {
	l, err := ms.store.DeliveryState().ReadLatestVersion(ctx, Of(key, ms.store.Lanes),
		supersedeKeyOf(&weir.Message{Key: key, Contract: contract}))
	if err != nil {
		return LatestVersion{}, APIError("version", err)
	}
	return l, nil
}

// ForgetVersion asks the holder to forget the newest delivered version of a key and contract, and returns that
// version. Then the next version of the key is delivered, whatever its number. Messages that were superseded stay
// superseded. NotFound: no version is remembered. Conflict: the number of lanes is being changed. Unavailable: the
// request may or may not be stored.
func (rs Requests) ForgetVersion(ctx context.Context, key, contract string) (LatestVersion, error) {
	row := forgetKey(supersedeKeyOf(&weir.Message{Key: key, Contract: contract}))
	var latest LatestVersion
	err := rs.requestForgetting(ctx, key, row, "version", func() (bool, error) {
		found, err := rs.store.Messages().FindLatestVersion(ctx, key, contract)
		if !found.IsZero() {
			latest = found
		}
		return !found.IsZero(), err
	})
	return latest, err
}

// requestForgetting stores a request to forget a thing that the lane remembers of a key, in a row of its own. isKnown
// reports whether the lane remembers it.
func (rs Requests) requestForgetting(
	ctx context.Context, key, row, thing string, isKnown func() (bool, error),
) error {
	isAsked := false
	return rs.store.changeLane(ctx, Of(key, rs.store.Lanes), func(c Control) ([]storage.Op, error) {
		known, err := isKnown()
		switch {
		case err != nil:
			return nil, err
		case !known && isAsked:
			return nil, nil // an earlier try has stored the request, and the holder has granted the request
		case !known:
			return nil, &weir.Error{Kind: weir.NotFound, Op: "forget",
				Message: "no " + thing + " of this key and contract is remembered"}
		case c.Head.IsSealed:
			return nil, SealedError("forget")
		}
		isAsked = true
		return []storage.Op{{Kind: storage.Upsert, Key: row, Values: map[string]any{}}}, nil
	})
}

// ForgetVersion removes the row of a version, which must exist in storage.
func (c *Change) ForgetVersion(supersedeKey string) {
	c.ops = append(c.ops, storage.Op{Kind: storage.Delete, Key: rows.VersionPrefix + supersedeKey})
}
