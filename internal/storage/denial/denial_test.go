package denial_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/denial"
	"weir/internal/storage/memory"
	"weir/internal/storage/storagetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	storagetest.Blobs(t, func(*testing.T) storagetest.BlobPort {
		return denial.Blobs(memory.New(time.Now).Blobs())
	})
	storagetest.Files(t, func(*testing.T) storage.Files {
		return denial.Files(memory.New(time.Now).Files("inbox"))
	})
}

// refuse returns faults that deny the reads of the objects with these names.
func refuse(denied map[string]bool) *storagetest.Faults {
	f := storagetest.NewFaults()
	f.Set(func(c storagetest.Call) storagetest.Fault {
		if (c.Op != "Get" && c.Op != "Read") || !denied[c.Key] {
			return storagetest.Fault{}
		}
		return storagetest.Fault{Kind: storagetest.FailBefore,
			Err: &storage.Error{Op: c.Op, Kind: storage.Denied, Index: -1,
				Code: "403 AuthorizationPermissionMismatch"}}
	})

	return f
}

// reader reads an object of either port.
type reader func(name string) error

func newReaders(t *testing.T, denied map[string]bool) map[string]reader {
	account := memory.New(time.Now)
	blobs := denial.Blobs(refuse(denied).Blobs(account.Blobs()))
	files := denial.Files(refuse(denied).Files(account.Files("inbox")))

	for _, name := range []string{"a", "b", "c"} {
		if err := account.Blobs().Put(context.Background(), name, []byte("1")); err != nil {
			t.Fatal(err)
		}

		body := strings.NewReader("1")
		if err := account.Files("inbox").Write(context.Background(), name, "text/xml", nil, body); err != nil {
			t.Fatal(err)
		}
	}

	return map[string]reader{
		"blobs": func(name string) error { _, err := blobs.Get(t.Context(), name); return err },
		"files": func(name string) error {
			_,
				err := files.Read(t.Context(), name, "", 0, 1)
			return err
		},
	}
}

func TestDenied_ConcernsTheContainerUntilAnotherObjectIsRead(t *testing.T) {
	t.Parallel()
	denied := map[string]bool{"a": true, "b": true}
	for port, read := range newReaders(t, denied) {
		steps := []struct {
			name string
			want storage.Kind
		}{
			{"a", storage.Denied},
			{"a", storage.Denied},
			{"b", storage.Denied}, // another object is denied, too
			{"c", -1},
			{"a", storage.Unreadable}, // c was read in between
			{"a", storage.Unreadable},
			{"b", storage.Unreadable},
		}
		for i, s := range steps {
			err := read(s.name)
			if s.want == -1 {
				if err != nil {
					t.Fatalf("%s, step %d: got %v, want no error", port, i, err)
				}
				continue
			}

			if got := storage.KindOf(err); err == nil || got != s.want {
				t.Errorf("%s, step %d: reading %s: got %v (%s), want %s", port, i, s.name, err,
					got, s.want)
			}

			if got := storage.Describe(err); got != "403 AuthorizationPermissionMismatch" {
				t.Errorf("%s, step %d: got the description %q, want storage's answer", port, i, got)
			}
		}
	}
}

func TestDenied_IsForgottenWithASuccess(t *testing.T) {
	t.Parallel()
	denied := map[string]bool{"a": true}
	for port, read := range newReaders(t, denied) {
		denied["a"] = true
		_ = read("a")
		denied["a"] = false // for example, the caller got its role

		for _, name := range []string{"a", "b"} {
			if err := read(name); err != nil {
				t.Fatalf("%s: %v", port, err)
			}
		}

		denied["a"] = true

		if err := read("a"); !storage.Is(err, storage.Denied) {
			t.Errorf("%s: got %v after a success, want denied: the caller may have lost its role",
				port, err)
		}
	}
}
