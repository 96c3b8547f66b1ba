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

// busySet has room for ten bytes, which are taken.
func busySet(t *testing.T) *Set {
	t.Helper()
	s, err := New([]Definition{{Name: "a", Root: "a"}}, Limits{MaxBody: 100, Memory: 10})
	if err != nil {
		t.Fatal(err)
	}
	if !s.memory.TryAcquire(10) || s.memory.TryAcquire(1) {
		t.Fatal("there is not room for 10 bytes")
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
			t.Errorf("%#v", err)
		}
	})
}

func TestSet_Accept_TakesItsTurnAndGivesItBack(t *testing.T) {
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
			t.Fatal("it did not wait")
		}
		s.memory.Release(10)
		kinds := map[weir.Kind]int{}
		for range bodies {
			if err := <-answers; err != nil {
				kinds[weir.KindOf(err)]++
			}
		}
		if kinds[weir.Malformed] != 2 || kinds[weir.Invalid] != 1 || len(kinds) != 2 {
			t.Errorf("%v", kinds)
		}
		if !s.memory.TryAcquire(10) {
			t.Error("not all was given back")
		}
	})
}

// A value that the rule cannot check breaks the rule.
func TestRule_Problems_WhatCannotBeCheckedIsRefused(t *testing.T) {
	t.Parallel()
	p, err := compilePath("./a")
	if err != nil {
		t.Fatal(err)
	}
	r := rule{path: p, tag: "len=abc"}
	if found := r.checkValues([]string{"x"}); len(found) != 1 || found[0].Rule != "len=abc" {
		t.Errorf("%+v", found)
	}
}
