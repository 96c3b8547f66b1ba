package process_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"weir/functions/process"
	"weir/internal/drain"
	"weir/internal/invoke"
)

var noon = time.Date(2026, 1, 8, 12, 0, 0, 0, time.UTC)

// fakes note what was asked of them.
type fakes struct {
	report drain.Report
	calls  []string
}

func (f *fakes) Join(ctx context.Context, lane int) drain.Report {
	if _, limited := ctx.Deadline(); !limited {
		f.calls = append(f.calls, "join without limit")
	}
	return f.report
}
func (f *fakes) Seen(lane int) { f.calls = append(f.calls, fmt.Sprint("seen ", lane)) }
func (f *fakes) Ring(_ context.Context, lane int) error {
	f.calls = append(f.calls, "ring")
	return nil
}
func (f *fakes) RingAt(_ context.Context, lane int, at time.Time) error {
	f.calls = append(f.calls, "ring at "+at.Sub(noon).String())
	return nil
}
func (f *fakes) PutBack(_ context.Context, lane int, about time.Duration) error {
	f.calls = append(f.calls, "put back "+about.String())
	return nil
}

func TestFunction_Process(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ticket string
		report drain.Report
		want   string
		fails  bool
	}{
		"Idle":         {"weir lane 1.0", drain.Report{State: drain.Idle}, "seen 0", false},
		"StillWorking": {"weir lane 1.0", drain.Report{State: drain.Working}, "seen 0, ring", false},
		"Busy":         {"weir lane 1.0", drain.Report{State: drain.Busy}, "seen 0, put back 30s", false},
		"WaitingSoon":  {"weir lane 1.0", drain.Report{State: drain.Waiting, Until: noon.Add(time.Minute)}, "seen 0, ring at 1m0s", false},
		"WaitingLong":  {"weir lane 1.0", drain.Report{State: drain.Waiting, Until: noon.Add(time.Hour)}, "seen 0", false},
		"StorageAway":  {"weir lane 1.0", drain.Report{State: drain.Waiting, Err: errors.New("away")}, "seen 0", true},
		"Garbage":      {"{}", drain.Report{}, "", false},
		"NoSuchLane":   {"weir lane 1.7", drain.Report{}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fakes{report: c.report}
			fn := &process.Function{Drainer: f, Bell: f, Lanes: 2, Lease: 30 * time.Second, Now: func() time.Time { return noon }, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
			in, err := invoke.Decode(strings.NewReader(fmt.Sprintf(`{"Data":{"ticket":%q},"Metadata":{}}`, fmt.Sprintf("%q", c.ticket))))
			if err != nil {
				t.Fatal(err)
			}
			err = fn.Process(t.Context(), in)
			if got := strings.Join(f.calls, ", "); got != c.want || (err != nil) != c.fails {
				t.Errorf("did %q (%v), want %q", got, err, c.want)
			}
		})
	}
}
