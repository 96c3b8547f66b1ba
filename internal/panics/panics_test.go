package panics_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/panics"
)

var errCause = errors.New("cause")

func TestCatch(t *testing.T) {
	t.Parallel()
	if err := panics.Catch(func() error { return errCause }); !errors.Is(err, errCause) {
		t.Errorf("got %v, want the error of the function", err)
	}

	var caught *panics.Error
	err := panics.Catch(func() error { panic(errCause) })
	if !errors.As(err, &caught) || !errors.Is(err, errCause) {
		t.Fatalf("got %v, want an Error with the cause", err)
	}

	if !strings.Contains(err.Error(), "panics_test.go") {
		t.Errorf("got %q, want a text with the stack", err)
	}

	if err := panics.Guard(func() error { panic("text") })(); err == nil {
		t.Error("got no error of a guarded panic, want one")
	}
}

func TestLog(t *testing.T) {
	t.Parallel()
	var lines bytes.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer panics.Log(slog.New(slog.NewTextHandler(&lines, nil)), "test: worker")
		panic("oops")
	}()

	<-done

	for _, want := range []string{"level=ERROR", "test: worker", "oops", "panics_test.go"} {
		if !strings.Contains(lines.String(), want) {
			t.Errorf("got the log %q, want it to contain %q", lines.String(), want)
		}
	}
}

// The pauses double, and begin anew after work that has run for a while.
func TestRepeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var pauses []time.Duration
		last, calls := time.Now(), 0
		panics.Repeat(t.Context(), slog.New(slog.DiscardHandler), "test", func() {
			pauses = append(pauses, time.Since(last))
			switch calls++; calls {
			case 9:
				time.Sleep(time.Hour)
			case 11:
				return
			}

			last = time.Now()
			panic("oops")
		})

		want := []time.Duration{0, 1, 2, 4, 8, 16, 32, 60, 60, 1, 2}
		for i := range want {
			want[i] *= time.Second
		}

		if !slices.Equal(pauses, want) {
			t.Errorf("got the pauses %v, want %v", pauses, want)
		}
	})
}

func TestRepeat_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		panics.Repeat(ctx, slog.New(slog.DiscardHandler), "test", func() { panic("oops") })
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("got an end after %s, want 10s", took)
		}
	})
}
