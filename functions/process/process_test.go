package process_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"weir/functions/process"
	"weir/internal/drain"
	"weir/internal/invoke"
	"weir/internal/residence/stay"
	"weir/internal/ticket"
)

// idleLanes records the lanes that are looked at. All lanes are idle.
type idleLanes struct {
	stay.Drainer
	looked []int
}

func (d *idleLanes) Look(_ context.Context, lane int) drain.Report {
	d.looked = append(d.looked, lane)
	return drain.Report{State: drain.Idle}
}

func (d *idleLanes) Held() []int { return nil }

// A text that is not a ticket for a lane of this program is dropped: after an error the host would
// send the same text again.
func TestFunction_Process(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ticket string
		looked []int
	}{
		"OfALane":      {"weir lane 1.1", []int{1}},
		"Garbage":      {"{}", nil},
		"NoSuchLane":   {"weir lane 1.7", nil},
		"NegativeLane": {"weir lane 1.-1", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lanes := &idleLanes{}
			f := &process.Function{Logger: slog.New(slog.DiscardHandler),
				Answerer: &stay.Answerer{Drainer: lanes,
					Tickets: ticket.New(ticket.Config{}), Lanes: 2, Now: time.Now,
					Logger: slog.New(slog.DiscardHandler)}}

			call := fmt.Sprintf(`{"Data":{"ticket":%q},"Metadata":{}}`, fmt.Sprintf("%q", c.ticket))
			in, err := invoke.Decode(strings.NewReader(call))
			if err != nil {
				t.Fatal(err)
			}

			if err := f.Process(t.Context(), in); err != nil {
				t.Errorf("got %v, want no error", err)
			}

			if got, want := fmt.Sprint(lanes.looked), fmt.Sprint(c.looked); got != want {
				t.Errorf("got looks at the lanes %s, want %s", got, want)
			}
		})
	}
}
