package weir

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
)

type callKey struct{}

// WithCall returns a context that has the id of the call. If a handler ends before it answers, the
// host sends the same request again, with the same id. So a change can find out that an earlier
// call has made it.
func WithCall(ctx context.Context, id string) context.Context {
	if id == "" {
		return ctx
	}
	sum := sha256.Sum256([]byte(id))
	return context.WithValue(ctx, callKey{}, hex.EncodeToString(sum[:12]))
}

// CallOf returns a text of 24 hexadecimal digits that stands for the call's id, or "" if the call
// has no id.
func CallOf(ctx context.Context) string {
	call, _ := ctx.Value(callKey{}).(string)
	return call
}
