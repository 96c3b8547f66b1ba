package notify_test

import (
	"errors"
	"net/url"
	"testing"

	"weir/internal/notify"
)

// The reason of a failure is logged. The address of a receiver can have a key, and that of a proxy
// a password.
func TestWithoutAddress_HidesSecrets(t *testing.T) {
	t.Parallel()
	err := &url.Error{Op: "Post", URL: "https://hooks.example/?code=key-of-hook",
		Err: errors.New(`invalid proxy address "ht!tp://weir:word-of-proxy@proxy"`)}
	if got, want := notify.WithoutAddress(err), `invalid proxy address "ht!tp://…@proxy"`; got !=
		want {
		t.Errorf("got %s, want %s", got, want)
	}
}
