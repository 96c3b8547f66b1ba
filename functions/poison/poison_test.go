package poison_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"weir/functions/poison"
	"weir/internal/invoke"
)

type fakeTickets struct {
	calls    []string
	poisoned int // number of calls of Poisoned
}

func (f *fakeTickets) Poisoned() { f.poisoned++ }

func (f *fakeTickets) Requeue(_ context.Context, lane int, about time.Duration) error {
	f.calls = append(f.calls, fmt.Sprint(lane, " ", about))
	return nil
}

func TestFunction_Take(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"weir lane 1.1": "1 1m0s", "weir lanes 1": "-1 1m0s",
		"weir lane 1.2": "", "garbage": ""} {
		tickets := &fakeTickets{}
		fn := &poison.Function{Tickets: tickets, Lanes: 2, Observer: tickets,
			Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
		in, err := invoke.Decode(
			strings.NewReader(fmt.Sprintf(`{"Data":{"ticket":%q},"Metadata":{}}`,
				fmt.Sprintf("%q", text))))
		if err != nil {
			t.Fatal(err)
		}

		if err := fn.Take(t.Context(), in); err != nil || strings.Join(tickets.calls, ",") != want {
			t.Errorf("ticket %q: got the requeued tickets %q and the error %v; want %q and no error", text,
				tickets.calls, err, want)
		}

		if isCounted := tickets.poisoned == 1; isCounted != (want != "") {
			t.Errorf("ticket %q: it was counted %d times, want once only if it is requeued", text,
				tickets.poisoned)
		}
	}
}
