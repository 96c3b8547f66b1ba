package lane_test

import (
	"bytes"
	"crypto/rand"
	"testing"

	"weir/internal/lane"
	"weir/internal/weir"
)

func TestStore_LoadMessage(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		noise := make([]byte, 100<<10)
		_, _ = rand.Read(noise)
		a := lane.NewAppender(b.store, quiet)
		for _, body := range []string{"<a/>", string(noise)} {
			filed, err := a.Append(t.Context(), newMessage("/a", body), "")
			if err != nil {
				t.Fatal(err)
			}
			got, err := b.store.Messages().LoadMessage(t.Context(), filed.Message.ID)
			if err != nil || !bytes.Equal(got.Body,
				[]byte(body)) || got.Key != "/a" || got.ContentType != "application/xml" {
				t.Errorf("got %d bytes, want the %d that were posted, with key and type: %v",
					len(got.Body), len(body), err)
			}
			other := filed.Message.ID
			other.Nonce = "00000000000000000000"
			if _, err := b.store.Messages().LoadMessage(t.Context(), other); weir.KindOf(err) != weir.NotFound {
				t.Errorf("another nonce: %v, want an error of kind NotFound", err)
			}
		}
	})
}
