package drain_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

const hugeVersion = "99999999999999999999"

// forgetVersion requests that the holder forgets the last delivered version of a key, and returns
// that version.
func (w *world) forgetVersion(p *process, key string) string {
	w.t.Helper()
	latest, err := w.store.Requests().ForgetVersion(w.t.Context(), key, "article")
	if err != nil {
		w.t.Fatal(err)
	}

	p.Wake(0)
	return latest.Version
}

func TestForgetVersion_EndsTheSilenceOfAKey(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start()
		w.postVersion("a", "1")
		p.Wake(0)
		w.waitUntilEmpty(time.Minute)
		huge := w.postVersion("a", hugeVersion)
		p.Wake(0)
		w.waitUntilEmpty(time.Minute)
		silenced, other := w.postVersion("a", "2"), w.postVersion("b", "2")
		p.Wake(0)
		w.waitUntilEmpty(time.Minute)
		if got := w.forgetVersion(p, "a"); got != hugeVersion {
			t.Errorf("got %q, want the version that was delivered last", got)
		}

		// the process still holds the lane, and reads requests once a second
		time.Sleep(2 * time.Second)
		w.postVersion("a", "3")
		w.postVersion("b", "1")
		p.Wake(0)
		w.waitUntilEmpty(time.Minute)
		if got := w.listDelivered("a"); !slices.Equal(got, []string{"1", hugeVersion, "3"}) {
			t.Errorf("key a: got %v, want 3 after the version was forgotten", got)
		}

		if got := w.listDelivered("b"); !slices.Equal(got, []string{"2"}) {
			t.Errorf("key b: got %v, want 2 alone", got)
		}

		for id, want := range map[weir.ID]string{huge: "more than 18 digits",
			silenced: "more than 18 digits", other: ""} {
			if got := w.status(id).VersionWarning; (got == "") != (want == "") ||
				!strings.Contains(got, want) {
				t.Errorf("seq %d: got warning %q, want %q in it", id.Seq, got, want)
			}
		}
	})
}

func TestForgetVersion_WithoutAHolder(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.postVersion("a", "7")
		first := w.start()
		first.Wake(0)
		w.waitUntilEmpty(time.Minute)
		first.close(t)
		if _, err := w.store.Requests().ForgetVersion(t.Context(), "a", "article"); err != nil {
			t.Fatal(err)
		}

		w.postVersion("a", "5") // older than 7, but delivered, because 7 is forgotten before
		w.start().Wake(0)
		w.waitUntilEmpty(time.Minute)
		if got := w.listDelivered("a"); !slices.Equal(got, []string{"7", "5"}) {
			t.Errorf("got %v, want 7 and 5", got)
		}

		if got := w.rowKeys("w_"); len(got) != 0 {
			t.Errorf("got requests %v, want none left", got)
		}
	})
}

func TestForgetVersion_NothingRemembered(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start()
		w.postVersion("a", "1")
		p.Wake(0)
		w.waitUntilEmpty(time.Minute)
		w.forgetVersion(p, "a")

		// the holder has not read the first request yet; the second request writes the same row
		w.forgetVersion(p, "a")
		time.Sleep(2 * time.Second)

		for _, c := range [][2]string{{"a", "article"}, {"b", "article"}, {"a", "other"}} {
			if _, err := w.store.Requests().ForgetVersion(t.Context(), c[0], c[1]); weir.KindOf(err) != weir.NotFound {
				t.Errorf("%v: got %v, want NotFound", c, err)
			}
		}

		if got := w.rowKeys("k_"); len(got) != 0 {
			t.Errorf("got %v, want no version left", got)
		}
	})
}

func TestForgetVersion_ALostAnswerIsNoFailure(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start()
		w.postVersion("a", "1")
		p.Wake(0)
		w.waitUntilEmpty(time.Minute)
		store, faults := *w.store, storagetest.NewFaults()
		store.Table = faults.Table(w.account.Table())
		lost := false
		faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Op != "Transact" || lost {
				return storagetest.Fault{}
			}
			lost = true
			return storagetest.Fault{Kind: storagetest.FailAfter}
		})

		if got, err := store.Requests().ForgetVersion(t.Context(), "a", "article"); err != nil ||
			got.Version != "1" ||
			!lost {
			t.Errorf("got %+v, %v, want version 1", got, err)
		}
	})
}
