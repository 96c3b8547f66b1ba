package lane_test

import (
	"bytes"
	"crypto/rand"
	"strings"
	"testing"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
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
			if _, err := b.store.Messages().LoadMessage(t.Context(), other); weir.KindOf(err) !=
				weir.NotFound {
				t.Errorf("another nonce: %v, want an error of kind NotFound", err)
			}
		}
	})
}

// If storage refuses one body, the reader learns storage's answer. An error without a reason would
// look like a defect of Weir.
func TestStore_LoadMessage_NamesWhyABodyIsRefused(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		noise := make([]byte, 100<<10)
		_, _ = rand.Read(noise)
		filed, err := lane.NewAppender(b.store, quiet).Append(t.Context(),
			newMessage("/a", string(noise)), "")
		if err != nil {
			t.Fatal(err)
		}

		store, faults := *b.store, storagetest.NewFaults()
		store.Bodies = faults.Blobs(b.store.Bodies.(storagetest.BlobPort))
		for kind, want := range map[storage.Kind]weir.Kind{
			storage.Unreadable: weir.Conflict, storage.NotFound: weir.NotFound,
			storage.Denied:    weir.Internal,
			storage.Throttled: weir.Unavailable, storage.Unavailable: weir.Unavailable,
		} {
			faults.Set(func(storagetest.Call) storagetest.Fault {
				return storagetest.Fault{Kind: storagetest.FailBefore,
					Err: &storage.Error{Op: "blob get", Kind: kind, Code: "409 BlobArchived",
						Index: -1}}
			})

			_, err := store.Messages().LoadMessage(t.Context(), filed.Message.ID)
			if weir.KindOf(err) != want ||
				want == weir.Conflict && !strings.Contains(err.Error(), "409 BlobArchived") {
				t.Errorf("%s: got %v, want the kind %d", kind, err, want)
			}
		}
	})
}
