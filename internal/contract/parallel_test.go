package contract

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"weir/internal/weir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// busySet returns a set with ten bytes of memory, all in use.
func busySet(t *testing.T) *Set {
	t.Helper()
	s, err := New([]Definition{{Name: "a", Root: "a"}}, Limits{MaxBody: 100, Memory: 10})
	if err != nil {
		t.Fatal(err)
	}

	if !s.memory.TryAcquire(10) || s.memory.TryAcquire(1) {
		t.Fatal("the set's memory is not 10 bytes, want exactly 10")
	}

	return s
}

func TestSet_Accept_UnavailableWhileTooMuchIsRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := busySet(t)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := s.Accept(ctx, "", []byte("<a/>"))
		var e *weir.Error
		if !errors.As(err, &e) || e.Kind != weir.Unavailable || e.RetryAfter <= 0 ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %#v, want an error of kind Unavailable with RetryAfter and the context's cause", err)
		}
	})
}

func TestSet_Accept_WaitsForMemoryAndReleasesIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := busySet(t)
		bodies := []string{"<a/>", "<b/>", "<a", "\xff"}
		answers := make(chan error, len(bodies))
		for _, body := range bodies {
			go func() {
				_, err := s.Accept(t.Context(), "", []byte(body))
				answers <- err
			}()
		}

		synctest.Wait()

		if len(answers) != 0 {
			t.Fatalf("%d of %d calls of Accept returned while no memory was free, want none",
				len(answers), len(bodies))
		}

		s.memory.Release(10)
		kinds := map[weir.Kind]int{}
		for range bodies {
			if err := <-answers; err != nil {
				kinds[weir.KindOf(err)]++
			}
		}

		if kinds[weir.Malformed] != 2 || kinds[weir.Invalid] != 1 || len(kinds) != 2 {
			t.Errorf("got %v, want Malformed 2, Invalid 1 and no other", kinds)
		}

		if !s.memory.TryAcquire(10) {
			t.Error("TryAcquire(10) failed after all calls of Accept returned, want all 10 bytes free again")
		}
	})
}

// If the validator cannot check a value by a rule, the value breaks the rule.
func TestRule_CheckValue_RefusesUncheckableValues(t *testing.T) {
	t.Parallel()
	p, err := compilePath("./a")
	if err != nil {
		t.Fatal(err)
	}

	r := rule{path: p, tag: "len=abc"}
	if found, isBroken := r.checkValue(placedValue{text: "x"}, redactedPlaces{}); !isBroken || found.Rule != "len=abc" {
		t.Errorf("got %+v, want a problem of Rule len=abc", found)
	}
}
