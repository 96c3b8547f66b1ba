package app

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"weir/internal/lane"
	"weir/internal/relane"
	"weir/internal/residence"
)

// logEnd returns a RestartError only for errors after which the process must be started again.
func TestLogEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err       error // error that ended the server
		isRestart bool
	}{
		"LanesWereChanged": {errors.Join(fmt.Errorf("%w from 2 to 5", relane.ErrChanged), nil),
			true},
		"TheTableIsGone":    {fmt.Errorf("%w: gone", lane.ErrReplaced), true},
		"TheHostStays":      {errors.Join(residence.ErrHostStays, nil), true},
		"TheHostIsGone":     {residence.ErrHostGone, false},
		"WrongFromTheStart": {fmt.Errorf("%w: storage has lanes: 2", lane.ErrLaneCount), false},
		"Broken":            {errors.New("use of closed network connection"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			err := logEnd(c.err, slog.New(slog.NewTextHandler(&out, nil)))
			var restart *RestartError
			if got := errors.As(err, &restart); got != c.isRestart ||
				!strings.Contains(out.String(), "handler: stopped") {
				t.Errorf("got a RestartError: %v, and the log %q; want %v, and a log with \"handler: stopped\"", got,
					out.String(), c.isRestart)
			}
		})
	}

	if err := logEnd(nil, slog.New(slog.DiscardHandler)); err != nil {
		t.Errorf("logEnd(nil) = %v, want nil", err)
	}
}
